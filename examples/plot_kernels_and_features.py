r"""
Gram error against the number of features
=========================================

Every kernel of the library can draw random features :math:`\phi` of itself, with
:math:`\mathbb E[\phi(x)\cdot\phi(y)] = K(x, y)`. How close is
:math:`\phi(x)\cdot\phi(y)` for a given number of features :math:`D`? The closed-form
variance says it beforehand, and a few draws confirm it.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import randkern as rk

X = load_digits().data[:300] / 16
off_diagonal = ~np.eye(len(X), dtype=bool)

kernels = {
    "Gaussian": rk.Gaussian("median"),
    "Laplacian (L1)": rk.Laplacian("median"),
    "Matérn, ν = 3/2": rk.Matern(nu=1.5, lengthscale="median"),
    "optical, degree 2": rk.Optical(degree=2),
    "optical, degree 4": rk.Optical(degree=4),
}

# %%
# The error is the relative Frobenius norm over pairs of different rows: one number
# for a whole Gram matrix. Markers are the mean over five draws; lines are what the
# variance :math:`\mathrm{Var}[\phi(x)\cdot\phi(y)]` predicts.
n_components = np.array([10, 30, 100, 300, 1000, 3000])
grid = np.geomspace(10, 3000, 30).astype(int)
markers = dict(zip(kernels, "os^Dv", strict=True))


def relative_error(estimate, exact):
    difference = (estimate - exact)[off_diagonal]
    return np.linalg.norm(difference) / np.linalg.norm(exact[off_diagonal])


def predicted_error(kernel, exact, D):
    variance = kernel.feature_variance(X, n_components=int(D))
    return np.sqrt(variance[off_diagonal].sum() / (exact[off_diagonal] ** 2).sum())


figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
for name, kernel in kernels.items():
    kernel = kernel.resolve(X, random_state=0)
    exact = kernel(X)
    errors = []
    for D in n_components:
        draws = (
            rk.RandomFeatures(kernel, int(D), random_state=seed).fit_transform(X)
            for seed in range(5)
        )
        errors.append(np.mean([relative_error(Z @ Z.T, exact) for Z in draws]))
    (line,) = axes.loglog(grid, [predicted_error(kernel, exact, D) for D in grid])
    axes.loglog(n_components, errors, markers[name], color=line.get_color(), label=name)
axes.set_xlabel("number of features D")
axes.set_ylabel("relative error of the Gram matrix")
axes.set_title("Random features of the digits: error falls as 1/√D")
axes.grid(alpha=0.3, which="both")
axes.legend()
plt.show()

# %%
# All fall as :math:`1/\sqrt D`; the kernels differ by a factor that the variance
# knows. An optical kernel of higher degree starts further up: the distribution of
# :math:`|u\cdot x|^m` has a heavier tail.
#
# Two feature maps
# ----------------
# A stationary kernel has two real maps. Pairs of cosine and sine have a variance of
# :math:`(1 + K(2\tau) - 2K^2)/D`, cosines with a random phase one of
# :math:`(1 + K(2\tau)/2 - K^2)/D`. Near the diagonal, where :math:`K` is close to
# one, pairs are almost exact.
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
