r"""
Bayesian optimisation by Thompson sampling
==========================================

If evaluations are expensive, a Gaussian process tells which one to make next. Thompson
sampling draws one path from the posterior and evaluates the function at the minimum of
that path. Points are tried as often as they are likely to be the best. Paths that are
functions (``sample_paths``) can be searched anywhere, not just on a grid [1]_.

.. [1] Wilson et al. 2020, "Efficiently sampling functions from Gaussian process
   posteriors", ICML.
"""

import matplotlib.pyplot as plt
import numpy as np

import randkern as rk

# %%
# Two standard functions
# ----------------------
# Both are on the unit cube; Branin's has three minima of 0.398, Hartmann's, of six
# arguments, a global minimum of -3.322 among several local ones.


def branin(X):
    x, y = 15 * X[:, 0] - 5, 15 * X[:, 1]
    valley = y - 5.1 / (4 * np.pi**2) * x**2 + 5 / np.pi * x - 6
    return valley**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(x) + 10


def hartmann(X):
    A = [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14]]
    A = np.array([*A, [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]])
    P = [[1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991]]
    P += [[2348, 1451, 3522, 2883, 3047, 6650], [4047, 8828, 8732, 5743, 1091, 381]]
    squares = A * (X[:, None] - 1e-4 * np.array(P)) ** 2
    return -np.exp(-squares.sum(axis=2)) @ [1.0, 1.2, 3.0, 3.2]


# %%
# The loop
# --------
# Hyperparameters are learned after every fifth evaluation. The minimum of a path is
# searched among random points, and then among points close to the best of them.
def least(path, d, rng):
    X = rng.random((500, d))
    for spread in (0.1, 0.02, 0.004):
        best = X[np.argsort(path(X)[:, 0])[:5]]
        near = np.repeat(best, 25, axis=0)
        X = np.vstack(
            [best, np.clip(near + spread * rng.normal(size=near.shape), 0, 1)]
        )
    return X[path(X)[:, 0].argmin()]


def thompson(function, d, n_evaluations, seed, n_first=8):
    rng = np.random.default_rng(seed)
    X = rng.random((n_first, d))
    y = function(X)
    kernel, noise = 1.0 * rk.Matern(2.5, lengthscale=np.full(d, 0.3)), 1e-4
    while len(X) < n_evaluations:
        learn = (len(X) - n_first) % 5 == 0
        model = rk.GaussianProcessRegressor(
            kernel,
            noise=noise,
            n_components=None,
            normalize_y=True,
            bounds={"noise": "fixed"},
            priors={"lengthscale": (0.4, 0.7)},
            optimizer="l-bfgs-b" if learn else None,
            projection="dense",  # of the paths: the fastest to draw in few dimensions
        ).fit(X, y)
        kernel = model.kernel_
        path = model.sample_paths(random_state=len(X) + 1_000 * seed)
        X = np.vstack([X, least(path, d, rng)])
        y = np.append(y, function(X[-1:]))
    return X, y


# %%
# Beside random search
# --------------------
figure, panels = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
cases = (("Branin", branin, 2, 30, 0.397887), ("Hartmann", hartmann, 6, 50, -3.32237))
for axes, (name, function, d, n, minimum) in zip(panels[1:], cases, strict=True):
    runs = [thompson(function, d, n, seed) for seed in range(3)]
    ours = np.array([y for _, y in runs])
    rng = np.random.default_rng(0)
    drawn = function(rng.random((200 * n, d))).reshape(200, n)
    for values, label in ((ours, "Thompson sampling"), (drawn, "random search")):
        gaps = np.minimum.accumulate(values, axis=1) - minimum
        low, middle, high = np.quantile(gaps, [0.1, 0.5, 0.9], axis=0)
        (line,) = axes.semilogy(np.arange(1, n + 1), middle, label=label)
        colour = line.get_color()
        axes.fill_between(np.arange(1, n + 1), low, high, color=colour, alpha=0.2)
    axes.set(xlabel="evaluations", title=f"{name}: best value − minimum")
    if name == "Branin":
        tried = runs[0][0]
panels[1].legend()
side = np.linspace(0, 1, 100)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
values = np.log1p(branin(grid)).reshape(100, 100)
panels[0].contourf(side, side, values, levels=20, cmap="Blues_r")
panels[0].scatter(*tried.T, c=np.arange(len(tried)), cmap="autumn", s=18)
panels[0].set_title("Branin's function: tried first (red), last (yellow)", fontsize=10)
plt.show()
