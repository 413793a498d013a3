r"""
Do two samples come from one distribution?
==========================================

The maximum mean discrepancy of two samples is the distance between the means of their
features, :math:`\lVert \bar\phi(X) - \bar\phi(Y)\rVert`. With exact kernels it takes
all pairs of rows; with random features it takes one pass, and each permutation of a
test costs one product.
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
# The statistic, and its distribution under exchange
# --------------------------------------------------
# If both samples have the same distribution, rows may be exchanged: the share of
# permutations with a larger distance is a p-value, whatever the kernel.


def p_value(A, B, n_components=500, n_permutations=500, seed=0):
    rows = np.concatenate([A, B])
    kernel = rk.Gaussian("median")
    Z = rk.RandomFeatures(kernel, n_components, random_state=seed).fit_transform(rows)
    signs = np.repeat([1 / len(A), -1 / len(B)], [len(A), len(B)])
    permuted = np.array([rng.permutation(signs) for _ in range(n_permutations)])
    observed = np.linalg.norm(signs @ Z)
    chance = np.linalg.norm(permuted @ Z, axis=1)
    return observed, chance, (1 + (chance >= observed).sum()) / (1 + n_permutations)


# %%
# Threes against threes, and threes against a mixture with a few eights.
half = len(threes) // 2
mixed = np.concatenate([threes[half + 15 :], eights[:15]])
cases = {
    "threes and threes": (threes[:half], threes[half:]),
    "threes, and threes with 15 eights": (threes[:half], mixed),
    "threes and eights": (threes[:half], eights[:half]),
}
figure, panels = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
for axes, (name, (A, B)) in zip(panels, cases.items(), strict=True):
    observed, chance, p = p_value(A, B)
    axes.hist(chance, bins=25, color="0.75")
    axes.axvline(observed, color="tab:red")
    axes.set_title(f"{name}\np = {p:.3f}", fontsize=10)
    axes.set_xlabel("distance of the means")
panels[0].set_ylabel("permutations")
plt.show()

# %%
# The power, and the cost
# -----------------------
# How often a sample with a share of eights is distinguished from one without, at 5 %.
shares, n_trials = [0, 5, 10, 20, 30], 40
for n_components in (30, 300):
    power = []
    start = perf_counter()
    for n_eights in shares:
        p = []
        for trial in range(n_trials):
            rows = rng.permutation(threes)
            others = rng.permutation(eights)[:n_eights]
            B = np.concatenate([rows[half : 2 * half - n_eights], others])
            p.append(p_value(rows[:half], B, n_components, 100, seed=trial)[2])
        power.append(np.mean(np.array(p) <= 0.05))
    seconds = (perf_counter() - start) / (n_trials * len(shares))
    label = f"{n_components} features, {1000 * seconds:.0f} ms a test"
    plt.plot(100 * np.array(shares) / half, power, "o-", label=label)
plt.axhline(0.05, color="0.6", linewidth=1)
plt.title("Threes with eights among them")
plt.xlabel("eights in the second sample (%)")
plt.ylabel("found at the level of 5 %")
plt.legend()
plt.show()
