"""The protocol of solvers, their solutions, and their iterations."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Protocol

import numpy as np
from sklearn.base import BaseEstimator

from randkern._validation import Array


class Outcome(Enum):
    """How a linear solve ended. The value is advice on what to do about it."""

    SUCCESS = "solved to working precision"
    CONVERGED = "the residual is below the tolerance"
    LOSS_CONVERGED = "the loss is within the tolerance of its minimum"
    STOPPED = "a callback stopped the iteration"
    ITERATION_LIMIT = (
        "the limit of iterations (max_iter) was reached before the tolerance: increase "
        "it or alpha, loosen tol, use a larger rank of the preconditioner, or float64 "
        "rows"
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
        "rounding errors keep the solution farther from the minimum than requested: "
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
        ‖b − Ax‖/‖b‖, the largest over the right-hand sides (0 for b = 0). That of the
        recurrence, where a bound says that rounding errors have not changed it
        (:mod:`randkern.solvers.stopping`), else computed from x.
    iterations : int
        Refinement steps of a direct solver, iterations of an iterative one.
    outcome : Outcome
    jitter : float
        Added to the diagonal of A in addition to the shift.
    seconds : float
        Wall-clock time of the solve; 0 if it was not measured.
    companions : ndarray of shape (n, s) or None
        Solutions for right-hand sides that shared the iterations, but did not decide
        when to stop.
    """

    value: np.ndarray = field(repr=False)
    residual: float
    iterations: int
    outcome: Outcome
    jitter: float = 0.0
    seconds: float = 0.0
    companions: Array = field(default=None, repr=False)

    # The outcome is stored by name, as skops cannot load members of enumerations.
    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"outcome": self.outcome.name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state | {"outcome": Outcome[state["outcome"]]})


@dataclass(frozen=True)
class Progress:
    """The state of an iteration, as callbacks receive it.

    Attributes
    ----------
    iteration : int
    residual : float
        ‖b − Ax‖/‖b‖, the largest over the right-hand sides.
    excess : float
        Estimated relative excess of the loss over its minimum; infinite while unknown.
    seconds : float
        Time since the start of the iteration.
    value : ndarray or tensor
        The current solution, on the device of the right-hand sides.
    """

    iteration: int
    residual: float
    excess: float
    seconds: float
    value: Array


# Returns True to stop the iteration.
Callback = Callable[[Progress], Any]


class Solver(Protocol):
    """A solver of (A + shift·I)X = B.

    `solve` of an iterative solver also takes a `callback`, called with a
    :class:`Progress` after every iteration, in addition to the callback of the solver.
    """

    def init(self, system: Any, shift: float = 0.0) -> Any:
        """Return a state shared by any number of right-hand sides.

        `system` is A: a matrix for a direct solver, its products
        (:class:`~randkern.solvers.pcg.Operator`) for an iterative one.
        """

    def solve(self, state: Any, rhs: Array) -> Solution:
        """Return the solution for B, (n, k), with its residual and a named outcome."""


class IterativeSolver(BaseEstimator, ABC):
    """Base class of iterative solvers: the protocol :class:`Solver`, for models.

    Models accept an instance as `solver`. A subclass defines `init` and `solve`, whose
    further arguments models pass by name, and sets what differs from these defaults.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {}

    #: What ``solver=`` calls it.
    name: ClassVar[str]
    #: The relative residual at which it stops; None: chosen by the model.
    tol: float | None = 1e-6
    #: Number of eigenpairs of the preconditioner; None: chosen by its size and memory.
    rank: int | None = 0

    @property
    def is_coarse(self) -> bool:
        """Whether products with an error of 1e-5 are good enough."""
        return False

    def chosen_rank(self, size: int) -> int:
        """Return the rank of the preconditioner for a matrix of this size."""
        return min(self.rank or 0, size)

    @abstractmethod
    def init(self, system: Any, shift: float = 0.0) -> Any:
        """Return a state shared by any number of right-hand sides."""

    @abstractmethod
    def solve(self, state: Any, rhs: Any, *args: Any, **kwargs: Any) -> Solution:
        """Return the solution, with its residual and a named outcome.

        Further arguments, which models pass by name, are a `callback`; `start`, the
        solution to begin at; `loss` and `sizes`, which say when to stop; and
        `companions`, further right-hand sides. :meth:`randkern.solvers.PCG.solve`
        documents them. A solver that ignores `companions` returns a solution without
        them: the model then has no leave-one-out predictions.
        """


class Iteration(Protocol):
    """An iteration in progress."""

    outcome: Outcome | None

    @property
    def count(self) -> int:
        """Number of iterations so far."""

    def advance(self) -> bool:
        """Take a step; set the outcome if it is the last. False if no step is left."""

    def progress(self, seconds: float) -> Progress: ...


def iterate(
    iteration: Iteration, limit: int, callbacks: Sequence[Callback | None]
) -> float:
    """Advance until there is an outcome or `limit` is reached; return the seconds."""
    began = time.perf_counter()
    listening = [callback for callback in callbacks if callback is not None]
    while iteration.outcome is None and iteration.count < limit:
        if not iteration.advance():
            break
        at = iteration.progress(time.perf_counter() - began)
        if any([callback(at) for callback in listening]):
            iteration.outcome = Outcome.STOPPED
    return time.perf_counter() - began
