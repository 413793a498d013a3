r"""
Gram error against the number of features
=========================================

Every kernel of the library can draw random features :math:`\phi` of itself, with
:math:`\mathbb E[\phi(x)\cdot\phi(y)] = K(x, y)`. How close is
:math:`\phi(x)\cdot\phi(y)` for a given number of features :math:`D`? The closed-form
variance predicts it, and a few draws confirm it.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import randkern as rk

X = load_digits().data[:200] / 16
off_diagonal = ~np.eye(len(X), dtype=bool)

kernels = {
    "Gaussian": rk.Gaussian("median"),
    "Laplacian (L1)": rk.Laplacian("median"),
    "Matérn, ν = 3/2": rk.Matern(nu=1.5, lengthscale="median"),
    "optical, degree 2": rk.Optical(degree=2),
    "optical, degree 4": rk.Optical(degree=4),
}

# %%
# The error is the relative Frobenius norm over pairs of different rows: one number per
# Gram matrix. Markers are the root mean square over six independent draws; lines are
# predicted by the variance of :math:`\phi(x)\cdot\phi(y)`.
n_components = [10, 30, 100, 300, 1000, 3000]
markers = dict(zip(kernels, "os^Dv", strict=True))


def squared_error(kernel, exact, D, seed):
    features = rk.RandomFeatures(kernel, D, projection="dense", random_state=seed)
    Z = features.fit_transform(X)
    return np.sum((Z @ Z.T - exact)[off_diagonal] ** 2)


figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
for name, kernel in kernels.items():
    kernel = kernel.resolve(X, random_state=0)
    exact = kernel(X)
    size = np.linalg.norm(exact[off_diagonal])
    measured, predicted = [], []
    for D in n_components:
        errors = [squared_error(kernel, exact, D, seed) for seed in range(6)]
        measured.append(np.sqrt(np.mean(errors)) / size)
        variance = kernel.feature_variance(X, n_components=D)
        predicted.append(np.sqrt(variance[off_diagonal].sum()) / size)
    (line,) = axes.loglog(n_components, predicted)
    axes.loglog(
        n_components, measured, markers[name], color=line.get_color(), label=name
    )
axes.set_xlabel("number of features D")
axes.set_ylabel("relative error of the Gram matrix")
axes.set_title("Random features of the digits: error falls as 1/√D")
axes.grid(alpha=0.3, which="both")
axes.legend()
plt.show()

# %%
# All errors fall as :math:`1/\sqrt D`; the kernels differ by a factor that the
# variance predicts. An optical kernel of higher degree starts higher: the distribution
# of :math:`|u\cdot x|^m` has a heavier tail, so its error also varies more between
# draws. (``projection="dense"`` draws the rows independently, as the formulas assume;
# the default couples them where it can, for a lower error.)
#
# Two feature maps
# ----------------
# A stationary kernel has two real maps. Pairs of cosine and sine have a variance of
# :math:`(1 + K(2\tau) - 2K^2)/D`, cosines with a random phase one of :math:`(1 +
# K(2\tau)/2 - K^2)/D`. Near the diagonal, where :math:`K` is close to one, pairs are
# almost exact.
distance = np.linspace(0, 4, 200)[:, None]
origin = np.zeros((1, 1))
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for fourier, style in (("pair", "-"), ("offset", "--")):
    variance = rk.Gaussian().feature_variance(
        distance, origin, n_components=1000, fourier=fourier
    )
    axes.plot(distance, np.sqrt(variance), style, label=f'fourier="{fourier}"')
axes.set_xlabel("distance / lengthscale")
axes.set_ylabel("standard deviation of φ(x)·φ(y)")
axes.set_title("Gaussian kernel, D = 1000")
axes.grid(alpha=0.3)
axes.legend()
plt.show()
