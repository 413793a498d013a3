"""The protocol of solvers, their solutions, and the iteration with checkpoints."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from sklearn.base import BaseEstimator

from randkern._files import (
    READING_ERRORS,
    atomic_write,
    read_arrays,
    shortage,
    special_kind,
)
from randkern._validation import Array
from randkern._warnings import warn
from randkern.backend.namespace import ops_of
from randkern.exceptions import CheckpointError


class Outcome(Enum):
    """How a linear solve ended. The value is advice on what to do about it."""

    SUCCESS = "solved to working precision"
    CONVERGED = "the residual is below the tolerance"
    LOSS_CONVERGED = "the loss is within the tolerance of its minimum"
    VALIDATED = "the validation error has stopped decreasing"
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
        ‖b − Ax‖/‖b‖, the largest over the right-hand sides (0 for b = 0).
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


# Largest relative difference of arrays that identify a fit.
_TOLERANCE = 1e-5
# Largest share of the time spent on writing.
_SHARE = 0.05


class Checkpoint:
    """A file of named arrays, replaced as a whole.

    It is written under a temporary name and then renamed, so that a killed process
    leaves the last complete state behind.

    Parameters
    ----------
    path : str or Path
        Its folder must exist.
    attached : dict of str to array, optional
        Saved with every state.
    identity : dict of str to array, optional
        Also saved; identifies this iteration.
    tolerances : dict of str to float, optional
        Largest differences of arrays of `identity`, relative to the largest entry of
        a column; 1e-5 for others.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from randkern.solvers import Checkpoint
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpoint = Checkpoint(folder + "/fit.npz")
    ...     checkpoint.save({"value": np.arange(3)})
    ...     print(checkpoint.load()["value"])
    [0 1 2]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        attached: dict[str, Any] | None = None,
        identity: dict[str, Any] | None = None,
        tolerances: dict[str, float] | None = None,
    ):
        self.path = Path(path)
        self.attached = attached or {}
        self.identity = identity or {}
        self.tolerances = tolerances or {}
        self._saved_at = -np.inf
        self._seconds = 0.0
        try:
            kind = special_kind(self.path)
        except (OSError, ValueError) as error:  # ValueError: null characters in a path
            raise CheckpointError(
                f"checkpoint={str(path)!r} cannot be used ({error}); name another file."
            ) from error
        if kind is not None:
            raise CheckpointError(
                f"checkpoint={str(path)!r} is {kind}, expected the path of a file; "
                "pass for instance "
                f"{str(self.path / 'fit.npz' if kind == 'a folder' else 'fit.npz')!r}."
            )
        folder = self.path.resolve().parent
        if not folder.is_dir():
            raise CheckpointError(
                f"the folder of checkpoint={str(path)!r}, {folder}, does not exist; "
                "create it, or name a file in a folder that exists."
            )

    def check_writable(self) -> None:
        """Raise CheckpointError if the file cannot be written; do not change it."""
        try:
            with tempfile.TemporaryFile(dir=self.path.resolve().parent) as file:
                file.write(b"\0")
        except OSError as error:
            raise self._unwritable(error) from error

    def load(self, names: Sequence[str] | None = None) -> dict[str, np.ndarray] | None:
        """Return the arrays of the file, or those of the given names that it has.

        None if there is no file.
        """
        try:
            with self.path.open("rb") as file:
                return read_arrays(file, names)
        except FileNotFoundError:
            return None
        except READING_ERRORS as error:
            advice = shortage(error)
            problem = f"({type(error).__name__}: {error})"
            if advice:
                raise CheckpointError(
                    f"{self.path} could not be read {problem}, but may be intact: "
                    f"{advice}, and fit again."
                ) from error
            raise CheckpointError(
                f"{self.path} is not a checkpoint, or is damaged {problem}; delete it "
                "to start anew, or name another file."
            ) from error

    def load_integers(self, names: Sequence[str]) -> dict[str, int]:
        """Return the non-negative integers of these names that the file has."""
        arrays = self.load(names) or {}
        return {name: self.integer(array) for name, array in arrays.items()}

    def integer(self, array: np.ndarray) -> int:
        """Return an array of the file as a non-negative integer."""
        if array.shape or array.dtype.kind not in "iu" or array < 0:
            raise self.foreign()
        return int(array)

    def check(
        self,
        arrays: dict[str, np.ndarray],
        shapes: Mapping[str, Sequence[tuple[int, ...]]],
    ) -> None:
        """Raise unless the arrays belong to this iteration, up to rounding.

        They must include those named by `shapes`, each of one of its shapes (-1: any
        length).
        """
        known = {name: [np.shape(value)] for name, value in self.identity.items()}
        for name, allowed in {**shapes, **known}.items():
            array = arrays.get(name)
            if array is None or array.dtype.kind not in "biuf":
                raise self.foreign()
            if not any(_fits(array.shape, shape) for shape in allowed):
                raise self.foreign()
        for name, expected in self.identity.items():
            # By columns, as the sizes of targets may differ greatly.
            reference = np.atleast_1d(expected)
            difference = np.abs(arrays[name] - reference).max(axis=0, initial=0.0)
            tolerance = self.tolerances.get(name, _TOLERANCE)
            if not np.all(
                difference <= tolerance * np.abs(reference).max(axis=0, initial=0.0)
            ):
                raise self.foreign(
                    "a fit on other rows, with another kernel, alpha or random_state"
                )

    def save(self, arrays: dict[str, Any], *, interrupted: bool = False) -> None:
        """Replace the file, by arrays or tensors.

        If it cannot be written, the first call raises CheckpointError. Later calls, and
        calls with `interrupted`, warn and keep the last state.
        """
        began = time.perf_counter()
        first = self._saved_at == -np.inf
        arrays = {name: ops_of(array).to_host(array) for name, array in arrays.items()}
        try:
            with atomic_write(self.path) as file:
                np.savez(file, **arrays, **self.identity, **self.attached)
        except OSError as error:
            if first and not interrupted:
                raise self._unwritable(error) from error
            warn(
                f"the checkpoint {self.path} could not be written ({error}); the fit "
                "goes on, but would resume from "
                f"{'its beginning' if first else 'an earlier state'}: free some space.",
                UserWarning,
            )
        self._saved_at = time.perf_counter()
        self._seconds = self._saved_at - began

    def foreign(self, owner: str = "another fit") -> CheckpointError:
        """Return the error for a file of another fit."""
        return CheckpointError(
            f"{self.path} belongs to {owner}: delete it to start anew, or name another "
            "file."
        )

    def _unwritable(self, error: OSError) -> CheckpointError:
        return CheckpointError(
            f"the checkpoint {self.path} cannot be written ({error}); free some space, "
            "name a file in a folder that you may write to, or pass checkpoint=None."
        )

    @property
    def due(self) -> bool:
        """Whether enough time has passed that writing is a small share of it."""
        return _SHARE * (time.perf_counter() - self._saved_at) >= self._seconds

    def remove(self) -> None:
        """Delete the file after the iteration; symbolic links are kept."""
        try:
            self.path.resolve().unlink(missing_ok=True)
        except OSError as error:
            warn(
                f"the fit is complete, but its checkpoint {self.path} could not be "
                f"deleted ({error}); delete it.",
                UserWarning,
            )


