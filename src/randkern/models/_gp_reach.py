"""How far from the data a process on random features is sure of itself.

Given many rows, D weights are known well in every direction, and so features give a
small variance even where the exact kernel says that no row has anything to tell: on
average over rows far away the D weights take d/D off the prior variance, with
d = tr ZᵀZ(ZᵀZ + σ²I)⁻¹. What the rows can tell at all is known from landmarks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from randkern._random import Stream
from randkern._validation import Rows
from randkern.backend.namespace import ops_of
from randkern.data.sample import stacked
from randkern.data.training_data import ArrayRows
from randkern.kernels import Kernel
from randkern.landmarks import choose_landmarks, landmark_plan
from randkern.plan import Plan, evaluate

#: Makes features of rows by a plan, as :func:`randkern.plan.evaluate` does.
Evaluate = Callable[[Plan, Any], Any]
# The share that landmarks leave at this share of the rows of the fit is no sign that
# a row is far from them: there are too few landmarks, and the noise that was learned
# has taken account of what few features cannot say.
_USUAL_QUANTILE = 0.95
_MEASURED_ROWS = 2000
_LARGEST_SHARE = 1 - 1e-6


@dataclass(frozen=True)
class Reach:
    """Where values of a process at landmarks say something about its values.

    Attributes
    ----------
    kernel : Kernel
    plan : Plan
        Of the landmarks.
    usual : float
        The share of the prior variance that they leave at 95 % of other rows at most.
    """

    kernel: Kernel
    plan: Plan
    usual: float

    @classmethod
    def of(
        cls,
        kernel: Kernel,
        rows: ArrayRows,
        n_landmarks: int,
        stream: Stream,
        memory_limit: int,
    ) -> Reach:
        """Choose landmarks among the rows; measure what they leave of the others."""
        X, ops = rows.X, ops_of(rows.X)
        chosen = choose_landmarks(
            *(kernel, X, None, n_landmarks, "auto", stream, memory_limit)
        )
        plan = landmark_plan(
            *(kernel, X, None, n_landmarks, stream),
            landmarks=ops.take(X, chosen),
            memory_limit=memory_limit,
        )
        others = np.setdiff1d(np.arange(rows.n_rows), chosen)
        if len(others) > _MEASURED_ROWS:
            drawn = stream.child("measured").generator()
            others = np.sort(drawn.choice(others, _MEASURED_ROWS, replace=False))
        reach = cls(kernel, plan, 0.0)
        if not len(others):
            return reach
        X = ops.take(X, others)
        share = ops.to_host(reach.left_over(X)) / ops.to_host(kernel._diag(X))
        usual = np.quantile(np.nan_to_num(share), _USUAL_QUANTILE)
        return cls(kernel, plan, min(float(usual), _LARGEST_SHARE))

    def left_over(self, X: Rows, evaluate: Evaluate = evaluate) -> np.ndarray:
        """Return k(x, x) − k(x, L)K_LL⁻¹k(L, x), what landmarks without noise leave."""
        Z = evaluate(self.plan, X)
        return (self.kernel._diag(X) - ops_of(Z).squared_norms(Z)).clip(0.0)

    def least_variance(self, X: Rows, evaluate: Evaluate = evaluate) -> np.ndarray:
        """Return the variance that there is at least: far from all rows k(x, x)."""
        excess = self.left_over(X, evaluate) - self.usual * self.kernel._diag(X)
        return excess.clip(0.0) / (1 - self.usual)

    def left_covariance(self, X: Rows) -> np.ndarray:
        """Return k(x, y) − k(x, L)K_LL⁻¹k(L, y) of all pairs of rows."""
        Z = evaluate(self.plan, X)
        return self.kernel._gram(X, None) - Z @ Z.T

    def with_rows(self, X: Rows, n_landmarks: int) -> Reach:
        """Return that of more rows, with so many landmarks at most."""
        rows = stacked([landmarks_of(self.plan), X])
        stream = self.plan.groups[0].factors[0].projection.stream.child("more")
        plan = landmark_plan(self.kernel, rows, None, n_landmarks, stream)
        return Reach(self.kernel, plan, self.usual)


def landmarks_of(plan: Plan) -> Any:
    """Return the rows that a plan of Nyström features has as landmarks."""
    projection: Any = plan.groups[0].factors[0].projection
    return projection.rows
