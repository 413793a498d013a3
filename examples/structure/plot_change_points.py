r"""
Change points in a stream, by optical features
==============================================

NEWMA [1]_ detects changes in the distribution of a stream without storing any of
it. Each row becomes random features :math:`\phi(x)`; two exponentially weighted
means of these forget at different rates, and their distance grows when the recent
distribution differs from the older one. An optical processing unit computes such
features at the speed of light, which is why the paper on optical random features names
this use.

.. [1] Keriven, Garreau & Poli 2020, "NEWMA: a new method for scalable model-free online
   change-point detection", IEEE Transactions on Signal Processing 68.
"""

import matplotlib.pyplot as plt
import numpy as np

import randkern as rk

# %%
# A stream whose mean never changes
# ---------------------------------
# Every 400 rows another Gaussian mixture begins. Its rows are centred and scaled, so
# neither means nor variances of columns reveal the change.
rng = np.random.default_rng(0)
d, length, n_segments = 20, 400, 8


def mixture():
    centres = rng.normal(scale=2.0, size=(3, d))
    rows = centres[rng.integers(3, size=length)] + rng.normal(size=(length, d))
    return (rows - rows.mean(axis=0)) / rows.std(axis=0)


stream = np.concatenate([mixture() for _ in range(n_segments)])
changes = length * np.arange(1, n_segments)

# %%
# Features of rows as they come
# -----------------------------
# The kernel of degree 2 sees second moments, a Gaussian kernel all of them: here
# correlations change, and intensities of scattered light suffice.
kernels = {
    "optical, degree 2": rk.Optical(degree=2, bias=1.0),
    "Gaussian": rk.Gaussian(5.0),
}
fast, slow = 0.05, 0.02


def newma(features):
    recent = older = features[:100].mean(axis=0)
    distances = np.empty(len(features))
    for t, z in enumerate(features):
        recent = (1 - fast) * recent + fast * z
        older = (1 - slow) * older + slow * z
        distances[t] = np.linalg.norm(recent - older)
    return distances


def alarms(distances, forget=0.01, deviations=3.0):
    """Return where the distance passes a threshold that follows its own moments."""
    mean, square, found = distances[0], distances[0] ** 2, []
    for t, value in enumerate(distances):
        spread = np.sqrt(max(square - mean**2, 1e-12))
        if t > 150 and value > mean + deviations * spread:
            found.append(t)
        mean = (1 - forget) * mean + forget * value
        square = (1 - forget) * square + forget * value**2
    return np.array(found, dtype=int)


# %%
# What they find
# --------------
# Shaded: the change. Dots: alarms.
figure, panels = plt.subplots(2, 1, figsize=(8, 5), sharex=True, layout="constrained")
for axes, (name, kernel) in zip(panels, kernels.items(), strict=True):
    features = rk.RandomFeatures(kernel, n_components=1_000, random_state=0)
    distances = newma(features.fit(stream[:100]).transform(stream))
    found = alarms(distances)
    axes.plot(distances, linewidth=1)
    axes.plot(found, distances[found], ".", color="tab:red")
    for change in changes:
        axes.axvspan(change, change + 60, color="tab:orange", alpha=0.25, linewidth=0)
    hit = sum(((found >= c) & (found < c + 100)).any() for c in changes)
    late = np.array([(found < c) | (found >= c + 100) for c in changes]).all(axis=0)
    axes.set_title(
        f"{name}: {hit} of {len(changes)} changes found, {late.sum()} false alarms"
    )
    axes.set_ylabel("distance of the means")
panels[-1].set_xlabel("row")
plt.show()
