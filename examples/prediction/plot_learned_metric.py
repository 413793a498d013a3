"""
A metric learned from labels
============================

If only a few of many columns matter, a kernel with one lengthscale sees mostly noise.
``MetricLearner`` finds the columns, or the directions, on which the target depends,
from the average gradients of fitted models; any model can use the rows that it
transforms.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import randkern as rk

# %%
# Irrelevant columns
# ------------------
# Twenty columns are added to the ten of the diabetes study: its own, shuffled, twice.
X, y = load_diabetes(return_X_y=True, as_frame=True)
names, X = list(X.columns), X.to_numpy()
rng = np.random.default_rng(0)
X = np.hstack([X, rng.permuted(X, axis=0), rng.permuted(X, axis=0)])
learner = rk.MetricLearner(n_components=500, metric="diagonal", random_state=0)
plain = rk.KernelRidgeRegressorCV(n_components=None)
for name, model in (
    ("one lengthscale", plain),
    ("learned metric", make_pipeline(learner, plain)),
):
    print(f"{name}: R² = {cross_val_score(model, X, y, cv=3).mean():.3f}")

figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
shares = learner.fit(X, y).feature_importances_
axes.bar(np.arange(10), 100 * shares[:10])
axes.bar(np.arange(10, 30), 100 * shares[10:], color="0.7")
axes.set_xticks(np.arange(30), [*names, *["shuffled"] * 20], rotation=90, fontsize=8)
axes.set_title("Progression of diabetes: what it depends on")
axes.set_ylabel("importance (%)")
plt.show()

# %%
# Directions, not columns
# -----------------------
# Thirty measurements of the cells of a tumour, most of which are redundant: the full
# metric rotates them, and half of the patients show which directions matter for the
# others.
X, y = load_breast_cancer(return_X_y=True)
X = StandardScaler().fit_transform(X)
seen, new = slice(None, None, 2), slice(1, None, 2)
learner = rk.MetricLearner(n_components=500, metric="full", random_state=0)
learner.fit(X[seen], y[seen])
_, sizes, directions = np.linalg.svd(learner.components_)
figure, panels = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
panels[0].bar(np.arange(1, 31), 100 * sizes**2 / (sizes**2).sum())
panels[0].set(title="the metric's eigenvalues", xlabel="direction", ylabel="share (%)")
along = X[new] @ directions[:2].T
for label, name in enumerate(("malignant", "benign")):
    panels[1].plot(*along[y[new] == label].T, ".", markersize=4, label=name)
panels[1].set(title="the other half", xlabel="direction 1", ylabel="direction 2")
panels[1].legend()
plt.show()
