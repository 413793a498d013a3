"""What solvers share: the protocol, and the loop of those that iterate."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from randkern.solvers._checkpoint import Checkpoint
from randkern.solvers._solution import Outcome, Solution


@dataclass(frozen=True)
class Progress:
    """The state of an iteration, as callbacks receive it.

    Attributes
    ----------
    iteration : int
    residual : float
        ‖b − Ax‖/‖b‖, the largest over the right-hand sides.
    excess : float
        Estimated share by which the loss is above its minimum; infinite while it is
        not known.
    seconds : float
        Since the iteration began.
    value : ndarray or tensor
        The solution so far, where the right-hand sides are.
    """

    iteration: int
    residual: float
    excess: float
    seconds: float
    value: Any


# Returns True to stop the iteration.
Callback = Callable[[Progress], Any]


class Solver(Protocol):
    """What solves (A + shift·I)X = B.

    Iterative solvers take two more arguments of `solve`: `callback`, called with a
    :class:`Progress` after every iteration beside the one that the solver was made
    with, and `checkpoint`, a :class:`Checkpoint` that is continued, kept up to date and
    removed at the end.
    """

    def init(self, system: Any, shift: float = 0.0) -> Any:
        """Return a state that serves any number of right-hand sides.

        `system` is A: a matrix for a direct solver, its products
        (:class:`~randkern.solvers.pcg.Operator`) for conjugate gradients, its rows
        (:class:`~randkern.solvers.sgd.BatchOperator`) for stochastic gradients.
        """

    def solve(self, state: Any, rhs: Any) -> Solution:
        """Return the solution, with its residual and a named outcome.

        `rhs` is B, (n, k); for stochastic gradients the rows that bring their targets.
        """


class Iteration(Protocol):
    """An iteration under way."""

    outcome: Outcome | None
    checkpoint: Checkpoint | None

    @property
    def count(self) -> int:
        """Iterations so far, those before a checkpoint included."""

    def advance(self) -> bool:
        """Take a step, and set the outcome if it is the last; False if none is left."""

    def progress(self, seconds: float) -> Progress: ...

    def arrays(self) -> dict[str, Any]:
        """Return what a checkpoint holds."""


def iterate(
    iteration: Iteration, limit: int, callbacks: Sequence[Callback | None]
) -> float:
    """Advance until there is an outcome, or `limit` is reached; return the seconds."""
    began, checkpoint = time.perf_counter(), iteration.checkpoint
    listening = [callback for callback in callbacks if callback is not None]
    try:
        while iteration.outcome is None and iteration.count < limit:
            if not iteration.advance():
                break
            at = iteration.progress(time.perf_counter() - began)
            if any([callback(at) for callback in listening]):
                iteration.outcome = Outcome.STOPPED
            if checkpoint is not None and iteration.outcome is None and checkpoint.due:
                checkpoint.save(iteration.arrays())
    except (KeyboardInterrupt, SystemExit):
        if checkpoint is not None:
            with contextlib.suppress(UserWarning):  # where warnings are errors
                checkpoint.save(iteration.arrays(), interrupted=True)
        raise
    if checkpoint is not None:
        checkpoint.remove()
    return time.perf_counter() - began
