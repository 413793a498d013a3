"""Preconditioned conjugate gradients for several right-hand sides at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral, Real
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
import scipy.linalg
from sklearn.exceptions import ConvergenceWarning

from randkern._sklearn import Interval
from randkern._validation import Array
from randkern._warnings import warn
from randkern.backend.namespace import ops_of
from randkern.solvers.iteration import (
    Callback,
    IterativeSolver,
    Outcome,
    Progress,
    Solution,
    iterate,
)
from randkern.solvers.stopping import Loss, relative_excess


def squared_sizes(S: Array) -> np.ndarray:
    """Return the squared norms of columns, on the host."""
    return ops_of(S).to_host((S * S).sum(axis=0))


def orthonormal(S: Array) -> Array:
    """Return an orthonormal basis of the span of S, without dependent columns."""
    ops = ops_of(S)
    scale = np.sqrt(squared_sizes(S))
    nonzero = np.flatnonzero(scale > 0)
    if len(nonzero) < len(scale):
        S = ops.take(S.T, nonzero).T
        scale = scale[nonzero]
    if len(nonzero) == 0:
        return S
    basis, triangle = ops.algebra.qr(S / ops.float64_like(scale, S))
    # By descending independent part: pivoting the factor pivots the columns.
    rotation, triangle, _ = scipy.linalg.qr(
        ops.to_host(triangle), pivoting=True, check_finite=False
    )
    added = np.abs(np.diagonal(triangle))
    rotation = rotation[:, : int(np.sum(added > 1e-10 * added[0]))]
    return basis @ ops.float64_like(rotation, basis)


def normalised(
    P: Array, Q: Array, precision: float, largest: float
) -> tuple[Array, Array, float]:
    """Rescale P and Q = AP so that PᵀQ = I, dropping directions with negligible pᵀAp.

    Along those the step length would be rounding error. Also returns the largest pᵀAp
    so far.
    """
    ops = ops_of(P)
    inner = ops.to_host(P.T @ Q)
    values, vectors = scipy.linalg.eigh((inner + inner.T) / 2)
    largest = max(values[-1], largest, np.finfo(float).tiny)
    significant = values > precision * largest
    transform = ops.float64_like(
        vectors[:, significant] / np.sqrt(values[significant]), P
    )
    return P @ transform, Q @ transform, largest


@dataclass(frozen=True)
class Iterate:
    """The state after an iteration, which the next one does not modify."""

    X: Array
    R: Array
    P: Array
    Q: Array
    # The decreases of the loss by each step, (iterations, k), and by the start, (k,).
    gains: np.ndarray
    initial_gain: np.ndarray | float = 0.0
    # The largest pᵀAp of a direction of length 1.
    largest_energy: np.ndarray | float = 0.0
    # The sum of the lengths of all steps, (k,).
    path: np.ndarray | float = 0.0
    # The number of steps before R was last recomputed, and the residual then.
    restart_iteration: np.ndarray | int = 0
    restart_residual: np.ndarray | float = np.inf

    @property
    def iteration(self) -> int:
        return len(self.gains)

    @cached_property
    def _squares(self) -> np.ndarray:
        return squared_sizes(self.R)

    def residual(self, norms: np.ndarray) -> float:
        return float(np.max(np.sqrt(self._squares) / norms, initial=0.0))

    @property
    def gained(self) -> np.ndarray:
        """The decrease of the loss so far, (k,)."""
        return self.gains.sum(axis=0) + self.initial_gain

    def drift_squares(self, state: PCGState) -> np.ndarray:
        """Bound the squared norms of the difference between R and B − AX, (k,)."""
        size = np.maximum(state.largest, self.largest_energy)
        return np.square(_DRIFT * state.rounding * size * self.path)

    def excess(
        self,
        loss: Loss | None,
        state: PCGState,
        drift_squares: np.ndarray | float = 0.0,
    ) -> float:
        """Estimate the largest relative excess of the loss over its minimum.

        `drift_squares` holds the squared norms of the difference between R and the true
        residual, (k,).
        """
        if loss is None:
            return np.inf
        return relative_excess(
            loss,
            self.gains[int(self.restart_iteration) :],
            self.gained,
            self._squares,
            state.shift,
            state.rounding,
            drift_squares,
        )


@dataclass(frozen=True)
class Companions:
    """Conjugate gradients for further right-hand sides of the same matrix.

    They share its products, but neither directions nor the decision when to stop:
    traces need fewer iterations than solutions.
    """

    X: Array
    R: Array
    P: Array
    Q: Array
    # The increase of tr(BᵀX) in each step.
    gains: np.ndarray
    # Returns whether tr(BᵀX), which only increases, has nearly ceased to.
    settled: Callable[[np.ndarray], bool]
    # The largest pᵀAp of a direction of length 1.
    largest_energy: float = 0.0

    @property
    def is_solved(self) -> bool:
        """Whether they need no more steps."""
        return len(self.gains) > 1 and self.settled(self.gains)

    @classmethod
    def of(cls, B: Array, settled: Callable[[np.ndarray], bool]) -> Companions:
        """Return the start at X = 0 for right-hand sides (n, s)."""
        ops = ops_of(B)
        no_directions = ops.float64_zeros((len(B), 0), B)
        return cls(
            ops.float64_zeros(B.shape, B),
            B,
            no_directions,
            no_directions,
            np.empty(0),
            settled,
        )

    def directions(self, state: PCGState) -> Array:
        """Return the directions of the next step, none if it is not needed."""
        return self.P[:, :0] if self.is_solved else _directions(self, state)

    def stepped(self, P: Array, Q: Array, precision: float) -> Companions:
        """Return the state after a step along P with Q = AP."""
        if not P.shape[1] or not ops_of(Q).is_finite(Q):
            return self
        P, Q, largest = normalised(P, Q, precision, self.largest_energy)
        step = P.T @ self.R
        gains = np.append(self.gains, squared_sizes(step).sum())
        return replace(
            self,
            X=self.X + P @ step,
            R=self.R - Q @ step,
            P=P,
            Q=Q,
            gains=gains,
            largest_energy=largest,
        )


def _directions(now: Iterate | Companions, state: PCGState) -> Array:
    """Return directions conjugate to the last ones, which satisfy PᵀAP = I."""
    S = now.R
    if state.preconditioner is not None:
        S = state.preconditioner.apply(S)
    return orthonormal(S - now.P @ (now.Q.T @ S))


_MIN_GAIN = 1e-5
_MIN_RANK = 64
_MAX_RANK = 600
_RESIDUAL_TOL = 1e-6
_LOSS_TOL = 2e-2
# Companions stop when two steps add no more than this share to tr(BᵀX). The traces of
# 1 - H_ii are then within 2 %, on tables of 4,000 rows with 1,000 features, after a
# third to half of the iterations.
_TRACE_TOL = 5e-3
# A residual is taken to drift by this many rounding errors of products in every step:
# at most .3 on tables with float32 and 16-bit features, 2.4 at landmarks.
_DRIFT = 4.0
# Recomputed residuals must decrease by this factor from one to the next.
_PROGRESS = 0.5
_FAILURES = (
    Outcome.ITERATION_LIMIT,
    Outcome.ILL_CONDITIONED,
    Outcome.ROUNDED,
    Outcome.JITTERED,
)


def trace_settled(gains: np.ndarray) -> bool:
    """Return whether the last two increases of a trace are a small share of it."""
    return bool(gains[-2:].sum() <= _TRACE_TOL * gains.sum())


class Operator(Protocol):
    """A symmetric positive semi-definite matrix A, given by its products.

    Arrays of `size` rows are NumPy arrays or tensors, like the right-hand side.

    An operator whose products are not those of float64 says so by further attributes:
    `precision`, the share of its largest value below which vᵀAv is rounding error,
    `rounding`, the relative rounding error of products (both 2.2e-16 without them), and
    `noise`, the size of the rounding errors of A itself (0). If a whole matrix like A
    is known, the method `approximation` returns it, and no eigenpairs are asked for.
    """

    @property
    def size(self) -> int:
        """Number of rows of A."""

    def matmat(self, V: Array) -> Array:
        """Return AV in float64 for V of shape (size, k)."""

    def leading_eigenpairs(self, rank: int) -> tuple[np.ndarray, Any]:
        """Return estimates of at most `rank` leading eigenpairs.

        Eigenvalues are a NumPy array, descending; eigenvectors are orthonormal columns
        of shape (size, rank), float32 or float64.
        """


@dataclass(frozen=True)
class SpectralPreconditioner:
    """P⁻¹ = I + U diag((λ_l + α)/(λ_i + α) − 1) Uᵀ.

    The leading eigenvalues are reduced to the last known one, λ_l, as an estimate
    of the rest of the spectrum: without this the iteration would not converge.
    """

    vectors: Array
    gains: Array

    @classmethod
    def of(
        cls, eigenvalues: np.ndarray, vectors: Array, shift: float
    ) -> SpectralPreconditioner:
        tail = float(eigenvalues[-1]) + shift
        # As the vectors are orthonormal only to single precision, P⁻¹ is positive only
        # if no direction is shrunk by more than this.
        gains = np.maximum(tail / (eigenvalues + shift), _MIN_GAIN)
        return cls(vectors, ops_of(vectors).float64_like(gains - 1.0, vectors))

    def apply(self, R: Array) -> Array:
        """Return P⁻¹R."""
        ops = ops_of(R)
        vectors = self.vectors
        product = ops.precise_product
        inner = ops.as_float64(product(vectors.T, ops.asarray(R, vectors)))
        inner *= self.gains[:, None]
        return R + product(vectors, ops.asarray(inner, vectors))


@dataclass(frozen=True)
class FactoredPreconditioner:
    """P⁻¹ = (Ã + αI)⁻¹, of an estimate Ã of A."""

    factor: Array

    @classmethod
    def of(cls, estimate: Array, shift: float) -> FactoredPreconditioner:
        """Overwrite an estimate, of which only the upper triangle is read."""
        ops = ops_of(estimate)
        rounding = np.finfo(float).eps * float(estimate.diagonal().sum())
        ops.algebra.add_to_diagonal(estimate, shift + rounding)
        return cls(ops.algebra.lower_factor(estimate))

    def apply(self, R: Array) -> Array:
        """Return P⁻¹R."""
        return ops_of(R).algebra.factor_solve(self.factor, R)


Preconditioner: TypeAlias = SpectralPreconditioner | FactoredPreconditioner


@dataclass(frozen=True)
class PCGState:
    """An operator, its shift, and the preconditioner built for them."""

    operator: Operator
    shift: float
    preconditioner: Preconditioner | None
    # An estimate of the largest eigenvalue of A, 0 if unknown.
    largest: float = 0.0

    @property
    def precision(self) -> float:
        """The share of its largest value below which vᵀAv is rounding error."""
        return float(getattr(self.operator, "precision", np.finfo(float).eps))

    @property
    def rounding(self) -> float:
        """The relative rounding error of products with A."""
        return float(getattr(self.operator, "rounding", np.finfo(float).eps))

    @property
    def noise(self) -> float:
        """The size of the rounding errors of A: smaller shifts are lost in them."""
        return float(getattr(self.operator, "noise", 0.0))


class PCG(IterativeSolver):
    """Solve (A + shift·I)X = B by block conjugate gradients.

    One product with A serves all columns of B; the search directions of all
    columns are combined (O'Leary 1980, "The block conjugate gradient
    algorithm"), and each block is orthonormalised so that dependent columns do
    no harm (Dubrulle 2001). Blocks of directions are arrays or tensors on the device
    of the right-hand sides; k × k matrices are decomposed on the host.

    If no iterate of a system with the exact kernel is better than 0, and the shift is
    smaller than the rounding errors of A, the iteration starts again with these as the
    shift (``Outcome.JITTERED``), for at most `max_iter` further iterations.

    Parameters
    ----------
    tol : float or None
        Stop when ‖b − Ax‖ ≤ tol·‖b‖ for every column and the loss, if there is
        one, is within `loss_tol` (None: 0.02) of its minimum: the residual of one row
        with an enormous weight hides those of all others. The error of X may be
        larger by the condition number of the preconditioned matrix: choose a
        smaller value if the shift is tiny. Float32 reaches about 1e-5.
        None: stop by the loss, if there is one, otherwise at 1e-6.
    loss_tol : float or None
        Stop when the loss Σ_i w_i (y_i − z_i·W)² + α‖W‖² of every target is within this
        share of its minimum; rows of a million times the weight of others decide it
        alone. The excess r·(A + shift·I)⁻¹r is at most ‖r‖²/shift, r
        being the residual; usually it is far smaller, and is estimated from the
        decreases of the loss, which conjugate gradients give exactly
        (:mod:`randkern.solvers.stopping` has the formulas). None: 0.02 if `tol` is also
        None, otherwise only the residual counts. At 0.02 predictions differ from the
        minimiser's by about a seventh of the residuals' standard deviation at most. For
        classifiers it is a share of the labels' variance.
    max_iter : int
        Maximum number of iterations.
    rank : int or None
        Number of eigenpairs in the preconditioner; None: a 32nd of the
        size of A, from 64 (or a quarter of it) to 600. 0 uses none. With
        landmarks any other number is ignored: their factor makes the preconditioner.
    callback : callable, optional
        Called with a :class:`Progress` after every iteration; returning True stops.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.solvers import PCG
    >>> class Diagonal:
    ...     size = 3
    ...     def matmat(self, V):
    ...         return np.array([[1.0], [2.0], [3.0]]) * V
    >>> solver = PCG(tol=1e-10, rank=0)
    >>> solution = solver.solve(solver.init(Diagonal(), shift=1.0), np.ones(3))
    >>> np.round(1 / solution.value, 6)
    array([2., 3., 4.])
    """

    name = "pcg"

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "tol": [Interval(Real, 0, None, closed="left"), None],
        "loss_tol": [Interval(Real, 0, None, closed="left"), None],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "rank": [Interval(Integral, 0, None, closed="left"), None],
        "callback": [callable, None],
    }

    def __init__(
        self,
        tol: float | None = None,
        loss_tol: float | None = None,
        max_iter: int = 200,
        rank: int | None = None,
        callback: Callback | None = None,
    ):
        self.tol = tol
        self.loss_tol = loss_tol
        self.max_iter = max_iter
        self.rank = rank
        self.callback = callback

    @property
    def is_coarse(self) -> bool:
        """Whether products with an error of 1e-5 are good enough."""
        return self.tol is None or self.tol >= 1e-5

    def chosen_rank(self, size: int) -> int:
        """Return the rank of the preconditioner for a matrix of this size."""
        if self.rank is not None:
            return min(self.rank, size)
        return min(max(size // 32, min(size // 4, _MIN_RANK)), _MAX_RANK)

    def init(self, operator: Operator, shift: float = 0.0) -> PCGState:
        """Build the preconditioner."""
        self._validate_params()
        rank = self.chosen_rank(operator.size)
        preconditioner: Preconditioner | None = None
        largest = 0.0
        if rank > 0:
            estimate = getattr(operator, "approximation", lambda: None)()
            if estimate is not None:
                largest = float(estimate.diagonal().sum())
                preconditioner = FactoredPreconditioner.of(estimate, shift)
                return PCGState(operator, shift, preconditioner, largest)
            eigenvalues, vectors = operator.leading_eigenpairs(rank)
            if len(eigenvalues) > 0:
                preconditioner = SpectralPreconditioner.of(eigenvalues, vectors, shift)
                largest = float(eigenvalues[0])
        return PCGState(operator, shift, preconditioner, largest)

    def solve(
        self,
        state: PCGState,
        rhs: Array,
        start: Array = None,
        sizes: np.ndarray | None = None,
        loss: Loss | None = None,
        callback: Callback | None = None,
        companions: Array = None,
        settled: Callable[[np.ndarray], bool] = trace_settled,
    ) -> Solution:
        """Solve for right-hand sides of shape (n,) or (n, k).

        Parameters
        ----------
        state : PCGState
        rhs : ndarray or tensor
        start : array of the shape of `rhs`, optional
            The first iterate; columns that are worse than 0 are replaced by it.
        sizes : ndarray of shape (k,), optional
            Residuals are compared with the smaller of this and ‖b‖ (0: with ‖b‖). In
            ridge regression by rows ‖r‖ bounds the errors of predictions in units of
            the targets. If ‖b‖ is larger than their deviations, due to a mean far from
            0 or to rows of enormous weight, ‖r‖ ≤ tol·‖b‖ allows errors as large as
            these deviations.
        loss : Loss, optional
        callback : callable, optional
            Called in addition to that of the solver.
        companions : array of shape (n, s), optional
            Further right-hand sides, which take part in products until the trace of
            their solutions' products with them has nearly settled, and do not decide
            when to stop; see `Solution.companions`.
        settled : callable
            Returns whether that trace has nearly settled, for its increases in all
            steps.
        """
        ops = ops_of(rhs)
        B = ops.as_float64(rhs.reshape(len(rhs), -1))
        companion_rhs = (
            ops.float64_zeros((len(B), 0), B) if companions is None else companions
        )
        run = _Run(
            self,
            state,
            B,
            companion_rhs,
            settled,
            start=start,
            sizes=sizes,
            loss=loss,
        )
        callbacks = (self.callback, callback)
        seconds = iterate(run, self.max_iter, callbacks)
        run.finish()
        iterations = run.count
        failed = run.outcome in _FAILURES and run.is_lost
        if failed and state.shift < state.noise:
            # A is not positive definite in floating point.
            shifted = replace(state, shift=state.noise)
            restart = replace(run, state=shifted)
            seconds += iterate(restart, self.max_iter, callbacks)
            restart.finish()
            iterations += restart.count
            if restart.outcome is not Outcome.STOPPED and not restart.is_lost:
                restart.add_jitter(state.noise - state.shift)
                run = restart
        return run.solution(rhs.shape, iterations, seconds)


@dataclass(eq=False)
class _Run:
    """A run of conjugate gradients on (A + shift·I)X = B."""

    solver: PCG
    state: PCGState
    B: Array
    # Right-hand sides of companions, (n, s).
    companion_rhs: Array
    settled: Callable[[np.ndarray], bool]
    start: Array
    sizes: np.ndarray | None
    loss: Loss | None

    def __post_init__(self) -> None:
        sizes = self.sizes
        self.norms = np.sqrt(squared_sizes(self.B))
        if sizes is not None:
            self.norms = np.minimum(self.norms, np.where(sizes > 0, sizes, self.norms))
        self.norms[self.norms == 0] = 1.0
        self.companions = Companions.of(self.companion_rhs, self.settled)
        # The current iterate, and that with the lowest residual.
        self.now = self.lowest = self._begin()
        self.outcome = self._outcome(self.residual)
        self.jitter = 0.0

    def _begin(self) -> Iterate:
        """Return the first iterate: `start`, or zero."""
        B = self.B
        ops = ops_of(self.B)
        empty = ops.float64_zeros((len(B), 0), B)
        gains = np.empty((0, B.shape[1]))
        if self.start is None:
            return Iterate(
                ops.float64_zeros(B.shape, B), ops.copy(B), empty, empty, gains
            )
        X = ops.as_float64(ops.copy(self.start.reshape(B.shape)))
        product = self._product(X)
        gained = ops.to_host(((2 * B - product) * X).sum(axis=0))
        if not np.all(gained >= 0):
            better = ops.float64_like(gained >= 0, B)
            X, product, gained = X * better, product * better, gained.clip(min=0.0)
        return Iterate(X, B - product, empty, empty, gains, gained)

    @property
    def count(self) -> int:
        return self.now.iteration

    @property
    def residual(self) -> float:
        return self.now.residual(self.norms)

    def progress(self, seconds: float) -> Progress:
        excess = self.now.excess(self.loss, self.state)
        return Progress(self.count, self.residual, excess, seconds, self.now.X)

    def advance(self) -> bool:
        """Take a step; False if no direction is left."""
        following, self.companions = self._step()
        if following is None:
            self.outcome = Outcome.ILL_CONDITIONED
            self.now = self.lowest
            return False
        self.now = following
        if self.residual < self.lowest.residual(self.norms):
            self.lowest = self.now
        self.outcome = self._outcome(self.residual)
        if self.outcome is not None:
            drift_squares = self.now.drift_squares(self.state)
            if self._outcome(np.inf, drift_squares) is None:
                self._verify()
        return True

    def finish(self) -> None:
        """Set the outcome, and the solution at the limit of iterations."""
        if self.start is not None and self.outcome is not Outcome.STOPPED:
            self._solve_companions()
        if self.outcome is None:
            if self.loss is None:
                # The residual may have increased: in a dual system it is the error.
                self.now = replace(self.now, X=self.lowest.X)
            R = self.B - self._product(self.now.X)
            self.now = replace(self.now, R=R)
            self.outcome = Outcome.ITERATION_LIMIT

    def _solve_companions(self) -> None:
        """Solve for the companions alone, if the solution has taken too few steps."""
        precision = self.state.precision
        for _ in range(self.solver.max_iter):
            P = self.companions.directions(self.state)
            if not P.shape[1]:
                break
            self.companions = self.companions.stepped(P, self._product(P), precision)

    @property
    def is_lost(self) -> bool:
        """Whether a finished run on a dual system has found nothing better than 0."""
        of_zero = float(np.max(np.sqrt(squared_sizes(self.B)) / self.norms))
        return self.loss is None and self.residual >= of_zero

    def add_jitter(self, jitter: float) -> None:
        """Say which part of the shift is jitter: the residual is that without."""
        self.jitter = jitter
        self.now = replace(self.now, R=self.now.R + jitter * self.now.X)
        if self.outcome is Outcome.CONVERGED:
            self.outcome = Outcome.JITTERED

    def solution(
        self, shape: tuple[int, ...], iterations: int, seconds: float
    ) -> Solution:
        """Return the solution of a finished run; warn unless it is near the minimum."""
        assert self.outcome is not None
        if self.outcome in _FAILURES:
            added = f", jitter {self.jitter:.3g}" if self.jitter > 0 else ""
            warn(
                f"{self.outcome.value} (residual {self.residual:.2g} after "
                f"{iterations} iterations of {self.solver}{added}).",
                ConvergenceWarning,
            )
        return Solution(
            self.now.X.reshape(shape),
            self.residual,
            iterations,
            self.outcome,
            self.jitter,
            seconds,
            self.companions.X,
        )

    def _step(self) -> tuple[Iterate | None, Companions]:
        """Return the next iterate, None if no direction is left, and companions."""
        now = self.now
        state = self.state
        companions = self.companions
        P = _directions(now, state)
        if P.shape[1] == 0:
            return None, companions
        companion_directions = companions.directions(state)
        products = self._product(ops_of(P).hstack([P, companion_directions]))
        Q = products[:, : P.shape[1]]
        companions = companions.stepped(
            companion_directions, products[:, P.shape[1] :], state.precision
        )
        P, Q, largest = normalised(P, Q, state.precision, float(now.largest_energy))
        if P.shape[1] == 0:
            return None, companions
        step = P.T @ now.R
        change = P @ step
        following = replace(
            now,
            X=now.X + change,
            R=now.R - Q @ step,
            P=P,
            Q=Q,
            gains=np.vstack([now.gains, squared_sizes(step)]),
            largest_energy=largest,
            path=now.path + np.sqrt(squared_sizes(change)),
        )
        return following, companions

    def _product(self, V: Array) -> Array:
        out = self.state.operator.matmat(V)
        out += self.state.shift * V
        return out

    def _outcome(
        self, residual: float, drift_squares: np.ndarray | float = 0.0
    ) -> Outcome | None:
        """Return the outcome, None if the iteration continues.

        `drift_squares` holds the squared norms of the difference between the residual
        of the recurrence and the true one, if known.
        """
        solver, state = self.solver, self.state
        has_loss = self.loss is not None and state.shift > 0
        stops_by_loss = has_loss and (solver.loss_tol is not None or solver.tol is None)
        within = True
        if has_loss:
            loss_tol = _LOSS_TOL if solver.loss_tol is None else solver.loss_tol
            within = self.now.excess(self.loss, state, drift_squares) <= loss_tol
        tol = solver.tol
        if tol is None:
            tol = 0.0 if stops_by_loss else _RESIDUAL_TOL
        if residual <= tol and within:
            return Outcome.CONVERGED
        return Outcome.LOSS_CONVERGED if stops_by_loss and within else None

    def _verify(self) -> None:
        """Set the outcome by the true residual.

        Due to rounding errors the residual of the recurrence may differ from the true
        one. The iteration then restarts from the true one (the outcome is None), unless
        the last restart made no progress.
        """
        B, now = self.B, self.now
        R = B - self._product(now.X)
        verified = replace(now, R=R)
        sizes = squared_sizes(B)
        if not np.all(squared_sizes(R) <= np.where(sizes > 0, sizes, 1.0)):
            self.now = replace(now, X=ops_of(B).float64_zeros(B.shape, B), R=B)
            self.outcome = Outcome.ILL_CONDITIONED
            return
        # The loss is estimated from the recurrence.
        residual = verified.residual(self.norms)
        self.outcome = self._outcome(residual, squared_sizes(R - now.R))
        self.now = verified
        if self.outcome is None:
            if residual > _PROGRESS * float(now.restart_residual):
                self.outcome = Outcome.ROUNDED
            else:
                no_directions = ops_of(R).float64_zeros((len(R), 0), R)
                self.now = replace(
                    verified,
                    P=no_directions,
                    Q=no_directions,
                    restart_iteration=now.iteration,
                    restart_residual=residual,
                )
