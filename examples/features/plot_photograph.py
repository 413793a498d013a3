"""
A photograph as a function of two coordinates
=============================================

Colours are learned from positions: 6,000 of 27,200 pixels are known. The lengthscale of
the random Fourier features determines which frequencies the model can represent. Neural
networks on coordinates have the same difficulty, and the same remedy [1]_.

.. [1] Tancik et al. 2020, "Fourier features let networks learn high frequency functions
   in low dimensional domains", NeurIPS.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

import randkern as rk

photograph = np.float32(load_sample_image("flower.jpg")[60:380:2, 130:470:2] / 255)
height, width, _ = photograph.shape
rows, columns = np.mgrid[:height, :width]
X = np.column_stack([rows.ravel(), columns.ravel()]).astype(np.float32)
colours = photograph.reshape(-1, 3)
known = np.random.default_rng(0).choice(len(X), 6_000, replace=False)

# %%
# Too smooth, right, and too rough
# --------------------------------
# Lengthscales are in pixels. The peak signal-to-noise ratio is computed on the unknown
# pixels.
holes = np.ones(len(X), dtype=bool)
holes[known] = False
masked = np.where(holes[:, None], 0.0, colours)
figure, panels = plt.subplots(1, 4, figsize=(11, 3), layout="constrained")
panels[0].imshow(masked.reshape(photograph.shape))
panels[0].set_title("what is known", fontsize=10)
for axes, lengthscale in zip(panels[1:], (20.0, 4.0, 0.7), strict=True):
    model = rk.KernelRidgeRegressor(
        rk.Gaussian(lengthscale), 1e-2, n_components=2_000, random_state=0
    )
    model.fit(X[known], colours[known] - 0.5)
    drawn = np.clip(model.predict(X) + 0.5, 0, 1)
    error = np.mean((drawn - colours)[holes] ** 2)
    axes.imshow(drawn.reshape(photograph.shape))
    axes.set_title(
        f"lengthscale {lengthscale:g}: {-10 * np.log10(error):.1f} dB", fontsize=10
    )
for axes in panels:
    axes.axis("off")
plt.show()

# %%
# Which lengthscale, which kernel?
# --------------------------------
# Short lengthscales need many features: 300 waves give a smooth picture or a bad one.
# At the right lengthscale the kernel hardly matters; a Matérn kernel has some
# frequencies of every size.
lengthscales = np.geomspace(1, 32, 6)
some = holes.nonzero()[0][::5]
figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
for name, kernel, D in (
    ("Gaussian, 300 features", rk.Gaussian, 300),
    ("Gaussian, 1,000 features", rk.Gaussian, 1_000),
    ("Matérn, 1,000 features", rk.Matern, 1_000),
):
    ratios = []
    for lengthscale in lengthscales:
        model = rk.KernelRidgeRegressor(
            kernel(lengthscale=lengthscale), 1e-2, n_components=D, random_state=0
        )
        predicted = model.fit(X[known], colours[known] - 0.5).predict(X[some]) + 0.5
        ratios.append(-10 * np.log10(np.mean((predicted - colours[some]) ** 2)))
    axes.semilogx(lengthscales, ratios, "o-", label=name)
axes.set(xlabel="lengthscale (pixels)", ylabel="signal to noise (dB)")
axes.set_title("Pixels that were not known")
axes.set_xticks(lengthscales, [f"{value:g}" for value in lengthscales])
axes.minorticks_off()
axes.legend()
plt.show()
