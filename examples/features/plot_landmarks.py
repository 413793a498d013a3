"""
Random features or landmarks?
=============================

Landmarks spend columns where the rows are, random features where the kernel's spectrum
is. For the same number of columns, landmarks are more accurate if few directions carry
most of the kernel; random features cost less to compute and need no stored rows.
"""

from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import randkern as rk

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X / 16, y, test_size=0.4, random_state=0, stratify=y
)

# %%
# A smooth kernel and a rough one
# -------------------------------
# The eigenvalues of the smooth kernel fall faster.
sizes = [20, 50, 100, 200, 500, 1000]
ways = {"random features": "random", "landmarks": "nystrom"}
figure, panels = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
for kernel, style in ((rk.Gaussian(2.0), "-"), (rk.Laplacian("scale"), ":")):
    exact = kernel.resolve(X_train)(X_test[:200])
    for name, features in ways.items():
        errors, misses, seconds = [], [], []
        for D in sizes:
            transformer = (
                rk.RandomFeatures(kernel, D, random_state=0)
                if features == "random"
                else rk.NystromFeatures(kernel, D, random_state=0)
            )
            start = perf_counter()
            Z = transformer.fit(X_train).transform(X_test[:200])
            seconds.append(perf_counter() - start)
            errors.append(np.abs(Z @ Z.T - exact).mean())
            model = rk.KernelRidgeClassifier(
                kernel, alpha=0.01, n_components=D, features=features, random_state=0
            )
            misses.append(100 * (1 - model.fit(X_train, y_train).score(X_test, y_test)))
        colour = "tab:blue" if features == "random" else "tab:orange"
        label = f"{name}, {type(kernel).__name__}"
        for axes, values in zip(panels, (errors, misses, seconds), strict=True):
            axes.plot(sizes, values, style, marker="o", color=colour, label=label)
for axes, title in zip(
    panels, ("mean error of kernel values", "test error (%)", "seconds"), strict=True
):
    axes.set(xscale="log", yscale="log", xlabel="columns", title=title)
panels[0].legend(fontsize=7)
plt.show()
