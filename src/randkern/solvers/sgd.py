"""Preconditioned stochastic gradients on mini-batches, in few passes over the rows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, ClassVar, Protocol

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from randkern._sklearn import Interval
from randkern._validation import Array
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

    def sampled_features(self) -> Array:
        """Return features of some rows, each times the square root of its weight."""

    def batches(self, n_rows: int, epoch: int) -> Iterator[Any]:
        """Yield all rows in batches, in an order that the epoch determines."""

    def gradient(self, batch: Any, W: Array) -> tuple[Array, Array, float]:
        """Return Σ w_i z_i (z_i·W − y_i), Σ w_i (z_i·W − y_i)², and Σ w_i of a batch.

        Of shapes (D, k) and (k,).
        """


def _peaks(Z: Array, values: np.ndarray, vectors: Array) -> np.ndarray:
    """Return the largest z·P⁻¹z for preconditioners of 1, 2, ... eigenpairs."""
    ops = ops_of(Z)
    inner = ops.as_float64(Z @ vectors) ** 2
    values = ops.float64_like(values, Z)
    rest = ops.float64_squared_norms(Z)[:, None] - inner.cumsum(axis=1)
    shortened = (inner / values).cumsum(axis=1) * values
    return ops.to_host(ops.column_max_abs(rest.clip(min=0.0) + shortened))


def _largest_eigenvalue(Z: Array) -> float:
    """Estimate the largest eigenvalue of ZᵀZ by power iterations."""
    ops = ops_of(Z)
    vector = ops.asarray(ops.as_float64(Z).sum(axis=0), Z)
    waves = ops.asarray(np.cos(np.arange(len(vector))), Z)
    vector += ops.largest_or_zero(abs(vector)) * 1e-3 * waves
    value = 0.0
    for _ in range(30):
        size = ops.algebra.norm(vector)
        if size == 0:
            return 0.0
        vector = Z.T @ (Z @ (vector / size))
        value = ops.algebra.norm(vector)
    return value


def _smallest_eigenvalue(Z: Array) -> float:
    """Return the smallest eigenvalue of ZᵀZ, or 0 for more than 512 columns."""
    ops = ops_of(Z)
    if Z.shape[1] > min(len(Z), 512) or not ops.is_finite(Z):
        return 0.0
    values = ops.algebra.singular_values(Z)
    first = float(values[0])
    last = float(values[-1])
    # Smaller values are rounding errors.
    eps = float(np.finfo(ops.numpy_dtype(Z)).eps)
    noise = eps * max(Z.shape) * first
    return last**2 if last > noise else 0.0


@dataclass(frozen=True)
class SGDIterate:
    """The weights after a batch, which the next one does not modify.

    `losses` has the losses of all targets, a row per epoch; `loss` sums those of the
    batches of the current epoch, and `heaviest` is the largest weight of one.
    """

    W: Array
    # A mean of the weights after `n_averaged` batches.
    mean: Array
    loss: Array
    losses: np.ndarray
    # An estimate of the loss of zero weights, (k,), from the first batch.
    initial: np.ndarray
    n_averaged: int = 0
    epoch: int = 0
    # Number of batches of the epoch so far.
    batch: int = 0
    heaviest: float = 0.0

    @classmethod
    def zero(cls, n_features: int, n_targets: int, like: Array) -> SGDIterate:
        """Return zero weights on the device of `like`."""
        W = ops_of(like).float64_zeros((n_features, n_targets), like)
        loss = ops_of(like).float64_zeros(n_targets, like)
        return cls(W, W, loss, np.empty((0, n_targets)), np.zeros(n_targets))


@dataclass
class SGDState:
    """The current iterate, and the quantities that determine the step length."""

    now: SGDIterate
    preconditioner: SpectralPreconditioner | None
    tail: float
    peak: float
    shift: float
    weight_sum: float
    # The value that leading eigenvalues are reduced to, including the penalty.
    leading: float
    # The smallest eigenvalue of the preconditioned matrix per row, or a bound: 0.
    smallest: float

    def length(self, weight: float) -> float:
        """Return the step length for a batch.

        The largest stable step for batches of m rows is m/(β + (m − 1)λ + mα), λ being
        the largest eigenvalue of the preconditioned matrix per row and β the largest
        z·P⁻¹z (Ma and Belkin 2019, "Kernel machines that adapt to GPUs", eq. 5).
        """
        m = max(weight, 1.0)
        penalty = self.shift / self.weight_sum
        # Both are estimated from a sample, hence a safety factor.
        return 0.9 * m / (self.peak + (m - 1) * self.tail + m * penalty)

    def followed(self, eigenvalue: float) -> float:
        """Return t if all epochs have reduced the error along a direction to e^(−t)."""
        steps = max(self.now.n_averaged, 1)
        length = self.length(self.weight_sum / steps)
        return self.now.epoch * steps * length * eigenvalue

    def measure(self, Z: Array) -> None:
        """Shorten the steps if these features are larger than all before."""
        if self.preconditioner is not None:
            Z = self.preconditioner.apply_root(Z)
        ops = ops_of(Z)
        peak = ops.largest_or_zero(ops.float64_squared_norms(Z))
        if peak > self.peak:
            self.peak = peak
            self.tail = max(self.tail, _largest_eigenvalue(Z) / len(Z))

    def step(
        self, now: SGDIterate, rows: BatchOperator, batch: Any, decay: float = 0.0
    ) -> tuple[SGDIterate, Any]:
        """Take a step along the preconditioned gradient of a batch of the rows.

        Also returns the losses before it, (k,). In the mean, step i counts as i to the
        power of `decay`, approximately.
        """
        gradient, loss, weight = rows.gradient(batch, now.W)
        W = now.W
        initial = now.initial
        n = now.n_averaged + 1
        if now.epoch == now.batch == 0 and weight > 0:
            initial = ops_of(loss).to_host(loss) * (self.weight_sum / weight)
        if weight > 0:
            direction = gradient / weight + self.shift / self.weight_sum * W
            if self.preconditioner is not None:
                direction = self.preconditioner.apply(direction)
            W = W - self.length(weight) * direction
        following = replace(
            now,
            W=W,
            mean=now.mean + (decay + 1) / (n + decay) * (W - now.mean),
            loss=now.loss + loss,
            initial=initial,
            n_averaged=n,
            batch=now.batch + 1,
            heaviest=max(now.heaviest, weight),
        )
        return following, loss


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
    continues = True

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
        largest = self._max_batch(state.weight_sum)
        if self.batch_rows is not None:
            return largest
        critical = state.peak / max(state.tail, 1e-300)
        return int(np.clip(critical, min(256, largest), largest))

    def _max_batch(self, weight_sum: float) -> int:
        """Return the largest possible number of rows of a batch."""
        if self.batch_rows is not None:
            return self.batch_rows
        # At least 32 steps per epoch, unless batches would be tiny.
        return int(np.clip(weight_sum / 32, 16, 4096))

    def init(self, operator: BatchOperator, shift: float = 0.0) -> SGDState:
        """Build the preconditioner, and choose the step length."""
        self._validate_params()
        rank = self.chosen_rank(operator.size)
        total = operator.weight_sum
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
                usable = largest * total <= self._max_batch(total) * (values + shift)
                rank = 1 + int(np.flatnonzero(usable)[-1]) if usable.any() else 1
            values, vectors = values[:rank], vectors[:, :rank]
            preconditioner = SpectralPreconditioner.of(values, vectors, shift)
            leading = (float(values[-1]) + shift) / total
            Z = preconditioner.apply_root(Z)
        zero = SGDIterate.zero(operator.size, operator.n_targets, Z)
        tail = _largest_eigenvalue(Z) / len(Z)
        peak = max(
            ops.largest_or_zero(ops.float64_squared_norms(Z)),
            tail,
            np.finfo(float).tiny,
        )
        leading = leading or tail + shift / total
        smallest = _smallest_eigenvalue(Z) / len(Z)
        return SGDState(
            zero, preconditioner, tail, peak, shift, total, leading, smallest
        )

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
        value, k = state.now.mean, n_columns
        return Solution(
            ops_of(value).contiguous(value[:, :k]),
            self._residual(state, rhs, k),
            state.now.epoch,
            outcome,
            seconds=seconds,
            companions=value[:, k:],
        )

    def _residual(self, state: SGDState, rows: BatchOperator, k: int) -> float:
        """Return the relative residual of the first k targets, by a further pass."""
        W = state.now.mean
        ops = ops_of(state.now.W)
        zeros = ops.float64_zeros(W.shape, W)
        residual, rhs = state.shift * W, zeros
        for batch in rows.batches(self.chosen_batch(state), state.now.epoch):
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
        now = state.now
        if now.epoch > 0:
            state.measure(operator.sampled_features())
        first_loss = first_size = 0.0
        for batch in operator.batches(self.chosen_batch(state), now.epoch):
            now, losses = state.step(now, operator, batch, decay=8)
            loss = float(losses.sum())
            size = ops_of(now.W).algebra.norm(now.W)
            if first_size == 0:
                first_loss, first_size = loss, size
            grown = loss > 1e3 * first_loss and size > 1e3 * first_size
            if grown or not np.isfinite(size):
                raise FloatingPointError(_DIVERGED)
        state.now = replace(now, epoch=now.epoch + 1, batch=0)
        return Solution(
            now.mean,
            np.nan,
            state.now.epoch,
            Outcome.STREAMING,
            seconds=time.perf_counter() - began,
        )


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

    @property
    def count(self) -> int:
        return self.state.now.epoch

    def progress(self, seconds: float) -> Progress:
        value = self.state.now.mean[:, : self.n_columns]
        return Progress(self.count, np.nan, np.nan, seconds, value)

    def arrays(self) -> dict[str, Any]:
        return vars(self.state.now)

    def advance(self) -> bool:
        """Take an epoch."""
        state, checkpoint = self.state, self.checkpoint
        n_done, now = state.now.batch, state.now
        if n_done == 0:
            n_features, n_targets = now.W.shape
            zero = SGDIterate.zero(n_features, n_targets, now.W)
            now = replace(
                now, mean=zero.mean, loss=zero.loss, n_averaged=0, heaviest=0.0
            )
        size = self.solver.chosen_batch(state)
        for number, batch in enumerate(self.rows.batches(size, now.epoch)):
            if number < n_done:
                continue
            # The state changes by one assignment, so that an interrupt finds it as it
            # was after a whole batch.
            now, _ = state.step(now, self.rows, batch)
            state.now = now
            if checkpoint is not None and checkpoint.due:
                checkpoint.save(self.arrays())
        loss = now.loss + state.shift * (now.mean**2).sum(axis=0)
        losses = np.vstack([now.losses, ops_of(loss).to_host(loss)])
        state.now = replace(now, losses=losses, epoch=now.epoch + 1, batch=0)
        self.outcome = self._current_outcome()
        return True

    def _current_outcome(self) -> Outcome | None:
        """Return the outcome, None if the iteration continues."""
        state = self.state
        now = self.state.now
        tol = self.solver.tol
        if not ops_of(now.W).is_finite(now.W):
            raise FloatingPointError(_DIVERGED)
        if len(now.losses) < 2:
            return None
        # Directions are learned one after the other, each taking as long as all before:
        # the gain from doubling the work shows how much is left.
        losses = now.losses[:, : self.n_columns]
        before = losses[(len(losses) - 1) // 2]
        loss = losses[-1]
        if np.any(np.abs(before - loss) > tol * before):
            return None
        # Steps along batches of very different weights are biased.
        if now.heaviest * now.n_averaged > 4 * state.weight_sum:
            return None
        # The error along leading directions must have decreased to e^(−3), and along
        # all others, down to the penalty, to e^(−1). A flat loss does not show
        # directions that steps have not reached; these matter little if hardly anything
        # is left of the targets' spread.
        last = min(state.leading, state.smallest + state.shift / state.weight_sum)
        reached = state.followed(last) >= 1
        fitted = self.rows.center and np.all(
            loss <= tol * now.initial[: self.n_columns]
        )
        if state.followed(state.leading) >= 3 and (reached or fitted):
            return Outcome.LOSS_CONVERGED
        return None

    def _resume(self, checkpoint: Checkpoint) -> None:
        """Load the weights of a checkpoint, if there is one."""
        state = self.state
        names = ("tail", "peak", "shift", "weight_sum")
        checkpoint.identity |= {name: getattr(state, name) for name in names}
        checkpoint.identity |= self._targets() | {"shape": state.now.W.shape}
        arrays = checkpoint.load()
        if arrays is None:
            return
        D, k = state.now.W.shape
        shapes: dict[str, list[tuple[int, ...]]] = {"W": [(D, k)], "mean": [(D, k)]}
        shapes |= {"loss": [(k,)], "losses": [(-1, k)], "initial": [(k,)]}
        shapes |= {"n_averaged": [()], "epoch": [()], "batch": [()], "heaviest": [()]}
        checkpoint.check(arrays, shapes)
        # By target, as their sizes may differ.
        squares = checkpoint.identity["squares"]
        if np.any(np.abs(arrays["squares"] - squares) > 1e-9 * squares):
            raise checkpoint.foreign("a fit on other targets")
        like = ops_of(state.now.W).float64_like
        state.now = SGDIterate(
            like(arrays["W"], state.now.W),
            like(arrays["mean"], state.now.W),
            like(arrays["loss"], state.now.W),
            arrays["losses"],
            arrays["initial"],
            checkpoint.integer(arrays["n_averaged"]),
            checkpoint.integer(arrays["epoch"]),
            checkpoint.integer(arrays["batch"]),
            float(arrays["heaviest"]),
        )

    def _targets(self) -> dict[str, np.ndarray]:
        """Return arrays that identify the targets, from the first batch of an epoch."""
        W = self.state.now.W
        ops = ops_of(self.state.now.W)
        n_rows = self.solver._max_batch(self.state.weight_sum)
        batch = next(iter(self.rows.batches(n_rows, 0)))
        zeros = ops.float64_zeros(W.shape, W)
        gradient, loss, _ = self.rows.gradient(batch, zeros)
        sums = (loss, gradient.sum(axis=0), abs(gradient).sum(axis=0))
        squares, cross, sizes = (ops.to_host(value) for value in sums)
        return {"squares": squares, "cross": cross / np.where(sizes > 0, sizes, 1.0)}
