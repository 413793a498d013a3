r"""
Margins in the space of features
================================

Hard and soft margins of a support vector machine on 300 random features of a Gaussian
kernel. The solid line is where decisions change, the dashed ones the margins.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

import randkern as rk

X, y = make_moons(200, noise=0.15, random_state=0)
x1, x2 = np.meshgrid(np.linspace(-1.6, 2.6, 200), np.linspace(-1.2, 1.7, 200))
grid = np.column_stack([x1.ravel(), x2.ravel()])

figure, axes = plt.subplots(
    1, 3, figsize=(11, 3.4), sharex=True, sharey=True, layout="constrained"
)
for axis, C in zip(axes, (1.0, 100.0, np.inf), strict=True):
    model = rk.KernelSVC(rk.Gaussian(0.4), C, 300, random_state=0).fit(X, y)
    values = model.decision_function(grid).reshape(x1.shape)
    axis.contour(
        x1, x2, values, levels=[-1, 0, 1], linestyles=["--", "-", "--"], colors="grey"
    )
    axis.scatter(*X.T, c=y, s=8, cmap="coolwarm")
    axis.scatter(*X[model.support_].T, s=40, facecolors="none", edgecolors="black")
    axis.set_title(f"C = {C:g}: {len(model.support_)} support vectors")
    print(f"C = {C:g}: margin {model.margin_[0]:.3f}, gap {model.duality_gap_[0]:.1e}")
plt.show()
