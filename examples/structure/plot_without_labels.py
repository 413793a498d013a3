"""
Kernel methods without labels on 100,000 rows
=============================================

A linear method on random features is a kernel method. After
:class:`~randkern.RandomFeatures`, scikit-learn's principal components, k-means,
canonical correlations and one-class support vector machines take time and memory linear
in the number of rows.
Their exact forms need the kernel matrix, 80 GB for 100,000 rows in double precision;
here they see 5,000 of the rows.
"""

from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import MiniBatchKMeans
from sklearn.cross_decomposition import CCA
from sklearn.datasets import make_circles
from sklearn.decomposition import IncrementalPCA, KernelPCA
from sklearn.linear_model import SGDOneClassSVM
from sklearn.metrics import adjusted_rand_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.svm import OneClassSVM

import randkern as rk

N_ROWS, N_EXACT = 100_000, 5_000
rng = np.random.default_rng(0)

# %%
# Principal components, a block at a time
# ---------------------------------------
# ``IncrementalPCA`` has ``partial_fit``, so that the features of one block are in
# memory at a time, and blocks may come from files (``RowBlocks.from_parquet``).
X, ring = make_circles(N_ROWS, factor=0.3, noise=0.08, random_state=0)
kernel = rk.Gaussian(0.5)
features = rk.RandomFeatures(kernel, n_components=300, random_state=0).fit(X)
start = perf_counter()
pca = IncrementalPCA(4)
for block in np.array_split(X, 20):
    pca.partial_fit(features.transform(block))
components = pca.transform(features.transform(X))
pca_seconds = perf_counter() - start
start = perf_counter()
exact = KernelPCA(4, kernel="precomputed").fit(kernel(X[:N_EXACT]))
exact_seconds = perf_counter() - start
print(f"IncrementalPCA on features, {N_ROWS:,} rows: {pca_seconds:.1f} s")
print(f"KernelPCA, {N_EXACT:,} rows: {exact_seconds:.1f} s")
print("variances:      ", (N_ROWS / (N_ROWS - 1) * pca.explained_variance_).round(4))
print("of the kernel's:", (exact.eigenvalues_ / N_EXACT).round(4))

# %%
# Clusters
# --------
# k-means of features is kernel k-means. On the rows themselves it cuts both rings in
# half; in the leading components it separates them.
clusters = MiniBatchKMeans(2, n_init=5, random_state=0).fit_predict(components)
of_rows = MiniBatchKMeans(2, n_init=5, random_state=0).fit_predict(X)
agreement = adjusted_rand_score(ring, clusters)
agreement_of_rows = adjusted_rand_score(ring, of_rows)
print(f"agreement with the rings: {agreement:z.2f}, on rows {agreement_of_rows:z.2f}")
figure, panels = plt.subplots(1, 2, figsize=(8, 4), layout="constrained")
for axes, labels, title in (
    (panels[0], of_rows, f"k-means on rows: {agreement_of_rows:z.2f}"),
    (panels[1], clusters, f"on kernel components: {agreement:z.2f}"),
):
    axes.scatter(*X[:4_000].T, c=labels[:4_000], s=2, cmap="coolwarm")
    axes.set(title=title, aspect="equal", xticks=[], yticks=[])
plt.show()

# %%
# One-class support vector machines
# ---------------------------------
# ``SGDOneClassSVM`` on features approximates ``OneClassSVM``. Rows of a ring are usual,
# rows in its hole and around it are not; new rows of both kinds are ranked.
usual = X[ring == 0]
outliers = rng.uniform(-1.6, 1.6, size=(20_000, 2))
outliers = outliers[abs(np.linalg.norm(outliers, axis=1) - 1) > 0.25]
test = np.vstack([usual[-5_000:], outliers])
is_usual = np.arange(len(test)) < 5_000
model = make_pipeline(
    rk.RandomFeatures(kernel, n_components=300, random_state=0),
    SGDOneClassSVM(nu=0.05, tol=1e-6, random_state=0),
)
start = perf_counter()
model.fit(usual[:-5_000])
seconds = perf_counter() - start
start = perf_counter()
exact = OneClassSVM(nu=0.05, kernel=kernel).fit(usual[:N_EXACT])
exact_seconds = perf_counter() - start
auc = roc_auc_score(is_usual, model.decision_function(test))
exact_auc = roc_auc_score(is_usual, exact.decision_function(test))
print(f"on features, {len(usual) - 5_000:,} rows: {seconds:.1f} s, AUC {auc:.4f}")
print(f"exact, {N_EXACT:,} rows: {exact_seconds:.1f} s, AUC {exact_auc:.4f}")

# %%
# Canonical correlations
# ----------------------
# Two views share an angle, which neither shows linearly: a point on a circle, and the
# cosine of three times its angle, both with noise and other columns beside it.
angle = rng.uniform(0, 2 * np.pi, N_ROWS)
first = np.c_[np.cos(angle), np.sin(angle), rng.normal(size=N_ROWS)]
second = np.c_[np.cos(3 * angle), rng.normal(size=(N_ROWS, 2))]
first += 0.1 * rng.normal(size=first.shape)
second += 0.1 * rng.normal(size=second.shape)


def correlation(left: np.ndarray, right: np.ndarray) -> float:
    """Return the first canonical correlation of the second half of the rows."""
    half = N_ROWS // 2
    cca = CCA(1, max_iter=1000).fit(left[:half], right[:half])
    scores = cca.transform(left[half:], right[half:])
    return float(np.corrcoef(scores[0][:, 0], scores[1][:, 0])[0, 1])


def of_features(rows: np.ndarray) -> np.ndarray:
    """Return features of a Gaussian kernel."""
    features = rk.RandomFeatures(rk.Gaussian(1.5), n_components=100, random_state=0)
    return features.fit_transform(rows)


start = perf_counter()
of_kernels = correlation(of_features(first), of_features(second))
seconds = perf_counter() - start
print(f"of the columns: {correlation(first, second):.3f}")
print(f"of their features: {of_kernels:.3f}, {seconds:.1f} s")
