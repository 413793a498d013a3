"""From a kernel to the plan of its random features."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from randkern._random import Stream
from randkern._validation import Rows, TableEncoder
from randkern.backend.namespace import ops_of
from randkern.kernels._base import Kernel, Leaf, Term, check_finite_diagonal
from randkern.kernels.compositional import Compositional
from randkern.kernels.default import default_kernel
from randkern.kernels.discrete import Categorical, Linear
from randkern.plan import Factor, Group, Plan
from randkern.projections import (
    Identity,
    QuasiMonteCarlo,
    Roots,
    make_projection,
)

__all__ = [
    "TermVariance",
    "allot",
    "draw_plan",
    "largest_width",
    "mean_diagonals",
    "resolve_kernel",
    "variance",
]

Fourier = Literal["pair", "offset"]


def mean_diagonals(
    terms: list[Term], X: Rows, sample_weight: np.ndarray | None
) -> np.ndarray:
    """Return the (weighted) mean of k(x, x) over the rows of X, a term each."""
    diagonals = [term.diag(X) for term in terms]
    for diagonal in diagonals:
        check_finite_diagonal(diagonal, X.dtype)
    return np.array([ops_of(d).average(d, sample_weight) for d in diagonals])


def resolve_kernel(
    kernel: Kernel | None,
    X: Rows,
    sample_weight: np.ndarray | None,
    stream: Stream,
    names: Any = None,
    encoder: TableEncoder | None = None,
) -> Kernel:
    """Return the kernel with numbers for all that depends on data.

    None stands for ``Gaussian(lengthscale="scale")``. `names` are those of
    the columns, `encoder` what made numbers of a table's categories.
    """
    if kernel is None:
        kernel = default_kernel()
    if not isinstance(kernel, Kernel):
        raise ValueError(
            f"kernel must be a kernel object or None, got {kernel!r}; use for "
            "instance randkern.Gaussian(lengthscale='scale')."
        )
    names = None if names is None else list(names)
    return kernel._resolve(X, sample_weight, stream, names, encoder)


def largest_width(terms: list[Term], n_features: int) -> int | None:
    """Return the most columns that a kernel's features can have, None: any."""
    widths = [_exact_width(term, n_features) for term in terms]
    return None if None in widths else sum(width or 0 for width in widths)


def allot(
    terms: list[Term],
    n_components: int,
    n_features: int,
    diagonals: np.ndarray,
) -> list[int]:
    """Share out columns in proportion to `diagonals`, by largest remainder.

    Every term gets at least one column, and a dot product of d columns no
    more than d: what it leaves goes to the others.
    """
    n_terms = len(terms)
    if n_components < n_terms:
        raise ValueError(
            f"n_components={n_components} is fewer than the {n_terms} terms of the "
            f"kernel; use at least {n_terms}."
        )
    caps = np.array([_exact_width(term, n_features) or n_components for term in terms])
    if caps.sum() < n_components:
        raise ValueError(
            f"the linear kernel of {n_features} columns has exactly {caps.sum()} "
            f"features, got n_components={n_components}; use at most {caps.sum()}."
        )
    shares = np.asarray(diagonals, dtype=float)
    shares = shares / shares.max() if shares.max() > 0 else np.ones(n_terms)
    widths = np.ones(n_terms, dtype=int)
    open_terms = np.ones(n_terms, dtype=bool)
    # Terms that their cap or the minimum binds are settled first.
    while True:
        left = n_components - widths[~open_terms].sum()
        total = shares[open_terms].sum()
        part = shares / total if total > 0 else open_terms / open_terms.sum()
        ideal = np.where(open_terms, left * part, widths)
        over = open_terms & (ideal > caps)
        under = open_terms & (ideal < 1)
        bound = over if over.any() else under
        if not bound.any():
            break
        widths[bound] = np.where(over, caps, 1)[bound]
        open_terms &= ~bound
        if not open_terms.any():
            break
    widths[open_terms] = np.floor(ideal[open_terms]).astype(int)
    remainder = np.where(open_terms, ideal - widths, -1.0)
    for index in np.argsort(-remainder, kind="stable"):
        if widths.sum() == n_components:
            break
        widths[index] += widths[index] < caps[index]
    return [int(width) for width in widths]


def _exact_width(term: Term, n_features: int) -> int | None:
    """Return the width of a dot product's exact features, None for other terms."""
    if len(term.leaves) == 1 and isinstance(term.leaves[0], Linear):
        return len(term.leaves[0]._selected(n_features))
    return None


def _weighs_itself(term: Term, width: int, fourier: Fourier) -> bool:
    """Tell whether the features of a term are columns with weights of their own."""
    leaf = term.leaves[0]
    return (
        len(term.leaves) == 1
        and isinstance(leaf, Compositional)
        and fourier == "pair"
        and leaf.weighs_columns(width)
    )


