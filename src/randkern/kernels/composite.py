"""Kernels that are sums of weighted products, with arrays as parameters."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from randkern._validation import Rows
from randkern.backend.namespace import ops_of
from randkern.kernels.base import Leaf, Slopes
from randkern.kernels.factor_draws import DrawSlopes


class Part(Leaf):
    """A factor of a term of a composite kernel, with one row of its arrays."""

    #: The array whose power this part's numbers are, and the sign of the power.
    learned: ClassVar[tuple[str, float]]
    composite: Composite
    row: int

    def _feature_slopes(self, factors: Any, slopes: DrawSlopes) -> Slopes:
        attribute, sign = self.learned
        for value in self._feature_gradient(factors, slopes).values():
            whole = np.zeros(np.shape(getattr(self.composite, attribute)))
            whole[self.row] = sign * value
            yield self.composite, attribute, whole


class Composite(Leaf):
    """A kernel whose terms, one per row of its arrays, are products of parts."""

    def _tile(self, X: Rows, Y: Rows, same: bool) -> Any:
        terms = ((t.weight, t.leaves) for t in self.terms())
        return sum(w * math.prod(p._tile(X, Y, same) for p in ps) for w, ps in terms)

    def _diag_selected(self, X: Rows) -> Any:
        terms = ((t.weight, t.leaves) for t in self.terms())
        return sum(w * math.prod(p._diag_selected(X) for p in ps) for w, ps in terms)

    def _gradient(self, X: Rows, Y: Rows, M: np.ndarray) -> dict[str, Any]:
        out = {name: np.zeros(np.shape(getattr(self, name))) for name in self.learnable}
        for row, term in enumerate(self.terms()):
            weighted, parts = term.weight * M, list(term.leaves)
            values = [part._tile(X, Y, False) for part in parts]
            for scale in term.scales:
                out[scale.attribute][scale.index] += (
                    weighted * math.prod(values)
                ).sum()
            for i, part in enumerate(parts):
                rest = weighted * math.prod(values[:i] + values[i + 1 :])
                attribute, sign = part.learned
                for value in part._gradient(X, Y, rest).values():
                    out[attribute][row] += sign * ops_of(value).to_host(value)
        return out