def _fits(shape: tuple[int, ...], allowed: tuple[int, ...]) -> bool:
    return len(shape) == len(allowed) and all(
        expected in (length, -1)
        for length, expected in zip(shape, allowed, strict=True)
    )


# The error on few rows is noisy, while conjugate gradients approach the minimiser: the
# last of the iterates within this share of the least error is taken.
_AS_GOOD = 1e-2
# Smaller relative decreases do not count as progress.
_MIN_GAIN = 1e-3


class EarlyStopping:
    """Selects the last solution within 1 % of the least error on validation rows."""

    def __init__(self, patience: int, validate: Callable[[Any], float] | None):
        self._validate = validate
        self._patience = patience
        # The least error, the error at the last sufficient decrease, and the number of
        # iterations since.
        self._lowest = self._noted = np.inf
        self._since = 0
        self.value: Array = None

    def arrays(self) -> dict[str, Any]:
        if self.value is None:
            return {}
        record = np.array([self._lowest, self._noted, self._since])
        return {"best": self.value, "best_record": record}

    def restore(self, arrays: dict[str, np.ndarray], like: Array) -> None:
        if "best_record" in arrays:
            self.value = ops_of(like).float64_like(arrays["best"], like)
            self._lowest, self._noted, self._since = arrays["best_record"].tolist()

    def is_past(self, X: Array) -> bool:
        """Record a solution; return whether the error has stopped decreasing."""
        if self._validate is None:
            return False
        error = self._validate(X)
        self._since += 1
        if error < self._noted * (1 - _MIN_GAIN):
            self._noted = error
            self._since = 0
        self._lowest = min(self._lowest, error)
        if error <= self._lowest * (1 + _AS_GOOD):
            self.value = X
        return self._since >= self._patience


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

    `solve` of an iterative solver takes two more arguments: `callback`, called with a
    :class:`Progress` after every iteration, in addition to the callback of the solver,
    and `checkpoint`, a :class:`Checkpoint` that is resumed, updated, and removed at the
    end.
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
    #: Share of the rows that are held out for early stopping, if any.
    validation_fraction: float | None = None

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

        Further arguments, which models pass by name, are a `callback` and a
        `checkpoint`; `loss`, `sizes` and `validate`, which say when to stop; and
        `companions`, further right-hand sides. :meth:`randkern.solvers.PCG.solve`
        documents them. A solver that ignores `companions` returns a solution without
        them: the model then has no leave-one-out predictions.
        """


class Iteration(Protocol):
    """An iteration in progress."""

    outcome: Outcome | None
    checkpoint: Checkpoint | None

    @property
    def count(self) -> int:
        """Number of iterations so far, including those before a checkpoint."""

    def advance(self) -> bool:
        """Take a step; set the outcome if it is the last. False if no step is left."""

    def progress(self, seconds: float) -> Progress: ...

    def arrays(self) -> dict[str, Any]:
        """Return the arrays for a checkpoint."""


def iterate(
    iteration: Iteration, limit: int, callbacks: Sequence[Callback | None]
) -> float:
    """Advance until there is an outcome or `limit` is reached; return the seconds."""
    began = time.perf_counter()
    checkpoint = iteration.checkpoint
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
            with contextlib.suppress(UserWarning):  # in case warnings are errors
                checkpoint.save(iteration.arrays(), interrupted=True)
        raise
    if checkpoint is not None:
        checkpoint.remove()
    return time.perf_counter() - began
