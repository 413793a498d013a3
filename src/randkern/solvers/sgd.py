"""Preconditioned stochastic gradients on mini-batches, in few passes over the rows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, ClassVar, Protocol

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from randkern._sklearn import Interval
from randkern._warnings import warn
from randkern.backend.namespace import ops_of
from randkern.solvers.iteration import (
    Callback,
    Checkpoint,
    IterativeSolver,
    Outcome,
    Progress,
    Solution,
    iterate,
)
from randkern.solvers.pcg import PCG, Operator, SpectralPreconditioner

_MIN_BATCH, _MAX_BATCH = 256, 4096
_SMALLEST_BATCH = 16
# Least number of steps per epoch, unless batches would be smaller than the smallest.
_STEPS = 32
# Exponent of the running average over all steps, in which later steps count more.
_DECAY = 8
# Safety factor of the largest stable step, which is estimated from a sample.
_SAFETY = 0.9
# Before the loss is meaningful, the error along leading directions must have decreased
# to e^(−3) ...
_FOLLOWED = 3.0
# ... and along all others, down to the penalty, to e^(−1).
_FOLLOWED_LAST = 1.0
# Batches of up to this many times the mean weight hardly bias the steps.
_UNEVEN = 4.0
# Weights and losses that grow by this much in a pass diverge.
_GROWTH = 1e3
_SAME_TARGETS = 1e-9
_POWER_STEPS = 30
# Largest matrix whose smallest eigenvalue is computed.
_MAX_EXACT = 512
_DIVERGED = (
    "the steps of SGD diverged: the sample of rows does not show the largest features; "
    "scale the input, or use solver='pcg'."
)


class BatchOperator(Operator, Protocol):
    """The matrix A = Σ w_i z_i z_iᵀ of D features, read in batches of rows."""

    # Whether features and targets are centred.
    center: bool

    @property
    def n_targets(self) -> int: ...

    @property
    def weight_sum(self) -> float: ...

    def sampled_features(self) -> Any:
        """Return features of some rows, each times the square root of its weight."""

    def batches(self, n_rows: int, epoch: int) -> Iterator[Any]:
        """Yield all rows in batches, in an order that the epoch determines."""

    def gradient(self, batch: Any, W: Any) -> tuple[Any, Any, float]:
        """Return Σ w_i z_i (z_i·W − y_i), Σ w_i (z_i·W − y_i)², and Σ w_i of a batch.

        Of shapes (D, k) and (k,).
        """


def _peaks(Z: Any, values: np.ndarray, vectors: Any) -> np.ndarray:
    """Return the largest z·P⁻¹z for preconditioners of 1, 2, ... eigenpairs."""
    ops = ops_of(Z)
    inner = ops.as_float64(Z @ vectors) ** 2
    values = ops.float64_like(values, Z)
    rest = ops.float64_squared_norms(Z)[:, None] - inner.cumsum(axis=1)
    shortened = (inner / values).cumsum(axis=1) * values
    return ops.to_host(ops.column_max_abs(rest.clip(min=0.0) + shortened))


def _largest_eigenvalue(Z: Any) -> float:
    """Estimate the largest eigenvalue of ZᵀZ by power iterations."""
    ops = ops_of(Z)
    vector = ops.asarray(ops.as_float64(Z).sum(axis=0), Z)
    waves = ops.asarray(np.cos(np.arange(len(vector))), Z)
    vector += ops.largest(abs(vector)) * 1e-3 * waves
    value = 0.0
    for _ in range(_POWER_STEPS):
        size = ops.algebra.norm(vector)
        if size == 0:
            return 0.0
        vector = Z.T @ (Z @ (vector / size))
        value = ops.algebra.norm(vector)
    return value


def _smallest_eigenvalue(Z: Any) -> float:
    """Return the smallest eigenvalue of ZᵀZ, or 0 if it is too expensive."""
    ops = ops_of(Z)
    if Z.shape[1] > min(len(Z), _MAX_EXACT) or not ops.is_finite(Z):
        return 0.0
    values = ops.algebra.singular_values(Z)
    first, last = float(values[0]), float(values[-1])
    # Smaller values are rounding errors.
    eps = float(np.finfo(ops.numpy_dtype(Z)).eps)
    noise = eps * max(Z.shape) * first
    return last**2 if last > noise else 0.0


@dataclass
class SGDState:
    """The weights, and the quantities that determine the step length."""

    W: Any
    preconditioner: SpectralPreconditioner | None
    tail: float
    peak: float
    shift: float
    weight_sum: float
    # The value that leading eigenvalues are reduced to, including the penalty.
    leading: float = 0.0
    # The smallest eigenvalue of the preconditioned matrix per row, or a bound: 0.
    smallest: float = 0.0
    average: Any = 0.0
    n_averaged: int = 0
    epoch: int = 0
    batch: int = 0
    loss: Any = 0.0
    # The losses of all targets, per epoch.
    losses: list[list[float]] = field(default_factory=list)
    # An estimate of the loss of zero weights, (k,), from the first batch.
    initial: Any = 0.0
    heaviest: float = 0.0

    def length(self, weight: float) -> float:
        """Return the step length for a batch.

        The largest stable step for batches of m rows is m/(β + (m − 1)λ + mα), λ being
        the largest eigenvalue of the preconditioned matrix per row and β the largest
        z·P⁻¹z (Ma and Belkin 2019, "Kernel machines that adapt to GPUs", eq. 5).
        """
        m, penalty = max(weight, 1.0), self.shift / self.weight_sum
        return _SAFETY * m / (self.peak + (m - 1) * self.tail + m * penalty)

    def followed(self, eigenvalue: float) -> float:
        """Return t if all epochs have reduced the error along a direction to e^(−t)."""
        steps = max(self.n_averaged, 1)
        length = self.length(self.weight_sum / steps)
        return self.epoch * steps * length * eigenvalue

    def measure(self, Z: Any) -> None:
        """Shorten the steps if these features are larger than all before."""
        if self.preconditioner is not None:
            Z = self.preconditioner.apply_root(Z)
        ops = ops_of(Z)
        peak = ops.largest(ops.float64_squared_norms(Z))
        if peak > self.peak:
            self.peak = peak
            self.tail = max(self.tail, _largest_eigenvalue(Z) / len(Z))

    def step(self, rows: BatchOperator, batch: Any) -> Any:
        """Take one step along the preconditioned gradient of a batch of the rows.

        Returns the losses before it, (k,).
        """
        gradient, loss, weight = rows.gradient(batch, self.W)
        if self.epoch == self.batch == 0 and weight > 0:
            self.initial = ops_of(loss).to_host(loss) * (self.weight_sum / weight)
        self.heaviest = max(self.heaviest, weight)
        if weight > 0:
            penalty = self.shift / self.weight_sum
            direction = gradient / weight + penalty * self.W
            if self.preconditioner is not None:
                direction = self.preconditioner.apply(direction)
            self.W = self.W - self.length(weight) * direction
        self.loss = self.loss + loss
        self.batch += 1
        return loss

    @property
    def value(self) -> Any:
        """Average of the weights over the last epoch."""
        return self.average / self.n_averaged if self.n_averaged else self.W


class SGD(IterativeSolver):
    """Minimise Σ_i w_i (y_i − z_i·W)² + α‖W‖² by preconditioned stochastic gradients.

    For data too large to be read often. Gradients along the leading eigenvectors,
    estimated from a sample of rows, are scaled down, so that one step length suits all
    directions: EigenPro (Ma and Belkin 2017, 2019). The step length is determined by
    the spectrum; the weights are averaged over each epoch.

    Parameters
    ----------
    epochs : int
        Maximum number of passes over the rows.
    tol : float
        Stop when the second half of all epochs has decreased the loss of every target,
        measured before each step, by less than this share, and the steps were enough
        to follow directions down to the penalty (or the remaining loss is less than
        this share of the targets' spread). The noise of batch gradients limits the
        accuracy: for an accurate solution use conjugate gradients.
    batch_rows : int or None
        Rows per batch. None: the size above which larger batches no longer allow longer
        steps, from 256 to 4,096; smaller with few rows, so that an epoch takes 32
        steps.
    rank : int or None
        Number of eigenpairs in the preconditioner; None: a 32nd of the number of
        features, from 64 (or a quarter of it) to 600, and fewer if the last ones would
        slow down all others, that is if their critical batch is larger than a batch.
        0 uses none.
    callback : callable, optional
        Called with a :class:`Progress` after every epoch; its residual is not a
        number. Returning True stops.

    Examples
    --------
    >>> import numpy as np, randkern as rk
    >>> from randkern.solvers import SGD
    >>> X = np.random.default_rng(0).normal(size=(5000, 3))
    >>> model = rk.KernelRidgeRegressor(rk.Gaussian(2.0), solver=SGD(), random_state=0)
    >>> round(model.fit(X, np.sin(X[:, 0])).score(X, np.sin(X[:, 0])), 2)
    1.0
    """

    name = "sgd"
    takes = "batches"

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "epochs": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "batch_rows": [Interval(Integral, 1, None, closed="left"), None],
        "rank": [Interval(Integral, 0, None, closed="left"), None],
        "callback": [callable, None],
    }

    def __init__(
        self,
        epochs: int = 10,
        tol: float = 0.02,
        batch_rows: int | None = None,
        rank: int | None = None,
        callback: Callback | None = None,
    ):
        self.epochs = epochs
        self.tol = tol
        self.batch_rows = batch_rows
        self.rank = rank
        self.callback = callback

    def chosen_rank(self, size: int) -> int:
        """Return the rank of the preconditioner for D features."""
        return PCG(rank=self.rank).chosen_rank(size)

    def chosen_batch(self, state: SGDState) -> int:
        """Return the number of rows of a batch."""
        most = self._most_rows(state.weight_sum)
        if self.batch_rows is not None:
            return most
        critical = state.peak / max(state.tail, 1e-300)
        return int(np.clip(critical, min(_MIN_BATCH, most), most))

    def _most_rows(self, weight_sum: float) -> int:
        """Return the largest possible number of rows of a batch."""
        if self.batch_rows is not None:
            return self.batch_rows
        return int(np.clip(weight_sum / _STEPS, _SMALLEST_BATCH, _MAX_BATCH))

    def init(self, operator: BatchOperator, shift: float = 0.0) -> SGDState:
        """Build the preconditioner, and choose the step length."""
        self._validate_params()
        rank, total = self.chosen_rank(operator.size), operator.weight_sum
        preconditioner, leading = None, 0.0
        values = np.empty(0)
        if rank > 0:
            values, vectors = operator.leading_eigenpairs(rank)
        # Not the rows that the eigenvectors were computed from, as they overfit those.
        Z = operator.sampled_features()
        ops = ops_of(Z)
        if len(values):
            if self.rank is None:
                largest = _peaks(Z, values + shift, vectors)
                usable = largest * total <= self._most_rows(total) * (values + shift)
                rank = 1 + int(np.flatnonzero(usable)[-1]) if usable.any() else 1
            values, vectors = values[:rank], vectors[:, :rank]
            preconditioner = SpectralPreconditioner.of(values, vectors, shift)
            leading = (float(values[-1]) + shift) / total
            Z = preconditioner.apply_root(Z)
        W = ops.float64_zeros((operator.size, operator.n_targets), Z)
        tail = _largest_eigenvalue(Z) / len(Z)
        peak = max(
            ops.largest(ops.float64_squared_norms(Z)), tail, np.finfo(float).tiny
        )
        leading = leading or tail + shift / total
        smallest = _smallest_eigenvalue(Z) / len(Z)
        return SGDState(W, preconditioner, tail, peak, shift, total, leading, smallest)

    def solve(
        self,
        state: SGDState,
        rhs: BatchOperator,
        callback: Callback | None = None,
        checkpoint: Checkpoint | None = None,
        n_companions: int = 0,
    ) -> Solution:
        """Take steps until the loss has settled.

        Parameters
        ----------
        state : SGDState
            From :meth:`init`; modified.
        rhs : BatchOperator
            Its batches include their targets.
        callback : callable, optional
            Called in addition to that of the solver.
        checkpoint : Checkpoint, optional
            If it holds an iteration, that is resumed. It is updated during the
            iteration and on interruption, and removed at the end.
        n_companions : int
            Number of last targets that do not decide when to stop: see
            `Solution.companions`.
        """
        n_columns = rhs.n_targets - n_companions
        epochs = _Epochs(self, state, rhs, checkpoint, n_columns)
        seconds = iterate(epochs, self.epochs, (self.callback, callback))
        outcome = epochs.outcome or Outcome.ITERATION_LIMIT
        if outcome is Outcome.ITERATION_LIMIT:
            warn(
                f"the loss still fell by more than tol in the last epochs of {self}, "
                "or the steps were too few for small eigenvalues; increase epochs, tol "
                "or alpha, or use solver='pcg'.",
                ConvergenceWarning,
            )
        value, k = state.value, n_columns
        return Solution(
            ops_of(value).contiguous(value[:, :k]),
            self._residual(state, rhs, k),
            state.epoch,
            outcome,
            seconds=seconds,
            companions=value[:, k:],
        )

    def _residual(self, state: SGDState, rows: BatchOperator, k: int) -> float:
        """Return the relative residual of the first k targets, by a further pass."""
        W, ops = state.value, ops_of(state.W)
        zeros = ops.float64_zeros(W.shape, W)
        residual, rhs = state.shift * W, zeros
        for batch in rows.batches(self.chosen_batch(state), state.epoch):
            residual = residual + rows.gradient(batch, W)[0]
            rhs = rhs - rows.gradient(batch, zeros)[0]
        squares = ops.to_host((residual[:, :k] ** 2).sum(axis=0))
        sizes = ops.to_host((rhs[:, :k] ** 2).sum(axis=0))
        return float(np.sqrt((squares / np.where(sizes > 0, sizes, np.inf)).max()))

    def advance(self, state: SGDState, operator: BatchOperator) -> Solution:
        """Take one pass over rows, continuing from the state.

        The residual of all rows, which are not there any more, is not a number.

        The value is an average over all steps in which later ones count more (Shamir
        and Zhang 2013, "Stochastic gradient descent for non-smooth optimization",
        section 4).
        """
        began = time.perf_counter()
        before = state.W
        average = state.average if state.n_averaged else before
        steps = state.n_averaged
        if state.epoch > 0:
            state.measure(operator.sampled_features())
        first = (0.0, 0.0)
        for batch in operator.batches(self.chosen_batch(state), state.epoch):
            loss = float(state.step(operator, batch).sum())
            size = ops_of(state.W).algebra.norm(state.W)
            first = first if first[1] > 0 else (loss, size)
            grown = loss > _GROWTH * first[0] and size > _GROWTH * first[1]
            if grown or not np.isfinite(size):
                state.W = before
                raise FloatingPointError(_DIVERGED)
            steps += 1
            share = (_DECAY + 1) / (steps + _DECAY)
            average = average + share * (state.W - average)
        state.average, state.n_averaged = average, steps
        state.epoch += 1
        seconds = time.perf_counter() - began
        return Solution(
            average, np.nan, state.epoch, Outcome.STREAMING, seconds=seconds
        )


_COUNTS = ("n_averaged", "epoch", "batch")
# Attributes on the device of the weights.
_PLACED = ("W", "average", "loss")
_SAVED = (*_COUNTS, *_PLACED, "losses", "initial", "heaviest")


@dataclass(eq=False)
class _Epochs:
    """A run of stochastic gradients, as passes over the rows."""

    solver: SGD
    state: SGDState
    rows: BatchOperator
    checkpoint: Checkpoint | None
    # The number of targets that decide when to stop.
    n_columns: int

    def __post_init__(self) -> None:
        if self.checkpoint is not None:
            self._resume(self.checkpoint)
        self.outcome = self._current_outcome()
        self._completed()

    def _completed(self) -> None:
        """Note the state after a batch or an epoch, for checkpoints.

        An interrupt may come between two assignments to the state, but not within one:
        what is saved is always the state after a whole batch. No array of it is changed
        in place.
        """
        self._saved = {name: getattr(self.state, name) for name in _SAVED}

    @property
    def count(self) -> int:
        return self.state.epoch

    def progress(self, seconds: float) -> Progress:
        value = self.state.value[:, : self.n_columns]
        return Progress(self.count, np.nan, np.nan, seconds, value)

    def arrays(self) -> dict[str, Any]:
        return self._saved

    def advance(self) -> bool:
        """Take an epoch."""
        state, checkpoint = self.state, self.checkpoint
        if state.batch == 0:
            ops, W = ops_of(state.W), state.W
            state.average, state.loss = (
                ops.float64_zeros(W.shape, W),
                ops.float64_zeros(W.shape[1], W),
            )
            state.n_averaged, state.heaviest = 0, 0.0
        done = state.batch
        size = self.solver.chosen_batch(state)
        for number, batch in enumerate(self.rows.batches(size, state.epoch)):
            if number < done:
                continue
            state.step(self.rows, batch)
            state.average = state.average + state.W
            state.n_averaged += 1
            self._completed()
            if checkpoint is not None and checkpoint.due:
                checkpoint.save(self.arrays())
        loss = state.loss + state.shift * (state.value**2).sum(axis=0)
        state.losses = [*state.losses, ops_of(loss).to_host(loss).tolist()]
        state.epoch += 1
        state.batch = 0
        self._completed()
        self.outcome = self._current_outcome()
        return True

    def _current_outcome(self) -> Outcome | None:
        """Return the outcome, None if the iteration continues."""
        state = self.state
        if not ops_of(state.W).is_finite(state.W):
            raise FloatingPointError(_DIVERGED)
        if len(state.losses) < 2:
            return None
        # Directions are learned one after the other, each taking as long as all before:
        # the gain from doubling the work shows how much is left.
        k = self.n_columns
        before = np.asarray(state.losses[(len(state.losses) - 1) // 2])[:k]
        now = np.asarray(state.losses[-1])[:k]
        if np.any(np.abs(before - now) > self.solver.tol * before):
            return None
        # Steps along batches of very different weights are biased.
        if state.heaviest * state.n_averaged > _UNEVEN * state.weight_sum:
            return None
        last = min(state.leading, state.smallest + state.shift / state.weight_sum)
        # A flat loss says nothing about directions that steps have not reached; they
        # matter little if hardly anything is left of the targets' spread.
        reached = state.followed(last) >= _FOLLOWED_LAST
        fitted = self.rows.center and bool(
            np.all(now <= self.solver.tol * np.asarray(state.initial)[:k])
        )
        if state.followed(state.leading) >= _FOLLOWED and (reached or fitted):
            return Outcome.LOSS_CONVERGED
        return None

    def _resume(self, checkpoint: Checkpoint) -> None:
        """Load the weights of a checkpoint, if there is one."""
        state = self.state
        names = ("tail", "peak", "shift", "weight_sum")
        checkpoint.identity |= {name: getattr(state, name) for name in names}
        checkpoint.identity |= self._targets() | {"shape": state.W.shape}
        arrays = checkpoint.load()
        if arrays is None:
            return
        shape: tuple[int, ...] = tuple(state.W.shape)
        per_target = shape[1:]
        shapes: dict[str, list[tuple[int, ...]]] = {name: [()] for name in _SAVED}
        shapes |= {"W": [shape], "average": [(), shape], "loss": [(), per_target]}
        shapes |= {"losses": [(0,), (-1, *per_target)], "initial": [(), per_target]}
        checkpoint.check(arrays, shapes)
        # By target, as their sizes may differ.
        expected = checkpoint.identity
        if np.any(
            np.abs(arrays["squares"] - expected["squares"])
            > _SAME_TARGETS * expected["squares"]
        ):
            raise checkpoint.foreign("a fit on other targets")
        for name in _SAVED:
            value: Any = arrays[name]
            if name in _COUNTS:
                value = checkpoint.integer(value)
            elif name in _PLACED:
                value = ops_of(state.W).float64_like(value, state.W)
            elif name == "losses":
                value = value.tolist()
            elif name == "heaviest":
                value = float(value)
            setattr(state, name, value)

    def _targets(self) -> dict[str, np.ndarray]:
        """Return arrays that identify the targets, from the first batch of an epoch."""
        state = self.state
        ops, n_rows = ops_of(state.W), self.solver._most_rows(state.weight_sum)
        batch = next(iter(self.rows.batches(n_rows, 0)))
        zeros = ops.float64_zeros(state.W.shape, state.W)
        gradient, loss, _ = self.rows.gradient(batch, zeros)
        sums = (loss, gradient.sum(axis=0), abs(gradient).sum(axis=0))
        squares, cross, sizes = (ops.to_host(value) for value in sums)
        return {"squares": squares, "cross": cross / np.where(sizes > 0, sizes, 1.0)}
