r"""
How many features?
==================

The number of random features trades accuracy for cost. This example fits kernel ridge
classifiers to the digits with more and more features, and compares them with the exact
kernel, which is the same class with ``n_components=None``.
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
kernel = rk.Gaussian(lengthscale="median")

# %%
# Accuracy
# --------
# Three seeds for each number of features.
n_components = [30, 100, 300, 1000, 3000]
seeds = range(3)


def test_error(D, seed=0):
    model = rk.KernelRidgeClassifier(
        kernel, alpha=1e-2, n_components=D, random_state=seed
    )
    start = perf_counter()
    model.fit(X_train, y_train)
    return 100 * (1 - model.score(X_test, y_test)), perf_counter() - start


exact, exact_seconds = test_error(None)
runs = np.array([[test_error(D, seed) for seed in seeds] for D in n_components])
errors, seconds = runs[..., 0], runs[..., 1]
for D, row, cost in zip(n_components, errors, seconds, strict=True):
    print(f"D = {D:5d}: {row.mean():5.2f} ± {row.std():.2f} %, {cost.mean():.3f} s")
print(f"exact    : {exact:5.2f} %, {exact_seconds:.3f} s")

# %%
# What the kernel itself says
# ---------------------------
# :func:`randkern.suggest_n_components` needs no labels and fits nothing: it returns the
# number of features at which the Gram matrix has a given relative error.
suggested = rk.suggest_n_components(
    kernel.resolve(X_train, random_state=0), X_train, relative_error=0.05
)
print("suggested for a 5 % error of the Gram matrix:", suggested)

figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
axes.errorbar(
    n_components,
    errors.mean(axis=1),
    errors.std(axis=1),
    fmt="o-",
    capsize=3,
    label="random features, mean ± standard deviation of 3 seeds",
)
axes.axhline(exact, color="black", linestyle="--", label="exact kernel")
axes.axvline(
    int(suggested), color="grey", linestyle=":", label="Gram matrix within 5 %"
)
axes.set_xscale("log")
axes.set_xlabel("number of features D")
axes.set_ylabel("test error (%)")
axes.set_title("Digits, Gaussian kernel: features against the exact kernel")
axes.grid(alpha=0.3, which="both")
axes.legend()
plt.show()
