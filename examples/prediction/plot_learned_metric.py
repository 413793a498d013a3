"""
A metric learned from the labels
================================

Where few of many columns matter, a kernel with one lengthscale sees mostly noise.
``MetricLearner`` finds the columns, or the directions, on which the target depends, by
the average gradient of fitted models, and any model takes the rows that it transforms.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

import randkern as rk

# %%
# Five columns matter, 25 do not
# ------------------------------
X, y = make_friedman1(2_000, n_features=30, noise=0.5, random_state=0)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
plain = rk.KernelRidgeRegressorCV(n_components=None).fit(X_train, y_train)
learner = rk.MetricLearner(n_components=500, metric="diagonal", random_state=0)
learned = make_pipeline(learner, rk.KernelRidgeRegressorCV(n_components=None))
learned.fit(X_train, y_train)
print(f"one lengthscale: R² = {plain.score(X_test, y_test):.3f}")
print(f"learned metric:  R² = {learned.score(X_test, y_test):.3f}")

figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
shares = learner.feature_importances_
colours = np.where(np.arange(30) < 5, "tab:blue", "0.7")
axes.bar(np.arange(30), 100 * shares, color=colours)
axes.set_title("Friedman's function: the first five columns matter")
axes.set_xlabel("column")
axes.set_ylabel("importance (%)")
plt.show()

# %%
# A direction, not a column
# -------------------------
# The target depends on one sum of all columns: the full metric finds it.
rng = np.random.default_rng(0)
X = rng.normal(size=(1_000, 10))
direction = rng.normal(size=10) / np.sqrt(10)
y = np.tanh(3 * X @ direction) + 0.1 * rng.normal(size=1_000)
learner = rk.MetricLearner(n_components=500, metric="full", random_state=0).fit(X, y)
values, vectors = np.linalg.eigh(learner.components_.T @ learner.components_)
angle = abs(vectors[:, -1] @ direction) / np.linalg.norm(direction)
figure, panels = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
panels[0].bar(np.arange(10), values[::-1] / values.sum())
panels[0].set_title("eigenvalues of the learned metric")
panels[1].plot(X @ vectors[:, -1], y, ".", markersize=3)
panels[1].set_title(f"along the first (cosine with the truth: {angle:.3f})")
plt.show()
