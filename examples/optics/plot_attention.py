r"""
Attention in linear time, by positive features
==============================================

Attention weights values by the softmax kernel :math:`\exp(q\cdot k/\sqrt d)`. With
random features of this kernel, the sums over keys are computed once, for all
queries: the time grows linearly with the length of the sequence, not quadratically
[1]_. Positive features keep every weight positive, whichever are drawn; pairs of
opposite draws vary less.

.. [1] Choromanski et al. 2021, "Rethinking attention with Performers", ICLR.
"""

from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np

import randkern as rk

d = 32
scale = d**0.25  # so that q·k/scale² is q·k/√d
rng = np.random.default_rng(0)


def sequence(n):
    """Return queries, keys and values of a smooth sequence."""
    t = np.linspace(0, 1, n)[:, None]
    waves = np.cos(
        2 * np.pi * (t * rng.uniform(0, 6, size=(1, d)) + rng.random((1, d)))
    )
    return waves, waves[rng.permutation(n)], np.sin(9 * t)


def exact(Q, K, V):
    weights = rk.Softmax(scale)(Q, K)
    return weights @ V / weights.sum(axis=1, keepdims=True)


def linear(Q, K, V, n_components, features="hyperbolic", seed=0):
    kernel = rk.Softmax(scale, features=features)
    draw = rk.RandomFeatures(kernel, n_components, random_state=seed).fit(K)
    phi_Q, phi_K = draw.transform(Q), draw.transform(K)
    return phi_Q @ (phi_K.T @ V) / (phi_Q @ phi_K.sum(axis=0))[:, None]


# %%
# The error falls with the number of features
# -------------------------------------------
Q, K, V = sequence(1_000)
truth = exact(Q, K, V)
sizes = [30, 100, 300, 1000, 3000]
figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
for features in ("positive", "hyperbolic"):
    errors = [
        [np.abs(linear(Q, K, V, D, features, seed) - truth).mean() for seed in range(5)]
        for D in sizes
    ]
    spread = np.std(errors, axis=1)
    axes.errorbar(sizes, np.mean(errors, axis=1), spread, fmt="o-", label=features)
axes.set(xscale="log", yscale="log", xlabel="features", ylabel="mean error")
axes.set_title("Attention over 1,000 keys")
axes.legend()
plt.show()

# %%
# The time grows linearly
# -----------------------
lengths = [500, 1000, 2000, 4000]
seconds = {"exact": [], "300 features": []}
for n in lengths:
    Q, K, V = sequence(n)
    for name, attend in (
        ("exact", exact),
        ("300 features", lambda Q, K, V: linear(Q, K, V, 300)),
    ):
        attend(Q[:10], K[:10], V[:10])
        start = perf_counter()
        attend(Q, K, V)
        seconds[name].append(perf_counter() - start)
figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
for name, values in seconds.items():
    axes.plot(lengths, values, "o-", label=name)
axes.set(xscale="log", yscale="log", xlabel="length", ylabel="seconds")
axes.set_title("Exact attention, and by features")
axes.set_xticks(lengths, [f"{n:,}" for n in lengths])
axes.minorticks_off()
axes.legend()
plt.show()
