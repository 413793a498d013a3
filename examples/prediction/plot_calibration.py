"""
Probabilities that can be believed
==================================

Of all forecasts of 80 %, 80 % should come true. Five ways to probabilities on the same
kernel, with few training rows and labels that are wrong for one row in ten.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.metrics import log_loss

import randkern as rk

rng = np.random.default_rng(0)


def moons(n, seed):
    X, y = make_moons(n, noise=0.35, random_state=seed)
    return X, np.where(rng.random(n) < 0.1, 1 - y, y)


X, y = moons(120, 1)
X_test, y_test = moons(20_000, 2)

# %%
# The models
# ----------
# A support vector machine decides and knows no probabilities: ``probability=True``
# divides its decisions by a temperature that five more fits tell. Ridge regression
# finds its temperature from rows left out, in closed form. Logistic regression has the
# probabilities in its loss; a Gaussian process averages over what it does not know, and
# learns the lengthscale by itself.
kernel = rk.Gaussian(0.5)
options = {"n_components": 300, "random_state": 0}
models = {
    "logistic, hardly regularised": rk.KernelLogistic(kernel, C=1e4, **options),
    "logistic": rk.KernelLogistic(kernel, C=1.0, **options),
    "support vectors": rk.KernelSVC(kernel, C=1.0, probability=True, **options),
    "ridge": rk.KernelRidgeClassifier(kernel, alpha=1.0, **options),
    "Gaussian process": rk.GaussianProcessClassifier(1.0 * kernel, **options),
}
side = np.linspace(-3, 4, 120)
grid = np.stack(np.meshgrid(side, 0.8 * side - 0.3), axis=-1)
figure, panels = plt.subplots(
    2, 5, figsize=(13, 5.2), sharex="row", sharey="row", layout="constrained"
)
for (name, model), (above, below) in zip(models.items(), panels.T, strict=True):
    model.fit(X, y)
    shown = model.predict_proba(grid.reshape(-1, 2))[:, 1].reshape(120, 120)
    above.contourf(*grid.T, shown.T, levels=np.linspace(0, 1, 21), cmap="coolwarm")
    above.scatter(*X.T, c=y, cmap="coolwarm", s=8, edgecolors="white", linewidths=0.4)
    p = model.predict_proba(X_test)[:, 1]
    loss = log_loss(y_test, p)
    above.set_title(f"{name}\nlog loss {loss:.3f}", fontsize=10)
    bins = np.minimum((10 * p).astype(int), 9)
    forecast, share, count = (
        np.array([value[bins == b].sum() for b in range(10)])
        for value in (p, y_test, np.ones(len(p)))
    )
    seen = count > 20
    below.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    below.plot(forecast[seen] / count[seen], share[seen] / count[seen], "o-")
    below.bar(np.arange(10) / 10 + 0.05, count / count.sum(), width=0.1, alpha=0.2)
    below.set_xlabel("forecast")
    print(f"{name}: log loss {loss:.3f}, accuracy {model.score(X_test, y_test):.3f}")
panels[1, 0].set_ylabel("came true")
plt.show()

# %%
# Bars are the shares of forecasts: where a model is sure without reason, they stand at
# both ends, and the curve is flatter than the diagonal.
