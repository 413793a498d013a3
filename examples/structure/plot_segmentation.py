r"""
A photograph in six parts: spectral clustering by landmarks
===========================================================

Spectral clustering [1]_ of the pixels of a photograph by colour and position. The
affinities of all pairs of 30,000 pixels would take 7 GB. Landmarks give them as
:math:`ZZ^\top`. The normalised eigenvectors are the singular vectors of
:math:`D^{-1/2}Z`, with :math:`D = \mathrm{diag}(Z(Z^\top 1))`.

.. [1] Fowlkes, Belongie, Chung & Malik 2004, "Spectral grouping using the Nyström
   method", IEEE Transactions on Pattern Analysis and Machine Intelligence 26.
"""

from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_sample_image

import randkern as rk

photograph = load_sample_image("china.jpg")[::3, ::3] / 255
height, width, _ = photograph.shape
rows, columns = np.mgrid[:height, :width]
pixels = np.column_stack([rows.ravel(), columns.ravel(), photograph.reshape(-1, 3)])
print(f"{len(pixels):,} pixels; all affinities: {len(pixels) ** 2 * 8 / 1e9:.0f} GB")

# %%
# Affinities
# ----------
# Pixels are similar if their colours are, and if they are not far apart: a product of
# two kernels on different columns.
kernel = rk.Gaussian(60.0, columns=[0, 1]) * rk.Gaussian(0.12, columns=[2, 3, 4])
start = perf_counter()
Z = rk.NystromFeatures(kernel, 300, random_state=0).fit_transform(pixels)
degrees = np.maximum(Z @ Z.sum(axis=0), 1e-3)
scaled = Z / np.sqrt(degrees)[:, None]
# Singular vectors of a tall matrix, from the eigenvectors of a small one.
values, vectors = np.linalg.eigh(scaled.T @ scaled)
components = scaled @ (vectors[:, :-9:-1] / np.sqrt(values[:-9:-1]))
print(f"eight eigenvectors in {perf_counter() - start:.1f} s")

# %%
# The parts
# ---------
unit = components[:, :6] / np.linalg.norm(components[:, :6], axis=1, keepdims=True)
parts = KMeans(6, n_init=4, random_state=0).fit_predict(unit)
means = np.array([pixels[parts == part, 2:].mean(axis=0) for part in range(6)])
figure, panels = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
for axes, image, title in (
    (panels[0], photograph, "the Summer Palace in Beijing"),
    (
        panels[1],
        means[parts].reshape(photograph.shape),
        "its parts, in their mean colours",
    ),
):
    axes.imshow(image)
    axes.set_title(title, fontsize=10)
    axes.axis("off")
plt.show()

# %%
# The eigenvectors
# ----------------
# The first is nearly constant; each of the others divides the image once more.
figure, panels = plt.subplots(1, 4, figsize=(12, 2.4), layout="constrained")
for number, axes in enumerate(panels, start=1):
    image = (components[:, number] / np.sqrt(degrees)).reshape(height, width)
    limit = np.quantile(np.abs(image), 0.99)
    axes.imshow(image, cmap="RdBu", vmin=-limit, vmax=limit)
    axes.set_title(f"eigenvector {number + 1}", fontsize=10)
    axes.axis("off")
plt.show()
