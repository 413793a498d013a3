"""
Active learning: which digits to label
======================================

Labels cost time. A model that has seen few of them can select the images about which
it is least certain, and ask for their labels. Each round takes the ten images with the
smallest difference between the probabilities of the two most likely classes.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import randkern as rk

X, y = load_digits(return_X_y=True)
X_pool, X_test, y_pool, y_test = train_test_split(
    X / 16, y, test_size=0.4, random_state=0, stratify=y
)
n_rounds, n_asked = 18, 10


# %%
# Each round fits a logistic regression on 300 features to the labels known so far.
def learn(active, seed):
    rng = np.random.default_rng(seed)
    known = rng.choice(len(X_pool), 20, replace=False)
    accuracies, asked = [], []
    for _ in range(n_rounds):
        model = rk.KernelLogistic(
            rk.Gaussian(2.0), C=10.0, n_components=300, tol=1e-3, random_state=0
        ).fit(X_pool[known], y_pool[known])
        accuracies.append(model.score(X_test, y_test))
        probabilities = np.sort(model.predict_proba(X_pool), axis=1)
        lead = probabilities[:, -1] - probabilities[:, -2]
        lead[known] = np.inf
        unknown = np.flatnonzero(np.isfinite(lead))
        chosen = np.argsort(lead) if active else rng.permutation(unknown)
        known = np.append(known, chosen[:n_asked])
        asked.append(chosen[:n_asked])
    return accuracies, asked


# %%
# Uncertain or random rows
# ------------------------
labels = 20 + n_asked * np.arange(n_rounds)
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for active, name in ((True, "least sure"), (False, "at random")):
    runs = [learn(active, seed) for seed in range(4)]
    errors = 100 * (1 - np.array([accuracies for accuracies, _ in runs]))
    mean, spread = errors.mean(axis=0), errors.std(axis=0)
    axes.plot(labels, mean, "o-", label=name)
    axes.fill_between(labels, mean - spread, mean + spread, alpha=0.2)
    if active:
        asked = np.concatenate(runs[0][1][-3:])
axes.set(xlabel="labels", ylabel="test error (%)", title="Digits: four runs each")
axes.set_yscale("log")
axes.set_yticks([2, 5, 10, 20, 50], [2, 5, 10, 20, 50])
axes.minorticks_off()
axes.legend()
plt.show()

# %%
# What it asks about
# ------------------
# The last thirty images, with their labels.
figure, panels = plt.subplots(3, 10, figsize=(9, 3.2), layout="constrained")
for axes, row in zip(panels.flat, asked, strict=True):
    axes.imshow(X_pool[row].reshape(8, 8), cmap="gray_r")
    axes.set_title(y_pool[row], fontsize=9)
    axes.axis("off")
plt.show()
