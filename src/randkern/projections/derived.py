"""Projections without a matrix of their own: columns, derived rows, roots of unity."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from randkern._validation import Rows, densify
from randkern.backend.namespace import ops_of
from randkern.projections._base import Projection


class Identity(Projection):
    """Row i of the matrix is the i-th unit vector times √d.

    With this factor, the mean of ωωᵀ over the rows is the identity matrix, as for every
    distribution of unit variance.
    """

    name = "identity"

    def project(self, X: Rows, start: int, stop: int) -> Any:
        return densify(X[:, start:stop]) * self.width**0.5


@dataclass(frozen=True, eq=False, kw_only=True)
class Antithetic(Projection):
    """The rows of another projection, each followed by its negative."""

    name = "antithetic"
    half: Projection

    def stored_bytes(self, itemsize: int) -> int:
        return self.half.stored_bytes(itemsize)

    def project(self, X: Rows, start: int, stop: int) -> Any:
        first = start // 2
        rows = self.half.project(X, first, (stop + 1) // 2)
        both = ops_of(X).xp.stack([rows, -rows], axis=-1)
        out = both.reshape(-1, 2 * rows.shape[1])
        return out[:, start - 2 * first : stop - 2 * first]


@dataclass(frozen=True, eq=False, kw_only=True)
class Repeated(Projection):
    """Every row is (1, ..., 1): the sum of the scaled columns, for every draw.

    If `signed`, each row has a random sign.
    """

    name = "repeated"
    signed: bool = False

    @cached_property
    def _signs(self) -> np.ndarray:
        """The sign of every row."""
        flips = self.stream.generator().integers(2, size=self.n_draws, dtype=np.int8)
        return 1 - 2 * flips

    def project(self, X: Rows, start: int, stop: int) -> Any:
        ops = ops_of(X)
        total = densify(X) @ ops.asarray(np.ones((X.shape[1], 1)), X)
        if not self.signed:
            return total * ops.asarray(np.ones(stop - start), X)
        signs = ops.constant(self, "signs", X, lambda: self._signs)
        return total * ops.asarray(signs[start:stop], X)


@dataclass(frozen=True, eq=False, kw_only=True)
class Roots(Projection):
    """Phases 2π ω x_j/n_j of a random column j and a random ω in {1, ..., n_j}.

    Rows are codes 0, ..., n_j - 1, from :class:`InputMap` with categories;
    `sizes` holds the n_j. Then E[e^{i(phase(x) - phase(y))}] is the share of
    columns on which x and y agree.
    """

    name = "roots"
    sizes: tuple[int, ...]

    def project(self, X: Rows, start: int, stop: int) -> np.ndarray:
        ops = ops_of(X)
        column, omega, n = ops.constant(
            self, ("draws", start, stop), X, lambda: self._draws(start, stop)
        )
        # ω·x mod n in integers keeps the roots of unity exact.
        return (2 * np.pi / ops.as_float64(n)) * ((X[:, column] * omega) % n)

    def _draws(self, start: int, stop: int) -> np.ndarray:
        """Return the columns, frequencies and sizes of draws, as three rows."""
        # Two uniforms per draw, in this order, for any range.
        generator = self.stream.child("real").generator(skipped=2 * start)
        uniforms = generator.random((stop - start, 2))
        sizes = np.asarray(self.sizes)
        column = (uniforms[:, 0] * len(sizes)).astype(np.int64)
        n = sizes[column]
        omega = 1 + (uniforms[:, 1] * n).astype(np.int64)
        return np.stack([column, omega, n])
