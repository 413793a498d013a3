"""Hyperparameters of the optical experiments, and their origin."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import randkern
from randkern.backend.namespace import ops_of
from randkern.study.kernel_choices import capped, parse_kernel

from ..tables import at_edges
from .images import PIXEL_THRESHOLD, Images

_BIAS_MULTIPLES = (0.0, 1 / 4, 1.0, 4.0, 16.0)
_LENGTHSCALE_MULTIPLES = 2.0 ** np.arange(-3, 4)
# Relative to the mean of the kernel's diagonal, rounded to a power of ten.
_PENALTY_EXPONENTS = range(-6, 3)


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
    otherwise they are the best of a grid of seven
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
    origin = f"leave-one-out, {n_components:,} features of {len(rows):,} training rows"
    for kernel in wanted:
        known[kernel] = _best_setting(
            kernel, dataset.X_train, dataset.y_train, n_components, seed, origin
        )
    return {kernel: known[kernel] for kernel in kernels}


def _best_setting(
    label: str, X: np.ndarray, y: np.ndarray, n_components: int, seed: int, origin: str
) -> KernelSetting:
    """Return the setting of a grid with the fewest mistakes by leave-one-out."""
    choice = parse_kernel(label)
    values: list[Any] = [None]
    if choice.opens == "bias":
        mean_lit = float(X.sum(axis=1).mean())
        values = [*sorted({float(round(m * mean_lit)) for m in _BIAS_MULTIPLES})]
    elif choice.opens == "lengthscale":
        reference = choice.reference(X)
        values = [float(multiple) * reference for multiple in _LENGTHSCALE_MULTIPLES]
    unbiased = choice.build(0.0 if choice.opens == "bias" else choice.reference(X))
    decade = round(np.log10(float(np.mean(unbiased.diag(X)))))
    alphas = [float(f"1e{decade + exponent}") for exponent in _PENALTY_EXPONENTS]
    tried = []
    for value in values:
        kernel = choice.build(value)
        model = randkern.KernelRidgeClassifierCV(
            kernel,
            alphas=alphas,
            n_components=capped(n_components, kernel, X.shape[1]),
            scoring="accuracy",
            fit_intercept=True,
            random_state=seed,
        ).fit(X, y)
        scores = model.cv_results_["mean_test_score"]
        tried += [(score, a, value) for score, a in zip(scores, alphas, strict=True)]
    # Of equal scores, the largest penalty.
    _, alpha, best = max(tried, key=lambda setting: setting[:2])
    edges = at_edges({"alpha": alpha}, {"alpha": alphas})
    if choice.opens and best:  # a bias of 0 is no edge
        edges = at_edges({choice.opens: best}, {choice.opens: values}) + edges
    return KernelSetting(label, best, alpha, origin, tuple(edges))
