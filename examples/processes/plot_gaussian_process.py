r"""
Gaussian processes on random features
=====================================

The mean and two standard deviations of a Gaussian process, exact and on random
features: few features are overconfident away from the data, many match the process.
"""

import matplotlib.pyplot as plt
import numpy as np

import randkern as rk

rng = np.random.default_rng(0)
X = np.sort(np.concatenate([rng.uniform(-4, -1, 30), rng.uniform(1, 3, 30)]))[:, None]
y = np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=60)
grid = np.linspace(-6, 6, 400)[:, None]
kernel = 1.0 * rk.Gaussian(lengthscale=0.7)

figure, axes = plt.subplots(
    1, 3, figsize=(11, 3.6), sharex=True, sharey=True, layout="constrained"
)
for axis, D in zip(axes, (20, 200, None), strict=True):
    # The same hyperparameters everywhere: optimizer=None.
    model = rk.GaussianProcessRegressor(
        kernel, noise=0.04, n_components=D, optimizer=None, random_state=0
    ).fit(X, y)
    mean, std = model.predict(grid, return_std=True)
    axis.fill_between(grid[:, 0], mean - 2 * std, mean + 2 * std, alpha=0.25)
    axis.plot(grid, mean)
    axis.plot(X, y, "k.", markersize=4)
    axis.set_title("exact kernel" if D is None else f"{D} features")
    axis.set_xlabel("x")
    print(f"D = {D}: log p(y) = {model.log_marginal_likelihood_value_:.1f}")
axes[0].set_ylabel("mean ± 2 standard deviations of f")
plt.show()

# %%
# Learning
# --------
# By default `fit` learns lengthscale, variance and noise by maximising the marginal
# likelihood, starting from the given kernel.
learned = rk.GaussianProcessRegressor(
    1.0 * rk.Gaussian(lengthscale=5.0), noise=1.0, n_components=200, random_state=0
).fit(X, y)
for name, value in zip(learned.hyperparameters_, np.exp(learned.theta_), strict=True):
    print(f"{name}: {value:.3f}")
