"""
Kernel PCA and clustering by features
=====================================

What is linear in a kernel's features is nonlinear in the rows: ``PCA`` on random
features is kernel PCA, and ``KMeans`` on their leading components is spectral
clustering. Both take time linear in the number of rows, where the kernel matrix takes
quadratic time.
"""

from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, make_circles
from sklearn.decomposition import PCA, KernelPCA, TruncatedSVD
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline

import randkern as rk

# %%
# Two rings
# ---------
# Spectral clustering uses the leading eigenvectors of the kernel matrix whose rows and
# columns are divided by the roots of their sums. With features Z, these are singular
# vectors of Z divided by the roots of Z(Zᵀ1).
X, y = make_circles(1_500, factor=0.4, noise=0.06, random_state=0)
# The lengthscale is short, and the kernel's values between the rings, which matter
# here, are smaller than the error of random features: landmarks represent them.
landmarks = rk.NystromFeatures(rk.Gaussian(0.15), n_components=200, random_state=0)
Z = landmarks.fit_transform(X)
sums = np.maximum(Z @ Z.sum(axis=0), 1e-3)
components = TruncatedSVD(2, random_state=0).fit_transform(Z / np.sqrt(sums)[:, None])
components /= np.linalg.norm(components, axis=1, keepdims=True)
found = KMeans(2, n_init=10, random_state=0).fit_predict(components)
plain = KMeans(2, n_init=10, random_state=0).fit_predict(X)
figure, panels = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
for axes, labels, title in (
    (panels[0], plain, "k-means on the rows"),
    (panels[1], found, "spectral clustering by landmarks"),
):
    axes.scatter(*X.T, c=labels, s=4, cmap="coolwarm")
    axes.set_title(
        f"{title}\nagreement {adjusted_rand_score(y, labels):z.2f}", fontsize=10
    )
    axes.set_aspect("equal")
panels[2].scatter(components[:, 0], components[:, 1], c=y, s=4, cmap="coolwarm")
panels[2].set_title("the two components, scaled to a circle", fontsize=10)
plt.show()

# %%
# Digits, beside the exact kernel PCA
# -----------------------------------
X, y = load_digits(return_X_y=True)
X = X / 16
kernel = rk.Gaussian(2.0)
start = perf_counter()
exact = KernelPCA(2, kernel="precomputed").fit_transform(kernel(X))
exact_seconds = perf_counter() - start
start = perf_counter()
features = rk.RandomFeatures(kernel, n_components=1_000, random_state=0)
ours = make_pipeline(features, PCA(2)).fit_transform(X)
seconds = perf_counter() - start
figure, panels = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
for axes, rows, title in (
    (panels[0], exact, f"exact kernel PCA, {exact_seconds:.2f} s"),
    (panels[1], ours, f"PCA of 1,000 features, {seconds:.2f} s"),
):
    signs = [(1 if (rows[:, j] * exact[:, j]).sum() > 0 else -1) for j in range(2)]
    shown = axes.scatter(*(rows * signs).T, c=y, s=5, cmap="tab10")
    axes.set_title(title)
figure.colorbar(shown, ax=panels, label="digit")
plt.show()
