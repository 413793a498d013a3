"""Independent rows with independent entries, kept in memory."""

from __future__ import annotations

import math

import numpy as np

from randkern.backend.counter import random_matrix
from randkern.projections._base import Stored

__all__ = ["Dense"]


class Dense(Stored):
    """I.i.d. rows from a counter-based generator, drawn once and kept.

    The matrix takes n_draws × width × 4 bytes (8 for float64 rows), twice
    that for a complex law.
    """

    name = "dense"

    def draw(self) -> tuple[np.ndarray, ...]:
        if self.law.is_complex:
            parts = (self.entries("real"), self.entries("imaginary"))
            for part in parts:
                part *= np.float32(math.sqrt(0.5))
            return parts
        matrix = self.entries("real")
        if self.law.entries == "sphere":
            norms = np.linalg.norm(matrix.astype(np.float64), axis=1, keepdims=True)
            return (math.sqrt(self.width) * (matrix / norms),)
        if self.law.mixing is not None:
            return (matrix * self.mixing_factors[:, None],)
        return (matrix,)

    def entries(self, part: str) -> np.ndarray:
        """Return the standard entries of one part, (n_draws, width), float32."""
        kind = "normal" if self.law.rotation_invariant else self.law.entries
        key = self.stream.child(part).key
        return random_matrix(key, kind, 0, self.n_draws, 0, self.width)
