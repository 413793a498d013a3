r"""
Margins in the space of features
================================

Hard and soft margins of a support vector machine on 300 random features of a Gaussian
kernel, between wines of two cultivars that differ in colour and in proline. The solid
line is the decision boundary, the dashed lines are the margins.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

import randkern as rk

wine = load_wine(as_frame=True)
rows = wine.target != 2
X = StandardScaler().fit_transform(wine.data[rows][["color_intensity", "proline"]])
y = wine.target_names[wine.target[rows]]
x1, x2 = np.meshgrid(np.linspace(-2, 3.2, 200), np.linspace(-2, 3.2, 200))
grid = np.column_stack([x1.ravel(), x2.ravel()])

figure, axes = plt.subplots(
    1, 3, figsize=(11, 3.6), sharex=True, sharey=True, layout="constrained"
)
for axis, C in zip(axes, (1.0, 100.0, np.inf), strict=True):
    model = rk.KernelSVC(rk.Gaussian(1.2), C, 300, random_state=0).fit(X, y)
    values = model.decision_function(grid).reshape(x1.shape)
    axis.contour(
        x1, x2, values, levels=[-1, 0, 1], linestyles=["--", "-", "--"], colors="grey"
    )
    for name, colour in zip(model.classes_, ("tab:blue", "tab:red"), strict=True):
        axis.scatter(*X[y == name].T, s=8, color=colour, label=name)
    axis.scatter(*X[model.support_].T, s=40, facecolors="none", edgecolors="black")
    axis.set_title(f"C = {C:g}: {len(model.support_)} support vectors")
    axis.set_xlabel("colour (standardised)")
    print(f"C = {C:g}: margin {model.margin_[0]:.3f}, gap {model.duality_gap_[0]:.1e}")
axes[0].set_ylabel("proline (standardised)")
axes[0].legend()
plt.show()
