r"""
Kernels of convolutional networks
=================================

A skeleton composes kernels as the layers of a network compose functions. This example
compares a convolutional and a fully connected skeleton on the digits, with random
features and with the exact kernel.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import randkern as rk
from randkern import skeletons

X, y = load_digits(return_X_y=True)
X = skeletons.PixelsToAngles(low=0, high=16).fit_transform(X)
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=0.4, random_state=0, stratify=y
)

# %%
# Two skeletons
# -------------
# A node averages the kernels below it; pixels lie on circles.
deep = skeletons.convolutional(
    (8, 8), [skeletons.Conv(3), skeletons.Conv(3), skeletons.Dense()]
)
shallow = skeletons.fully_connected(64)
axes = deep.plot(max_nodes=32)
axes.set_title("A convolutional skeleton, at most 32 nodes per layer")
print(f"mean number of pixels in a feature: {deep.complexity():.0f}")

# %%
# Error of the kernel
# -------------------
# Merging equal draws and adding the constant feature exactly (the default), compared
# with independent draws.
exact = deep.kernel(X_test[:100])
n_components = [100, 300, 1000, 3000, 10_000]
figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
for label, options in {
    "independent draws": {"deduplicate": False, "constant": "sampled"},
    "merged, constant apart": {},
}.items():
    errors = []
    for D in n_components:
        features = rk.RandomFeatures(
            rk.Compositional(deep, **options), D, random_state=0
        )
        Z = features.fit_transform(X_test[:100])
        errors.append(np.abs(Z @ Z.T - exact).mean())
    axes.loglog(n_components, errors, "o-", label=label)
axes.set(xlabel="number of features", ylabel="mean error of the kernel")
axes.set_title("The convolutional kernel of digits")
axes.legend()
plt.show()

# %%
# Error on test digits
# --------------------
figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
for colour, (label, skeleton) in enumerate({"deep": deep, "shallow": shallow}.items()):
    kernel = rk.Compositional(skeleton)

    def test_error(D, kernel=kernel):
        model = rk.KernelRidgeClassifier(
            kernel, alpha=1e-2, n_components=D, random_state=0
        )
        return 100 * (1 - model.fit(X_train, y_train).score(X_test, y_test))

    axes.semilogx(
        n_components[:3],
        [test_error(D) for D in n_components[:3]],
        "o-",
        color=f"C{colour}",
        label=label,
    )
    axes.axhline(test_error(None), color=f"C{colour}", linestyle=":")
axes.set(xlabel="number of features", ylabel="test error (%)")
axes.set_title("Convolutional and fully connected")
axes.legend(title="dotted: exact kernel")
plt.show()
