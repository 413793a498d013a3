"""Hyperparameters of the optical experiments, and their origin."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import randkern
from randkern.backend.namespace import ops_of
from randkern.study.kernel_choices import parse_kernel
from randkern.study.tune import tune

from .images import PIXEL_THRESHOLD, Images

_BIAS_MULTIPLES = (0.0, 1 / 4, 1.0, 4.0, 16.0)


@dataclass(frozen=True)
class KernelSetting:
    """A kernel with its hyperparameters.

    `value` is its lengthscale, or its bias, an integer, since a device shows it as lit
    bits. `at_edge` names hyperparameters chosen at the edge of the grid.
    """

    kernel: str
    value: float | None
    alpha: float
    origin: str
    at_edge: tuple[str, ...] = ()

    def build(self) -> Any:
        """Return the kernel."""
        return parse_kernel(self.kernel).build(self.value)

    def describe(self) -> dict[str, Any]:
        """Return the hyperparameters by name, and their origin."""
        named = parse_kernel(self.kernel).hyperparameters(self.value, self.alpha)
        return {**named, "origin": self.origin, "at_edge": list(self.at_edge)}


_PUBLISHED = "published, chosen at D = 10,000 on validation rows of Fashion-MNIST"
# Published features are multiplied by s: the penalty of the features themselves is
# α/s²; the entry appended to rows is the root of the bias.
_STORED = (
    KernelSetting("gaussian", 8 * 2**0.5, 0.1, _PUBLISHED),
    KernelSetting("optical:2", 16.0, 1e4, _PUBLISHED),
    KernelSetting("optical:4", 16.0, 1e10, _PUBLISHED),
    KernelSetting("optical:6", 64.0**2, 1e12, _PUBLISHED),
    KernelSetting("linear", None, 100.0, _PUBLISHED),
)


class DotBiasOptical(randkern.Optical):
    """The published exact kernel of even degree: only the dot product has the bias.

    With s = m/2, K(x, y) = Σ_i s!² C(s, i)² (‖x‖‖y‖)^{2(s − i)} (x·y + ν)^{2i}.
    """

    def _diag_selected(self, X: Any) -> Any:
        squared = ops_of(X).float64_squared_norms(X)
        return self._sum(squared**2, squared)

    def _tile(self, X: Any, Y: Any, same: bool) -> Any:
        squared = [ops_of(X).squared_norms(Z) for Z in (X, Y)]
        product = ops_of(X).precise_product(X, Y.T)
        return self._sum(squared[0][:, None] * squared[1], product)

    def _sum(self, norms: Any, product: Any) -> Any:
        """Return K from ‖x‖²‖y‖² and x·y."""
        s = int(self.degree) // 2
        dots = (product + self.bias) ** 2
        return sum(
            (math.factorial(s) * math.comb(s, i)) ** 2 * norms ** (s - i) * dots**i
            for i in range(s + 1)
        )


def optical_settings(
    images: Images, kernels: Sequence[str], *, seed: int = 0, quick: bool = False
) -> dict[str, KernelSetting]:
    """Return the hyperparameters of kernels on binarized images.

    They are the published ones for the full Fashion-MNIST with pixels above 10 lit;
    otherwise they are the best of a grid (:func:`randkern.study.tune.tune`) of seven
    lengthscales (⅛ to 8 times the data's scale) or five biases (0, ¼, 1, 4 and 16 mean
    squared norms), and nine decades of penalties, by leave-one-out with 10,000 features
    of 3,000 training rows (quick: 150 of 400).
    """
    known: dict[str, KernelSetting] = {}
    published = images.complete and images.threshold == PIXEL_THRESHOLD
    if published and images.name.startswith("fashion-mnist"):
        known = {s.kernel: s for s in _STORED}
    wanted = [kernel for kernel in kernels if kernel not in known]
    if not wanted:
        return {kernel: known[kernel] for kernel in kernels}
    # As many features as the original, and as many rows as minutes allow.
    n_components, n_rows = (150, 400) if quick else (10_000, 3000)
    rows = np.random.default_rng(seed).permutation(len(images.X_train))[:n_rows]
    dataset = images.dataset(rows)
    mean_lit = float(dataset.X_train.sum(axis=1).mean())
    result = tune(
        dataset,
        wanted,
        n_components=n_components,
        scales=[1.0],
        biases=sorted({float(round(share * mean_lit)) for share in _BIAS_MULTIPLES}),
        random_state=seed,
    )["best"]
    origin = f"leave-one-out, {n_components:,} features of {len(rows):,} training rows"
    for kernel in wanted:
        named = result[kernel]["hyperparameters"]
        value = named.get("lengthscale", named.get("bias"))
        edges = tuple(result[kernel]["at_edge"])
        known[kernel] = KernelSetting(kernel, value, named["alpha"], origin, edges)
    return {kernel: known[kernel] for kernel in kernels}
