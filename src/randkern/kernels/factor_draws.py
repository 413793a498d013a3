"""Features of the terms of a kernel: variances, widths, streams and derivatives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any, Literal

import numpy as np

from randkern._random import Stream
from randkern._validation import Rows
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks, rows_within
from randkern.plan import Factor, Group, Output, Plan, evaluate
from randkern.projections import Distribution, Projection, projection_class

Fourier = Literal["pair", "offset"]


@dataclass(frozen=True)
class TermVariance:
    """The variance of a term as Σ_k c_k(D) M_k, where only the c_k depend on D."""

    matrices: tuple[np.ndarray, ...]
    factors: Callable[[int], tuple[float, ...]]

    def combine(self, width: int, values: Iterable[Any]) -> Any:
        """Return Σ_k c_k(D) v_k; v_k may be infinite if c_k is 0."""
        pairs = zip(self.factors(width), values, strict=True)
        return sum(factor * value for factor, value in pairs if factor)

    @classmethod
    def of_amplitudes(cls, moment: Any, square: Any) -> TermVariance:
        """Return the variance of single columns of second moment E[A(x)²A(y)²]."""
        return cls((moment - square,), lambda width: (1 / width,))

    @classmethod
    def of_phases(
        cls, amplitude: Any, double: Any, square: Any, fourier: Fourier
    ) -> TermVariance:
        """Return the variance of cosines and sines; `double` is E[cos 2Δ]."""
        offset = amplitude * (1 + double / 2)
        if fourier == "offset":
            return cls.of_amplitudes(offset, square)
        pair = amplitude * (1 + double)  # for two columns, times D

        def factors(width: int) -> tuple[float, ...]:
            odd = width % 2
            return (width - odd) / width**2, odd / width**2

        return cls((pair - 2 * square, offset - square), factors)


def allot(
    n_components: int | Sequence[int],
    diagonals: np.ndarray,
    exact_widths: Sequence[int | None],
) -> list[int]:
    """Return the number of columns of every term of a kernel.

    Half of `n_components` is divided equally, the other half in proportion to the
    square roots of `diagonals`, the means of k(x, x) for every term; both by largest
    remainder. Every term gets at least one column, and at most its exact width
    (`exact_widths`; None: no limit); the surplus goes to the other terms. A sequence
    holds the numbers themselves.
    """
    n_terms = len(exact_widths)
    if not isinstance(n_components, (int, Integral)):
        return _checked_widths(n_components, exact_widths)
    if n_components < n_terms:
        raise ValueError(
            f"n_components={n_components} is fewer than the {n_terms} terms of the "
            f"kernel; use at least {n_terms}."
        )
    caps = np.array([n_components if cap is None else cap for cap in exact_widths])
    if caps.sum() < n_components:
        raise ValueError(
            f"the kernel has exactly {caps.sum()} features, got "
            f"n_components={n_components}; use at most {caps.sum()}."
        )
    # Shares by variance would minimise the error of the kernel. What is learned with
    # little noise needs all terms: a term that is a hundredth of the kernel may be all
    # of the signal that noise leaves.
    shares = np.asarray(diagonals, dtype=float)
    shares = np.sqrt(shares / shares.max()) if shares.max() > 0 else np.ones(n_terms)
    shares = shares / shares.sum() + 1 / n_terms
    widths = np.ones(n_terms, dtype=int)
    open_terms = np.ones(n_terms, dtype=bool)
    # Terms at their cap or at the minimum are settled first.
    while True:
        remaining = n_components - widths[~open_terms].sum()
        open_shares = shares / shares[open_terms].sum()
        ideal = np.where(open_terms, remaining * open_shares, widths)
        above_cap = open_terms & (ideal > caps)
        below_one = open_terms & (ideal < 1)
        settled = above_cap if above_cap.any() else below_one
        if not settled.any():
            break
        widths[settled] = np.where(above_cap, caps, 1)[settled]
        open_terms &= ~settled
        if not open_terms.any():
            break
    widths[open_terms] = np.floor(ideal[open_terms]).astype(int)
    remainder = np.where(open_terms, ideal - widths, -1.0)
    for index in np.argsort(-remainder, kind="stable"):
        if widths.sum() == n_components:
            break
        widths[index] += widths[index] < caps[index]
    return [int(width) for width in widths]


def _checked_widths(
    widths: Sequence[int], exact_widths: Sequence[int | None]
) -> list[int]:
    """Return the numbers of columns that the user chose for the terms."""
    if len(widths) != len(exact_widths):
        raise ValueError(
            f"n_components has {len(widths)} entries, but the kernel has "
            f"{len(exact_widths)} terms; pass one number per term (products of sums "
            "are expanded), or their total."
        )
    for index, (width, cap) in enumerate(zip(widths, exact_widths, strict=True)):
        if cap is not None and width > cap:
            raise ValueError(
                f"term {index} of the kernel has exactly {cap} features, got "
                f"n_components={list(widths)}; use at most {cap} for this term."
            )
    return list(widths)


class FactorDraws:
    """Draws independent projections, of a given name, for the factors of one term."""

    def __init__(self, stream: Stream, projection: str, fourier: Fourier):
        self.fourier = fourier
        self.offsets = stream.child("offsets")
        self._stream = stream
        self._name = projection
        self._n_factors = 0
        # The factors of a product share one low-discrepancy sequence.
        self._n_dimensions = 0
        self._has_one_sided = False

    def stream(self, dimensions: int = 0) -> Stream:
        """Return the stream of the next factor, for factors that draw by themselves.

        It reserves this many dimensions of the low-discrepancy sequence.
        """
        self._n_factors += 1
        self._n_dimensions += dimensions
        return self._stream.child("factor", self._n_factors - 1)

    def needs_signs(self) -> bool:
        """Return whether the next factor, of one-sided frequencies, needs random signs.

        Phases of factors add, but E[cos(a + b)] is E[cos a]·E[cos b] only if E[sin b]
        is 0. One factor of a product may be without signs, which are noise.
        """
        needed = self._has_one_sided
        self._has_one_sided = True
        return needed

    def project(
        self,
        distribution: Distribution,
        n_draws: int,
        width: int,
        owner: object,
        projection: str | None = None,
    ) -> Projection:
        """Return the projection of the next factor: `n_draws` rows."""
        name = self._name if projection is None else projection
        cls = projection_class(name, n_draws, width, distribution)
        first_dimension = self._n_dimensions
        stream = self.stream(distribution.dimensions(width))
        if cls.shares_sequence:
            stream = self._stream.child("sequence")
        return cls.create(stream, n_draws, width, distribution, owner, first_dimension)


_DRAWS = 4096
# Memory of the unit vectors that are projected at a time.
_UNIT_BYTES = 8 * 10**6


class _Turned(Group):
    """A group with its single cosines shifted by π/2, for derivatives."""

    def draw_offsets(self, start: int, stop: int, dtype: Any) -> np.ndarray:
        angles = super().draw_offsets(start, stop, np.float64)
        return (angles + np.pi / 2).astype(dtype)


@dataclass(frozen=True, eq=False)
class DrawSlopes:
    """Derivatives of Σ G∘Z in the phase and amplitude of every row and draw.

    Z are the features of a group for float64 rows X, G the derivatives in them.
    """

    group: Group
    X: Rows
    Z: np.ndarray
    G: np.ndarray

    @cached_property
    def phase(self) -> np.ndarray:
        """Σ G ∂z/∂p, shape (n, n_draws).

        The derivative of a cosine in its phase is minus the sine, which is the next
        column in a pair.
        """
        G, Z = self.G, self.Z
        even, odd, single = self._columns("pair", "offset")
        slopes = G[:, odd] * Z[:, even] - G[:, even] * Z[:, odd]
        group = self.group
        if single.start == single.stop:
            return slopes
        turned = _Turned(
            group.factors,
            0,
            group.width,
            group.weight,
            group.output,
            group.offsets,
        )
        sines = evaluate(Plan((turned,), self.X.shape[1]), self.X, single)
        return ops_of(Z).hstack([slopes, G[:, single] * sines])

    @cached_property
    def amplitude(self) -> np.ndarray:
        """Σ G ∂z/∂log A, shape (n, n_draws)."""
        products = self.G * self.Z
        even, odd, single = self._columns("pair", "offset", "amplitude")
        sums = products[:, even] + products[:, odd]
        return ops_of(self.Z).hstack([sums, products[:, single]])

    def _columns(self, *outputs: Output) -> tuple[slice, slice, slice]:
        """Return the columns of cosines in pairs, of their sines, and of single draws.

        Raise if the output of the group is not one of `outputs`.
        """
        width, output = self.group.width, self.group.output
        if output not in outputs:
            raise ValueError(
                f"the derivatives of {output!r} columns are not implemented; use a "
                "kernel whose features are cosines, or centered=False."
            )
        stop = 2 * (width // 2) if output == "pair" else 0
        return slice(0, stop, 2), slice(1, stop, 2), slice(stop, width)


def column_slopes(factor: Factor, X: Rows, slopes: np.ndarray) -> np.ndarray:
    """Return Σ_i Σ_r slopes_ir ω_rj x_ij for every column j of the factor's input."""
    X = factor.inputs.apply(X)
    ops = ops_of(X)
    d = X.shape[1]
    total = np.zeros(d)
    # Entries of ω are projections of unit vectors: a block of them at a time.
    for columns in row_blocks(d, rows_within(_UNIT_BYTES, 8 * d, at_least=16)):
        width = columns.stop - columns.start
        basis = ops.float64_zeros((width, d), X)
        basis[:, columns] = ops.algebra.identity(width, X)
        block = ops.float64_zeros(width, X)
        for draws in row_blocks(slopes.shape[1], _DRAWS):
            rows = factor.projection.project(basis, draws.start, draws.stop)
            products = slopes[:, draws] @ rows.T
            block += ops.algebra.column_products(X[:, columns], products)
        total[columns] = ops.to_host(block)
    return total