def draw_plan(
    kernel: Kernel,
    n_components: int,
    n_features: int,
    diagonals: np.ndarray,
    stream: Stream,
    *,
    projection: str = "auto",
    fourier: Fourier = "pair",
    centered: bool = False,
) -> Plan:
    """Return the plan of `n_components` features of a resolved kernel.

    Parameters
    ----------
    diagonals : ndarray
        The mean diagonal of every term, from :func:`mean_diagonals`.
    """
    terms = kernel.terms()
    widths = allot(terms, n_components, n_features, diagonals)
    groups: list[Group] = []
    start = 0
    any_centered = False
    for index, (term, width) in enumerate(zip(terms, widths, strict=True)):
        builder = _TermBuilder(
            term, n_features, stream.child("term", index), projection, fourier
        )
        can_center = all(leaf.role == "modulus" for leaf in term.leaves)
        any_centered |= can_center
        groups += builder.groups(start, start + width, centered and can_center)
        start += width
    if centered and not any_centered:
        raise ValueError(
            f"centered=True subtracts the mean of optical features, but {kernel} has "
            "no optical term; use centered=False."
        )
    return Plan(tuple(groups), n_features)


class _TermBuilder:
    """Builds the groups of one term of a kernel."""

    def __init__(
        self,
        term: Term,
        n_features: int,
        stream: Stream,
        projection: str,
        fourier: Fourier,
    ):
        self.term = term
        self.n_features = n_features
        self.stream = stream
        self.projection = projection
        self.fourier = fourier

    def groups(self, start: int, stop: int, centered: bool) -> list[Group]:
        width = stop - start
        exact = _exact_width(self.term, self.n_features)
        if exact is not None:
            return [self._linear(start, stop, exact)]
        weighted = self._weighted(start, stop)
        if weighted is not None:
            return [weighted]
        offsets = self.stream.child("offsets")
        scale = self.term.weight
        if any(leaf.role in ("phase", "polar") for leaf in self.term.leaves):
            n_draws = (width + 1) // 2 if self.fourier == "pair" else width
            factors = self._factors(n_draws)
            weight = math.sqrt(2 * scale / width)
            return [Group(factors, start, stop, weight, self.fourier, offsets)]
        if centered and width > 1:
            factors = self._factors(width - 1)
            weight = math.sqrt(scale / (width - 1))
            mean = Group(factors, start, start + 1, math.sqrt(scale), "mean")
            return [mean, Group(factors, start + 1, stop, weight, "centered")]
        weight = math.sqrt(scale / width)
        return [Group(self._factors(width), start, stop, weight, "amplitude")]

    def _factors(self, n_draws: int) -> tuple[Factor, ...]:
        factors = []
        dimension = 0
        for index, leaf in enumerate(self.term.leaves):
            factors.append(self._factor(leaf, n_draws, index, dimension))
            width = factors[-1].inputs.width
            if not isinstance(leaf, Compositional):
                dimension += QuasiMonteCarlo.dimensions(leaf.law(), width)
        return tuple(factors)

    def _factor(self, leaf: Leaf, n_draws: int, index: int, dimension: int) -> Factor:
        inputs = leaf.inputs(self.n_features)
        law = leaf.law()
        stream = self.stream.child("factor", index)
        projection: Any
        if isinstance(leaf, Categorical):
            projection = Roots(stream, n_draws, inputs.width, law, sizes=leaf.sizes())
        elif isinstance(leaf, Compositional):
            projection = leaf.projection(stream, n_draws)
        else:
            if self.projection == "qmc":
                stream = self.stream.child("sequence")
            projection = make_projection(
                self.projection,
                stream,
                n_draws,
                inputs.width,
                law,
                leaf,
                dimension,
            )
        power = float(getattr(leaf, "degree", 1.0))
        return Factor(leaf.role, projection, inputs, power)

    def _weighted(self, start: int, stop: int) -> Group | None:
        """Return columns that weigh themselves, if the term is one kernel of such."""
        leaf = self.term.leaves[0]
        if not _weighs_itself(self.term, stop - start, self.fourier):
            return None
        assert isinstance(leaf, Compositional)
        stream = self.stream.child("factor", 0)
        projection = leaf.weighted_columns(stream, stop - start)
        factor = Factor(leaf.role, projection, leaf.inputs(self.n_features))
        return Group((factor,), start, stop, math.sqrt(self.term.weight), "weighted")

    def _linear(self, start: int, stop: int, exact: int) -> Group:
        """Return exact features, or an orthogonal projection to fewer columns."""
        (leaf,) = self.term.leaves
        width = stop - start
        stream = self.stream.child("factor", 0)
        inputs = leaf.inputs(self.n_features)
        projection: Any
        if width == exact:
            projection = Identity(stream, width, inputs.width, leaf.law())
        else:
            projection = make_projection(
                "orthogonal", stream, width, inputs.width, leaf.law(), leaf
            )
        weight = math.sqrt(self.term.weight / width)
        factor = Factor("signed", projection, inputs)
        return Group((factor,), start, stop, weight, "amplitude")


