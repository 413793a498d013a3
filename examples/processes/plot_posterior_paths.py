"""
Sampling functions from a Gaussian process
==========================================

The height of a ridge in the Appalachians is measured at 24 places. A Gaussian process
gives the height in between with its deviation. A question about the whole ridge (where
is the summit?) needs functions: ``sample_paths`` draws them from the posterior, to be
evaluated anywhere.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.cbook import get_sample_data

import randkern as rk

# %%
# The data
# --------
# A section through the digital elevation model of the Jacksboro fault that comes with
# Matplotlib: one height every 74 m.
with get_sample_data("jacksboro_fault_dem.npz") as file:
    heights = file["elevation"][170, :250].astype(float)
kilometres = 0.074 * np.arange(len(heights))
rng = np.random.default_rng(1)
sounded = np.sort(rng.choice(len(heights), 24, replace=False))

# %%
# The process
# -----------
# Hills are rough: a Matérn kernel, whose lengthscale and scale are learned. The
# soundings are exact to two metres.
model = rk.GaussianProcessRegressor(
    1.0 * rk.Matern(1.5, lengthscale=1.0),
    noise=(2.0 / heights[sounded].std()) ** 2,
    n_components=None,
    normalize_y=True,
    bounds={"noise": "fixed"},
    random_state=0,
).fit(kilometres[sounded, None], heights[sounded])
mean, deviation = model.predict(kilometres[:, None], return_std=True)
paths = model.sample_paths(2_000, random_state=0)(kilometres[:, None])

# %%
# Where is the summit?
# --------------------
# Each path has one. Their histogram is the distribution of the answer, which neither
# the mean nor the deviation gives.
figure, (above, below) = plt.subplots(
    2, 1, figsize=(9, 5.5), sharex=True, height_ratios=(3, 1), layout="constrained"
)
above.fill_between(
    kilometres,
    mean - 2 * deviation,
    mean + 2 * deviation,
    color="0.9",
    label="± 2 s.d.",
)
above.plot(kilometres, paths[:, :5], linewidth=0.8)
above.plot(kilometres, heights, "k", linewidth=1.2, label="the ridge")
above.plot(kilometres[sounded], heights[sounded], "ko", markersize=4, label="soundings")
above.set(ylabel="height (m)", title="Five of 2,000 paths")
above.legend(loc="upper left", fontsize=8)
summits = kilometres[paths.argmax(axis=0)]
below.hist(summits, bins=np.linspace(0, kilometres[-1], 80), color="tab:orange")
below.axvline(kilometres[heights.argmax()], color="black")
below.set(xlabel="kilometres", ylabel="paths", title="Where the summit is")
plt.show()

climb = np.maximum(np.diff(paths, axis=0), 0).sum(axis=0)
low, high = np.quantile(climb, [0.05, 0.95])
print(
    f"highest point: {paths.max(axis=0).mean():.0f} m, in truth {heights.max():.0f} m"
)
print(f"total climb: {low:.0f} to {high:.0f} m with a probability of 90 %")
