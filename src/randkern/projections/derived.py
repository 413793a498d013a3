"""Projections whose rows follow from others, or are all the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from randkern._validation import Rows, densify
from randkern.backend.namespace import ops_of
from randkern.projections._base import Projection


@dataclass(frozen=True, eq=False)
class Antithetic(Projection):
    """The rows of another projection, each followed by its opposite."""

    name = "antithetic"
    half: Projection | None = None

    @classmethod
    def of(cls, half: Projection, n_draws: int) -> Antithetic:
        """Return `n_draws` rows, those of `half` and their opposites."""
        return cls(half.stream, n_draws, half.width, half.law, half=half)

    def stored_bytes(self, itemsize: int) -> int:
        assert self.half is not None
        return self.half.stored_bytes(itemsize)

    def project(self, X: Rows, start: int, stop: int) -> Any:
        assert self.half is not None
        first = start // 2
        rows = self.half.project(X, first, (stop + 1) // 2)
        both = ops_of(X).xp.stack([rows, -rows], axis=-1)
        out = both.reshape(-1, 2 * rows.shape[1])
        return out[:, start - 2 * first : stop - 2 * first]


class Repeated(Projection):
    """Every row is (1, ..., 1): the sum of the scaled columns, for every draw."""

    name = "repeated"

    def project(self, X: Rows, start: int, stop: int) -> Any:
        ops = ops_of(X)
        total = densify(X) @ ops.asarray(np.ones((X.shape[1], 1)), X)
        return total * ops.asarray(np.ones(stop - start), X)
