"""Random roots of unity: the projection of the categorical base space."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from randkern._validation import Rows
from randkern.backend.namespace import ops_of
from randkern.projections._base import Projection


@dataclass(frozen=True, eq=False)
class Roots(Projection):
    """Phases 2π ω x_j/n_j of a random column j and a random ω in {1, ..., n_j}.

    Rows are codes 0, ..., n_j - 1, from :class:`InputMap` with categories;
    `sizes` holds the n_j. Then E[e^{i(phase(x) - phase(y))}] is the share of
    columns on which x and y agree (`theory`: the categorical base space,
    averaged over the columns).
    """

    name = "roots"
    sizes: tuple[int, ...] = ()

    def project(self, X: Rows, start: int, stop: int) -> np.ndarray:
        ops = ops_of(X)
        column, omega, n = ops.constant(
            self, ("draws", start, stop), X, lambda: self._draws(start, stop)
        )
        # ω·x mod n in integers keeps the roots of unity exact.
        return (2 * np.pi / ops.as_float64(n)) * ((X[:, column] * omega) % n)

    def _draws(self, start: int, stop: int) -> np.ndarray:
        """Return the columns, frequencies and sizes of draws, a row each."""
        generator = self.stream.child("real").generator()
        sizes = np.asarray(self.sizes)
        # Two uniforms per draw, in this order, whatever range is asked for.
        uniforms = generator.random((self.n_draws, 2))[start:stop]
        column = (uniforms[:, 0] * len(sizes)).astype(np.int64)
        n = sizes[column]
        omega = 1 + (uniforms[:, 1] * n).astype(np.int64)
        return np.stack([column, omega, n])
