r"""
Do two samples come from one distribution?
==========================================

:func:`randkern.mmd_test` compares the means of the features of two samples,
:math:`\lVert \bar\phi(X) - \bar\phi(Y)\rVert^2`. With exact kernels that takes all
pairs of rows; with random features it takes one pass, for all permutations together.
"""

from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import randkern as rk

X, y = load_digits(return_X_y=True)
X = X / 16
rng = np.random.default_rng(0)
# In a random order: the data set is ordered by writer.
threes, eights = rng.permutation(X[y == 3]), rng.permutation(X[y == 8])

# %%
# Threes against threes, and against a mixture with a few eights
# --------------------------------------------------------------
# The p-value is the share of random assignments of the rows to the two samples with a
# statistic at least as large. ``power`` is the probability that a test at the 5 % level
# detects such a difference in other samples of these sizes.
half = len(threes) // 2
mixed = np.concatenate([threes[half + 25 :], eights[:25]])
cases = {
    "threes and threes": (threes[:half], threes[half:]),
    "threes, and threes with 25 eights": (threes[:half], mixed),
    "threes and eights": (threes[:half], eights[:half]),
}
for name, (A, B) in cases.items():
    result = rk.mmd_test(A, B, random_state=0)
    print(f"{name}: p = {result.pvalue:.3f}, power = {result.power:.2f}")

# %%
# Where do the samples differ?
# ----------------------------
# The witness function is positive where the first sample is denser, and negative where
# the second one is. These two samples have the same means and variances in each column.
n = 2_000
first = rng.normal(size=(n, 2))
second = rng.normal(size=(n, 2))
second[:, 1] = 0.7 * second[:, 0] + np.sqrt(1 - 0.7**2) * second[:, 1]
result = rk.mmd_test(first, second, random_state=0)
print(f"p = {result.pvalue:.3f}")

axis = np.linspace(-3, 3, 80)
grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
heights = result.witness(grid).reshape(80, 80)
most = abs(heights).max()
levels = np.linspace(-most, most, 21)
figure, axes = plt.subplots(figsize=(5.4, 4.4), layout="constrained")
filled = axes.contourf(axis, axis, heights, levels, cmap="RdBu_r")
axes.plot(*second[:400].T, ".", color="black", markersize=2)
figure.colorbar(filled, label="witness function")
axes.set_title("Red: more rows in the first sample; dots: the second")
axes.set_aspect("equal")
plt.show()

# %%
# The power, and the cost
# -----------------------
# How often a sample with a share of eights is distinguished from one without, at 5 %.
shares, n_trials = [0, 10, 20, 30], 20
figure, axes = plt.subplots(layout="constrained")
for n_components in (30, 300):
    power = []
    start = perf_counter()
    for n_eights in shares:
        p = []
        for trial in range(n_trials):
            rows = rng.permutation(threes)
            others = rng.permutation(eights)[:n_eights]
            B = np.concatenate([rows[half : 2 * half - n_eights], others])
            test = rk.mmd_test(
                rows[:half], B, n_components=n_components, random_state=trial
            )
            p.append(test.pvalue)
        power.append(np.mean(np.array(p) <= 0.05))
    seconds = (perf_counter() - start) / (n_trials * len(shares))
    label = f"{n_components} features, {1000 * seconds:.0f} ms a test"
    axes.plot(100 * np.array(shares) / half, power, "o-", label=label)
axes.axhline(0.05, color="0.6", linewidth=1)
axes.set_title("Threes with eights among them")
axes.set_xlabel("eights in the second sample (%)")
axes.set_ylabel("detected at the level of 5 %")
axes.legend()
plt.show()
