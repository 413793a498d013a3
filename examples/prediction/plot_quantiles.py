r"""
Quantiles that do not cross
===========================

Quantile regression says within which bounds a target lies, not only where its mean
is. Here the spread of the noise depends on the row. `KernelQuantileRegressor` predicts
all quantiles from the same random features, and sorts them within each row, so that
they never cross; gradient boosting fits one model per quantile, whose predictions may.
"""

from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import mean_pinball_loss

import randkern as rk

QUANTILES = np.array([0.05, 0.25, 0.5, 0.75, 0.95])


def draw(n, seed):
    """Return rows, and targets whose noise grows and becomes skewed along x."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, size=n)
    noise = rng.gamma(2.0, size=n) - 2.0
    return x[:, None], np.sin(2 * x) + (0.1 + 0.15 * (x + 3)) * noise


X, y = draw(1_000, seed=0)
X_test, y_test = draw(20_000, seed=1)

# %%
# Two fits, and the errors of both
# --------------------------------
# The pinball loss is least for the true quantiles; a row is crossed if any quantile of
# it is below a lower one.
start = perf_counter()
model = rk.KernelQuantileRegressor(
    rk.Gaussian(0.7), alpha=1.0, quantiles=QUANTILES, n_components=300, random_state=0
).fit(X, y)
kernel_seconds = perf_counter() - start
start = perf_counter()
trees = [
    HistGradientBoostingRegressor(loss="quantile", quantile=q, random_state=0).fit(X, y)
    for q in QUANTILES
]
tree_seconds = perf_counter() - start
predictions = {
    "kernel": model.predict(X_test),
    "trees": np.stack([tree.predict(X_test) for tree in trees], axis=1),
}
for name, seconds in (("kernel", kernel_seconds), ("trees", tree_seconds)):
    found = predictions[name]
    losses = [
        mean_pinball_loss(y_test, found[:, j], alpha=q) for j, q in enumerate(QUANTILES)
    ]
    crossed = (np.diff(found, axis=1) < 0).any(axis=1).mean()
    inside = ((found[:, 0] <= y_test) & (y_test <= found[:, -1])).mean()
    print(
        f"{name}: pinball loss {np.mean(losses):.4f}, {crossed:.1%} of rows crossed, "
        f"{inside:.1%} within the outer quantiles (90 % wanted), {seconds:.1f} s"
    )

# %%
# The curves
# ----------
grid = np.linspace(-3, 3, 500)[:, None]
figure, panels = plt.subplots(
    1, 2, figsize=(10, 3.8), sharey=True, layout="constrained"
)
curves = {
    "KernelQuantileRegressor": model.predict(grid),
    "HistGradientBoostingRegressor": np.stack([t.predict(grid) for t in trees], axis=1),
}
for axes, (name, values) in zip(panels, curves.items(), strict=True):
    axes.plot(X[:, 0], y, ".", color="0.75", markersize=3)
    for j, q in enumerate(QUANTILES):
        axes.plot(grid[:, 0], values[:, j], label=f"{q:g}", color=f"C{j}")
    axes.set_title(name)
    axes.set_xlabel("x")
panels[0].set_ylabel("y")
panels[1].legend(title="quantile", frameon=False)
plt.show()

# %%
# A guarantee
# -----------
# With ``conformal=True`` a fifth of the rows are set aside, and each quantile is
# shifted. A new target then lies beyond it with at most the nominal probability,
# whatever the kernel and the penalty. Here the penalty is far too small.
for conformal in (False, True):
    model.set_params(alpha=1e-4, conformal=conformal)
    found = model.fit(X[:300], y[:300]).predict(X_test)
    inside = ((found[:, 0] <= y_test) & (y_test <= found[:, -1])).mean()
    print(f"conformal={conformal}: {inside:.1%} within the outer quantiles")
