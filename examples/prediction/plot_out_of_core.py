"""
Learning from an endless stream of rows
=======================================

Digits that are rotated, shifted and stretched at random never repeat. A stream
generates them as they are read; models sum over it block by block, and what they store
has the size of the features, whatever the number of rows.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import affine_transform
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import randkern as rk

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X / 16, y, train_size=200, random_state=0, stratify=y
)


# %%
# The stream
# ----------
# The first pass over the digits leaves them unchanged. Each block has its own seed:
# reading the stream again gives the same rows, as iterative solvers need.
def distorted(block):
    rng = np.random.default_rng(block)
    rows = np.empty_like(X_train)
    for i, image in enumerate(X_train.reshape(-1, 8, 8)):
        turn, shear = rng.normal(scale=0.1, size=2)
        stretch = rng.normal(1, 0.08, size=2)
        matrix = np.array([[stretch[0], shear + turn], [-turn, stretch[1]]])
        centre = np.full(2, 3.5)
        offset = centre - matrix @ centre + rng.normal(scale=0.3, size=2)
        rows[i] = affine_transform(image, matrix, offset, order=1).ravel()
    return rows


def stream(n_blocks):
    def blocks():
        for block in range(n_blocks):
            yield (X_train if block == 0 else distorted(block)), y_train

    return rk.RowBlocks(blocks)


figure, panels = plt.subplots(2, 10, figsize=(9, 2), layout="constrained")
for row, images in zip(panels, (X_train, distorted(1)), strict=True):
    for axes, image in zip(row, images[:10], strict=True):
        axes.imshow(image.reshape(8, 8), cmap="gray_r")
        axes.axis("off")
figure.suptitle("Digits, and what the stream makes of them", fontsize=10)
plt.show()

# %%
# The more rows, the better
# -------------------------
# ``fit`` reads the stream; the normal equations of 1,000 features take 8 MB. A model
# can also be updated as blocks arrive, by ``partial_fit``, with the same result. Only
# with enough features do more rows help: 100 features soon reach their limit.
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
marks = [1, 2, 4, 8, 16, 32]
for D in (100, 300, 1_000):
    model = rk.KernelRidgeClassifier(
        rk.Gaussian(2.0), alpha=0.1, n_components=D, random_state=0
    )
    errors = []
    for block in range(marks[-1]):
        rows = X_train if block == 0 else distorted(block)
        model.partial_fit(rows, y_train, classes=np.arange(10))
        if block + 1 in marks:
            errors.append(100 * (1 - model.score(X_test, y_test)))
    axes.plot(len(X_train) * np.array(marks), errors, "o-", label=f"{D:,} features")
axes.set(xscale="log", xlabel="rows seen", ylabel="test error (%)")
axes.set_title("Digits with their distortions")
axes.set_xticks(
    len(X_train) * np.array(marks), [f"{len(X_train) * m:,}" for m in marks]
)
axes.minorticks_off()
axes.legend()
plt.show()

streamed = rk.KernelRidgeClassifier(
    rk.Gaussian(2.0), alpha=0.1, n_components=1_000, solver="cholesky", random_state=0
).fit(stream(4))
print(
    f"fit to a stream of 4 blocks: {100 * (1 - streamed.score(X_test, y_test)):.2f} %"
)
