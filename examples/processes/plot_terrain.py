"""
A map from scattered heights (Kriging)
======================================

Geostatisticians call it kriging: from the heights of 600 places, a Gaussian process
with one learned lengthscale per direction gives a map with its deviation at 35,000
others.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.cbook import get_sample_data
from matplotlib.colors import LightSource

import randkern as rk

with get_sample_data("jacksboro_fault_dem.npz") as file:
    heights = file["elevation"][:240:2, 60:360:2].astype(float)
rows, columns = np.mgrid[: heights.shape[0], : heights.shape[1]]
spacing = np.array([0.185, 0.149])  # kilometres: six arc seconds, at 36° north
X = spacing * np.column_stack([rows.ravel(), columns.ravel()])
y = heights.ravel()
known = np.random.default_rng(0).choice(len(X), 600, replace=False)

# %%
# Learning
# --------
# The exact process, since 600 rows are few; for many, use ``n_components=2_000``.
model = rk.GaussianProcessRegressor(
    1.0 * rk.Matern(1.5, lengthscale=np.ones(2)),
    n_components=None,
    normalize_y=True,
    random_state=0,
).fit(X[known], y[known])
mean, deviation = model.predict(X, return_std=True)
south, east = model.kernel_.kernel.lengthscale
print(f"lengthscales: {south:.2f} km from north to south, {east:.2f} km along a row")
error = np.sqrt(np.mean((mean - y) ** 2))
print(f"error: {error:.0f} m, predicted: {np.sqrt(np.mean(deviation**2)):.0f} m")

# %%
# The map
# -------
light = LightSource(315, 45)
limits = {"vmin": heights.min(), "vmax": heights.max(), "blend_mode": "soft"}
figure, panels = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
for axes, values, title in (
    (panels[0], heights, "the terrain, and where it is known"),
    (panels[1], mean.reshape(heights.shape), "the mean of the process"),
):
    shaded = light.shade(values, plt.get_cmap("gist_earth"), vert_exag=0.05, **limits)
    axes.imshow(shaded)
    axes.set_title(title, fontsize=10)
panels[0].plot(*(X[known] / spacing)[:, ::-1].T, ".", color="white", markersize=2)
shown = panels[2].imshow(deviation.reshape(heights.shape), cmap="magma")
panels[2].set_title("its standard deviation (m)", fontsize=10)
figure.colorbar(shown, ax=panels[2])
for axes in panels:
    axes.axis("off")
plt.show()

# %%
# Does the deviation tell the truth?
# ----------------------------------
# Over all places that were left out, by how many deviations is the mean off?
left_out = np.setdiff1d(np.arange(len(X)), known)
z = ((y - mean) / deviation)[left_out]
grid = np.linspace(-4, 4, 200)
figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
axes.hist(z, bins=80, range=(-4, 4), density=True, color="0.8")
axes.plot(grid, np.exp(-(grid**2) / 2) / np.sqrt(2 * np.pi))
inside = np.mean(np.abs(z) < 1.96)
axes.set(
    xlabel="error / deviation", title=f"{inside:.0%} lie within their 95 % intervals"
)
plt.show()
