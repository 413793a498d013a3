"""The projection that keeps every column: the exact features of a dot product."""

from __future__ import annotations

from typing import Any

from randkern._validation import Rows, densify
from randkern.projections._base import Projection


class Identity(Projection):
    """Row i of the matrix is the i-th unit vector times √d.

    The factor makes it a member of the family: the mean of ωωᵀ over the rows
    is the identity matrix, as for every other law of unit variance.
    """

    name = "identity"

    def project(self, X: Rows, start: int, stop: int) -> Any:
        return densify(X[:, start:stop]) * self.width**0.5
