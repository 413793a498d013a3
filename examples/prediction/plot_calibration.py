"""
Calibrated probabilities of classes
===================================

Of all forecasts of 80 %, 80 % should come true. Five ways to compute probabilities
with the same kernel: is a tumour malignant, given the area and the texture of its
cells? Few rows are used for training: one patient in five.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold
from sklearn.preprocessing import StandardScaler

import randkern as rk

data = load_breast_cancer(as_frame=True)
X = np.log(data.data[["worst area", "worst texture"]])
X = StandardScaler().fit_transform(X)
y = 1 - data.target.to_numpy()  # 1: malignant

# %%
# The models
# ----------
# A support vector machine has decisions but no probabilities: ``probability=True``
# divides them by a temperature learned from five more fits. Ridge regression computes
# its temperature from leave-one-out predictions, in closed form. Logistic regression
# has the probabilities in its loss; a Gaussian process averages over what is unknown,
# and also learns the lengthscale.
kernel = rk.Gaussian(0.5)
options = {"n_components": 300, "random_state": 0}
models = {
    "logistic, hardly regularised": rk.KernelLogistic(kernel, C=1e4, **options),
    "logistic": rk.KernelLogistic(kernel, C=1.0, **options),
    "support vectors": rk.KernelSVC(kernel, C=1.0, probability=True, **options),
    "ridge": rk.KernelRidgeClassifier(kernel, alpha=1.0, **options),
    "Gaussian process": rk.GaussianProcessClassifier(1.0 * kernel, **options),
}
# Train on one fifth and test on the others, five times.
splits = [split[::-1] for split in KFold(5, shuffle=True, random_state=0).split(X)]
side = np.linspace(-3, 3, 120)
grid = np.stack(np.meshgrid(side, side), axis=-1)
figure, panels = plt.subplots(
    2, 5, figsize=(13, 5.2), sharex="row", sharey="row", layout="constrained"
)
truth = np.concatenate([y[test] for _, test in splits])
for (name, model), (above, below) in zip(models.items(), panels.T, strict=True):
    p = np.concatenate(
        [model.fit(X[few], y[few]).predict_proba(X[rest])[:, 1] for few, rest in splits]
    )
    few, _ = splits[-1]
    shown = model.predict_proba(grid.reshape(-1, 2))[:, 1].reshape(120, 120)
    above.contourf(*grid.T, shown.T, levels=np.linspace(0, 1, 21), cmap="coolwarm")
    above.scatter(
        *X[few].T, c=y[few], cmap="coolwarm", s=10, edgecolors="white", linewidths=0.4
    )
    loss = log_loss(truth, p)
    above.set_title(f"{name}\nlog loss {loss:.3f}", fontsize=10)
    above.set_xlabel("area")
    bins = np.minimum((10 * p).astype(int), 9)
    forecast, share, count = (
        np.array([value[bins == b].sum() for b in range(10)])
        for value in (p, truth, np.ones(len(p)))
    )
    seen = count > 20
    below.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    below.plot(forecast[seen] / count[seen], share[seen] / count[seen], "o-")
    below.bar(np.arange(10) / 10 + 0.05, count / count.sum(), width=0.1, alpha=0.2)
    below.set_xlabel("forecast")
    print(f"{name}: log loss {loss:.3f}, accuracy {np.mean((p > 0.5) == truth):.3f}")
panels[0, 0].set_ylabel("texture")
panels[1, 0].set_ylabel("came true")
plt.show()

# %%
# Bars are the shares of forecasts: an overconfident model has them at both ends, and
# a curve flatter than the diagonal.