def variance(
    kernel: Kernel, X: Rows, Y: Rows, n_components: int, fourier: Fourier
) -> np.ndarray:
    """Return Var[φ(x)·φ(y)] of `n_components` independent draws, (n, m)."""
    terms = kernel.terms()
    diagonals = mean_diagonals(terms, X, None)
    widths = allot(terms, n_components, X.shape[1], diagonals)
    total = np.zeros((X.shape[0], Y.shape[0]))
    for term, width in zip(terms, widths, strict=True):
        moments = TermVariance.of(term, X, Y, fourier)
        total += moments.combine(width, moments.matrices)
    return total


@dataclass(frozen=True)
class TermVariance:
    """The variance of a term as Σ_k c_k(D) M_k: only the c_k depend on D."""

    matrices: tuple[np.ndarray, ...]
    factors: Callable[[int], tuple[float, ...]]

    def combine(self, width: int, values: Iterable[Any]) -> Any:
        """Return Σ_k c_k(D) v_k; where c_k is 0, v_k may be infinite."""
        pairs = zip(self.factors(width), values, strict=True)
        return sum(factor * value for factor, value in pairs if factor)

    @classmethod
    def of(cls, term: Term, X: Rows, Y: Rows, fourier: Fourier) -> TermVariance:
        exact = _exact_width(term, X.shape[1])
        if exact is not None:
            return cls._linear(term, X, Y, exact)
        amplitude: Any = term.weight**2
        double: Any = 1.0
        square: Any = term.weight**2
        for leaf in term.leaves:
            amplitude = amplitude * leaf.squared_amplitude(X, Y)
            double = double * leaf.doubled_phase(X, Y)
            square = square * leaf._gram(X, Y) ** 2
        if not any(leaf.role in ("phase", "polar") for leaf in term.leaves):
            plain = cls((amplitude - square,), lambda width: (1 / width,))
            return plain._weighted(term, X, Y, (amplitude,), fourier)
        pair = amplitude * (1 + double)  # of two columns, times D
        offset = amplitude * (1 + double / 2)
        if fourier == "offset":
            return cls((offset - square,), lambda width: (1 / width,))

        def factors(width: int) -> tuple[float, ...]:
            odd = width % 2
            return (width - odd) / width**2, odd / width**2

        plain = cls((pair - 2 * square, offset - square), factors)
        return plain._weighted(term, X, Y, (pair / 2, offset), fourier)

    def _weighted(
        self, term: Term, X: Rows, Y: Rows, moments: tuple[Any, ...], fourier: Fourier
    ) -> TermVariance:
        """Return the same but for columns that weigh themselves; else itself.

        With the constant feature's probability P apart, a draw that is not constant has
        the mean (K − P)/(1 − P) and the second moment (S − cP)/(1 − P), where c = 1 is
        that of the constant (3/2 in offset form), and weighs 1 − P. Merging equal draws
        lowers the variance further.
        """
        leaf = term.leaves[0]
        if not isinstance(leaf, Compositional) or len(term.leaves) > 1:
            return self
        share = leaf.analytic_share() * term.weight
        value = term.weight * leaf._gram(X, Y)
        apart = tuple(
            (term.weight - share) * (moment / term.weight - c * share)
            - (value - share) ** 2
            for moment, c in zip(moments, (1.0, 1.5), strict=False)
        )

        def factors(width: int) -> tuple[float, ...]:
            none = (0.0,) * len(moments)
            if not _weighs_itself(term, width, fourier):
                return *self.factors(width), *none
            left = width - leaf.constant_columns()
            if len(moments) == 1:
                return *none, 1 / left
            pairs, odd = divmod(left, 2)
            return *none, pairs / (pairs + odd) ** 2, odd / (pairs + odd) ** 2

        return TermVariance((*self.matrices, *apart), factors)

    @classmethod
    def _linear(cls, term: Term, X: Rows, Y: Rows, d: int) -> TermVariance:
        """Return the variance of (d/D)·x·Py, P a Haar random projector of rank D.

        E[P_ij P_kl] = a δ_ij δ_kl + b (δ_ik δ_jl + δ_il δ_jk), with a and b from
        E[(tr P)²] = D² and E[tr P²] = D.
        """
        (leaf,) = term.leaves
        dots = term.weight**2 * leaf._gram(X, Y) ** 2
        norms = term.weight**2 * np.outer(leaf._diag(X), leaf._diag(Y))

        def factors(width: int) -> tuple[float, ...]:
            if width == d:
                return 0.0, 0.0
            b = width * (d - width) / (d * (d**2 + d - 2))
            a = (width**2 - 2 * b * d) / d**2
            scale = (d / width) ** 2
            return scale * (a + b) - 1, scale * b

        return cls((dots, norms), factors)
