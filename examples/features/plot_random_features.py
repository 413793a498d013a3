r"""
Random features in pictures
===========================

A stationary kernel is a mean over waves, :math:`K(x - y) = \mathbb E[\cos\omega(x -
y)]`, the frequencies :math:`\omega` being drawn from its spectral density (Bochner's
theorem). Random features are a sample of these waves.
"""

import matplotlib.pyplot as plt
import numpy as np

import randkern as rk

# %%
# Few waves, and many
# -------------------
# With two features per wave, its cosine and its sine, :math:`\phi(x)\cdot\phi(0)`
# is the mean of the cosines that were drawn.
x = np.linspace(-5, 5, 400)[:, None]
origin = np.zeros((1, 1))
kernel = rk.Gaussian(lengthscale=1.0)
figure, panels = plt.subplots(
    1, 4, figsize=(12, 2.9), sharex=True, sharey=True, layout="constrained"
)
features = rk.RandomFeatures(kernel, 10, projection="dense", random_state=3)
waves = np.sqrt(5) * features.fit(x).transform(x)[:, ::2]
panels[0].plot(x, waves, linewidth=0.9)
panels[0].set_title("five waves")
for axes, D in zip(panels[1:], (10, 100, 1_000), strict=True):
    for seed in range(5):
        features = rk.RandomFeatures(kernel, D, projection="dense", random_state=seed)
        features.fit(x)
        values = features.transform(x) @ features.transform(origin).T
        axes.plot(x, values, color="tab:blue", linewidth=0.8, alpha=0.7)
    axes.plot(x, kernel(x, origin), color="black", linewidth=1.2)
    axes.set_title(f"{D:,} features, five draws")
for axes in panels:
    axes.set_xlabel("x")
plt.show()

# %%
# A kernel is a distribution of frequencies
# -----------------------------------------
# The smoother the kernel, the lighter the tails of its spectral density. The
# lengthscale divides the frequencies.
kernels = {
    "Gaussian": rk.Gaussian(),
    "Matérn, ν = 3/2": rk.Matern(nu=1.5),
    "Laplacian": rk.Laplacian(),
    "Cauchy": rk.Cauchy(),
}
figure, panels = plt.subplots(1, 3, figsize=(12, 3.2), layout="constrained")
short = np.linspace(0, 4, 200)[:, None]
line = np.linspace(0, 20, 400)[:, None]
for number, (name, kernel) in enumerate(kernels.items()):
    panels[0].plot(short, kernel(short, origin), label=name)
    # The spectral density is the Fourier transform of the kernel.
    frequencies = np.linspace(0, 5, 200)
    density = np.trapezoid(
        kernel(line, origin).T * np.cos(frequencies[:, None] * line[:, 0]), line[:, 0]
    )
    panels[1].plot(frequencies, density / np.pi)
    draw = rk.RandomFeatures(kernel, 100, projection="dense", random_state=1)
    weights = np.random.default_rng(1).normal(size=100)
    panels[2].plot(x, draw.fit(x).transform(x) @ weights - 3 * number)
panels[0].set(title="kernel", xlabel="distance")
panels[0].legend(fontsize=8)
panels[1].set(title="distribution of the frequencies", xlabel="ω")
panels[2].set(title="features times normal weights", xlabel="x")
panels[2].set_yticks([])
plt.show()
