"""What a solver returns: the value, and how it was reached."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np


class Outcome(Enum):
    """How a linear solve ended. The value says what to do about it."""

    SUCCESS = "solved to working precision"
    CONVERGED = "the residual is below the tolerance"
    LOSS_CONVERGED = "the loss is within the tolerance of its minimum"
    VALIDATED = "the validation error has stopped falling"
    STREAMING = "one more pass of stochastic gradients was taken"
    STOPPED = "a callback stopped the iteration"
    ITERATION_LIMIT = (
        "the limit of iterations (max_iter) or of passes (epochs) was reached before "
        "the tolerance: increase it or alpha, loosen tol, use a larger rank of the "
        "preconditioner, or float64 rows"
    )
    JITTERED = (
        "the matrix is not positive definite in floating point; a small multiple of "
        "the identity was added: increase alpha, use float64 rows, or remove "
        "duplicate columns"
    )
    ILL_CONDITIONED = (
        "the matrix is singular to working precision, so that few digits of the "
        "weights are certain: increase alpha, or rescale the columns"
    )
    ROUNDED = (
        "rounding errors keep the solution farther from the minimum than was asked: "
        "increase alpha, use float64 rows, loosen tol, or scale down the largest "
        "weights"
    )


@dataclass(frozen=True)
class Solution:
    """The solution of a linear system and its quality.

    Attributes
    ----------
    value : ndarray
        Same shape as the right-hand side.
    residual : float
        ‖b − Ax‖/‖b‖, the largest over the right-hand sides (0 for b = 0).
    iterations : int
        Refinement steps of a direct solver, iterations of an iterative one.
    outcome : Outcome
    jitter : float
        What was added to the diagonal of A beyond what was asked for.
    seconds : float
        Wall-clock time of the solve; 0 where it was not taken.
    """

    value: np.ndarray = field(repr=False)
    residual: float
    iterations: int
    outcome: Outcome
    jitter: float = 0.0
    seconds: float = 0.0

    # An enumeration is stored by name: skops loads no other members of one.
    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"outcome": self.outcome.name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state | {"outcome": Outcome[state["outcome"]]})
