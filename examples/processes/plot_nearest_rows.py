"""
Gaussian processes of 100,000 rows: nearest neighbours
======================================================

Terrain has detail at every distance, which no affordable number of random features
represents. `n_neighbors` predicts each place by the exact Gaussian process given its
nearest ones, however many places there are.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.cbook import get_sample_data
from matplotlib.colors import LightSource

import randkern as rk

with get_sample_data("jacksboro_fault_dem.npz") as file:
    heights = file["elevation"].astype(float)
rows, columns = np.mgrid[: heights.shape[0], : heights.shape[1]]
spacing = np.array([0.0925, 0.0745])  # kilometres: three arc seconds, at 36° north
X = spacing * np.column_stack([rows.ravel(), columns.ravel()])
y = heights.ravel()
order = np.random.default_rng(0).permutation(len(X))
known, unknown = order[:100_000], order[100_000:]

# %%
# Neighbours and features
# -----------------------
# Both learn the scale and a lengthscale per direction. The heights are whole metres, so
# the noise of neighbours is that of rounding, of variance 1/12 m². Features learn a
# larger one, for all that they cannot represent. They get 10,000 places,
# to be done in seconds. Scored are the error, and the mean negative log density of the
# heights that were left out, which also punishes wrong standard deviations.
kernel = 1.0 * rk.Matern(1.5, lengthscale=np.ones(2))
models = {
    "16 neighbours": rk.GaussianProcessRegressor(
        kernel,
        noise=1 / 12 / np.var(y[known]),
        n_components=None,
        n_neighbors=16,
        bounds={"noise": "fixed"},
        normalize_y=True,
        random_state=0,
    ).fit(X[known], y[known]),
    "500 features": rk.GaussianProcessRegressor(
        kernel, n_components=500, normalize_y=True, random_state=0
    ).fit(X[known[:10_000]], y[known[:10_000]]),
}
means = {}
for name, model in models.items():
    means[name], std = model.predict(X, return_std=True, include_noise=True)
    z = ((y - means[name]) / std)[unknown]
    error = np.sqrt(np.mean((y - means[name])[unknown] ** 2))
    loss = np.mean(np.log(std[unknown]) + 0.5 * np.log(2 * np.pi) + 0.5 * z**2)
    inside = np.mean(np.abs(z) < 1.96)
    print(
        f"{name}: error {error:.1f} m, negative log density {loss:.2f}, "
        f"{inside:.0%} in their 95 % intervals"
    )

# %%
# The maps
# --------
light = LightSource(315, 45)
limits = {"vmin": heights.min(), "vmax": heights.max(), "blend_mode": "soft"}
figure, panels = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
maps = {"the terrain": heights} | means
for axes, (title, values) in zip(panels, maps.items(), strict=True):
    corner = values.reshape(heights.shape)[150:300, 100:300]
    axes.imshow(
        light.shade(corner, plt.get_cmap("gist_earth"), vert_exag=0.05, **limits)
    )
    axes.set_title(title, fontsize=10)
    axes.axis("off")
plt.show()
