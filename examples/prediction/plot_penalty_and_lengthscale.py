"""
Choosing penalty and lengthscale by leave-one-out errors
========================================================

One decomposition gives the leave-one-out error for every penalty; each lengthscale
needs its own. A map of both, for three kernels on a well-known data set.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import randkern as rk

X, y = load_breast_cancer(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0, stratify=y)
scaler = StandardScaler().fit(X_train)
X_train, X_test = scaler.transform(X_train), scaler.transform(X_test)
alphas = np.logspace(-5, 2, 29)
lengthscales = np.geomspace(1, 100, 17)

# %%
# The map
# -------
# Along the valley, longer lengthscales go with smaller penalties: there the model is a
# polynomial of low degree, with the same complexity.
figure, panels = plt.subplots(
    1, 3, figsize=(12, 3.8), sharex=True, sharey=True, layout="constrained"
)
for axes, kernel in zip(panels, (rk.Gaussian, rk.Matern, rk.Laplacian), strict=True):
    # L1 distances of 30 columns are some five times as long as Euclidean ones.
    unit = 5.0 if kernel is rk.Laplacian else 1.0
    errors, best = np.empty((len(lengthscales), len(alphas))), (np.inf, None)
    for row, lengthscale in enumerate(lengthscales):
        search = rk.KernelRidgeClassifierCV(
            kernel(lengthscale=unit * lengthscale), alphas, n_components=None
        ).fit(X_train, y_train)
        errors[row] = -search.cv_results_["mean_test_score"]
        best = min(best, (-search.best_score_, row), key=lambda pair: pair[0])
        if best[1] == row:
            chosen = search
    shown = axes.contourf(
        alphas, lengthscales, errors, levels=np.linspace(0.1, 0.6, 26), extend="both"
    )
    axes.plot(chosen.alpha_, lengthscales[best[1]], "r*", markersize=12)
    accuracy = chosen.score(X_test, y_test)
    axes.set_title(
        f"{kernel.__name__}: {best[0]:.3f}\n{accuracy:.1%} of test rows right",
        fontsize=10,
    )
    axes.set(xscale="log", yscale="log", xlabel="penalty α")
panels[0].set_ylabel("lengthscale (Laplacian: fifths)")
figure.colorbar(shown, ax=panels, label="leave-one-out squared error")
plt.show()
