r"""
An optical processing unit
==========================

Micromirrors show the bits of a row, a scattering medium mixes their light with a
complex Gaussian matrix, and a camera counts :math:`|Ux|^2`.
:class:`randkern.optics.SimulatedOPU` simulates all three, including the limits of an
eight-bit camera. How much does this affect the kernel?
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import randkern as rk
from randkern.optics import SimulatedOPU, ThresholdBinarizer

X = load_digits().data
bits = ThresholdBinarizer(threshold=8).fit_transform(X)
device = SimulatedOPU(20_000, random_state=0).calibrate(bits)

# %%
# One row, twice
# --------------
# Every pixel of the image becomes a macro-pixel of mirrors. Two reads of the same row
# differ by the noise of the camera, about one count.
counts = device.transform(bits[[0, 0]])

figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
axes[0].imshow(device.layout.frame(bits[0]), cmap="gray", interpolation="nearest")
axes[0].set_title(f"mirrors, {device.layout.mirrors_per_bit:,} a bit")
axes[0].axis("off")
speckle = axes[1].imshow(counts[0, :10_000].reshape(100, 100), cmap="inferno", vmax=60)
axes[1].set_title("counts of 10,000 outputs")
axes[1].axis("off")
figure.colorbar(speckle, ax=axes[1])
values = np.arange(80)
share = np.bincount(counts[0], minlength=80)[:80] / device.n_components
axes[2].semilogy(values, share, ".", label="one row")
mean = device.gain * bits[0].sum()
axes[2].semilogy(
    values, np.exp(-values / mean) / mean, label="exponential distribution"
)
axes[2].set_xlabel("count")
axes[2].set_ylabel("share of outputs")
axes[2].set_title("distribution of the counts")
axes[2].legend()
plt.show()

difference = counts[0].astype(int) - counts[1]
print(f"standard deviation between reads: {difference.std() / np.sqrt(2):.2f} counts")

# %%
# The kernel
# ----------
# Products of calibrated features approximate :class:`randkern.Optical`, of any degree.
# The error is that of the same number of computed features: eight bits suffice here.
# Curves are medians over five devices, since one unusually bright output, raised to the
# power of the degree, may dominate all others.
rows = bits[:100].astype(float)
off_diagonal = ~np.eye(len(rows), dtype=bool)
n_components = [100, 300, 1000, 3000, 10_000]
seeds = range(5)

figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
for degree, color in ((2, "C0"), (4, "C1")):
    kernel = rk.Optical(degree)
    exact = kernel(rows)

    def error(Z, exact=exact):
        apart = (Z @ Z.T - exact)[off_diagonal]
        return np.linalg.norm(apart) / np.linalg.norm(exact[off_diagonal])

    computed, measured = [], []
    for D in n_components:
        maps = [rk.RandomFeatures(kernel, D, random_state=seed) for seed in seeds]
        computed.append(np.median([error(m.fit_transform(rows)) for m in maps]))
        devices = [SimulatedOPU(D, random_state=seed) for seed in seeds]
        maps = [rk.OpticalFeatures(device, degree) for device in devices]
        measured.append(np.median([error(m.fit_transform(bits[:100])) for m in maps]))
    axes.loglog(
        n_components, computed, "--", color=color, label=f"computed, m = {degree}"
    )
    axes.loglog(
        n_components, measured, "o-", color=color, label=f"device, m = {degree}"
    )
axes.set_xlabel("number of outputs D")
axes.set_ylabel("relative error of the Gram matrix")
axes.set_title("Digits as bits: products of features of different rows")
axes.grid(alpha=0.3, which="both")
axes.legend()
plt.show()
