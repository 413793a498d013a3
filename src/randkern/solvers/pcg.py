"""Preconditioned conjugate gradients on several right-hand sides at once."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, ClassVar, Protocol

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval

from randkern.backend.namespace import ops_of
from randkern.solvers._checkpoint import Checkpoint
from randkern.solvers._directions import normalised, orthonormal, squared_sizes
from randkern.solvers._iterate import Iterate, Loss, Progress, resumed
from randkern.solvers._solution import Outcome, Solution
from randkern.solvers.early_stopping import Best

__all__ = ["PCG", "Loss", "Operator", "Progress", "SpectralPreconditioner"]

_LEAST_GAIN = 1e-5
_LEAST_RANK, _MOST_RANK = 64, 600
_RESIDUAL_TOL = 1e-6
_LOSS_TOL = 2e-2
_FAILURES = (Outcome.ITERATION_LIMIT, Outcome.ILL_CONDITIONED, Outcome.ROUNDED)
# A residual that is computed anew must have fallen by this factor since it last was.
_PROGRESS = 0.5


class Operator(Protocol):
    """A symmetric positive semi-definite matrix A known by its products.

    Arrays of `size` rows are NumPy's or tensors, as the right-hand side is.
    """

    @property
    def size(self) -> int:
        """Number of rows of A."""

    def matmat(self, V: Any) -> Any:
        """Return AV in float64 for V of shape (size, k)."""

    def leading_eigenpairs(self, rank: int) -> tuple[np.ndarray, Any]:
        """Return estimates of at most `rank` leading eigenpairs.

        Eigenvalues are a NumPy array and fall; eigenvectors are orthonormal columns of
        shape (size, rank), float32 or float64.
        """


@dataclass(frozen=True)
class SpectralPreconditioner:
    """P⁻¹ = I + U diag((λ_l + α)/(λ_i + α) − 1) Uᵀ.

    The leading eigenvalues are brought down to the last one that is known,
    λ_l, which stands for the rest of the spectrum: without it the iteration
    would not converge.
    """

    vectors: Any
    gains: Any

    @classmethod
    def of(
        cls, eigenvalues: np.ndarray, vectors: Any, shift: float
    ) -> SpectralPreconditioner:
        tail = float(eigenvalues[-1]) + shift
        # Vectors that are orthonormal to single precision only keep P⁻¹ positive
        # as long as no direction is shrunk by more than this.
        gains = np.maximum(tail / (eigenvalues + shift), _LEAST_GAIN)
        return cls(vectors, ops_of(vectors).float64_like(gains - 1.0, vectors))

    def apply(self, R: Any) -> Any:
        """Return P⁻¹R."""
        ops, vectors = ops_of(R), self.vectors
        inner = ops.as_float64(vectors.T @ ops.asarray(R, vectors))
        inner *= self.gains[:, None]
        return R + vectors @ ops.asarray(inner, vectors)

    def apply_root(self, Z: Any) -> Any:
        """Return Z P^(−1/2), for rows Z."""
        roots = ops_of(Z).asarray((self.gains + 1.0) ** 0.5 - 1.0, Z)
        return Z + ((Z @ self.vectors) * roots) @ self.vectors.T


@dataclass(frozen=True)
class PCGState:
    """An operator, its shift, and the preconditioner built for them."""

    operator: Operator
    shift: float
    preconditioner: SpectralPreconditioner | None

    @property
    def precision(self) -> float:
        """The share of its largest value below which vᵀAv is rounding."""
        return float(getattr(self.operator, "precision", np.finfo(float).eps))

    @property
    def rounding(self) -> float:
        """The precision of products with A."""
        return float(getattr(self.operator, "rounding", np.finfo(float).eps))


class PCG(BaseEstimator):
    """Solve (A + shift·I)X = B by block conjugate gradients.

    One product with A serves all columns of B; the search directions of all
    columns are combined (O'Leary 1980, "The block conjugate gradient
    algorithm"), each block being orthonormalised so that dependent columns do
    no harm (Dubrulle 2001). Blocks of directions stay where the right-hand sides
    are, arrays or tensors on a device; k × k matrices are decomposed on the host.

    Parameters
    ----------
    tol : float or None
        Stop when ‖b − Ax‖ ≤ tol·‖b‖ for every column, and the loss, where there is
        one, is within `loss_tol` (None: 0.02) of its minimum: the residual of one row
        with an enormous weight hides those of all others. The error of X may be
        larger by the condition number of what the preconditioner leaves: where
        the shift is tiny, ask for less. In float32 some 1e-5 can be reached.
        None: stop by the loss, where there is one, else at 1e-6.
    loss_tol : float or None
        Stop when the loss Σ_i w_i (y_i − z_i·W)² + α‖W‖² of every target is
        within this share of its minimum (see :class:`Loss`). The excess r·(A +
        shift·I)⁻¹r is at most ‖r‖²/shift, r being the residual; mostly it is far
        less, and is estimated from the decreases Δ_j of the loss, which conjugate
        gradients know exactly, as S·max(Δ_{k−2}, Δ_{k−1}, Δ_k) with the largest S =
        Σ_{i≥j} Δ_i/Δ_j of all j so far (after Meurant, Papež and Tichý 2021,
        "Accurate error estimation in CG"), raised a little towards the bound.
        None: 0.02 if `tol` is None too, else the residual alone decides. At 0.02
        predictions differ from the minimiser's by a seventh of the residuals'
        standard deviation. For classifiers it is a share of the labels' variance.
    max_iter : int
    rank : int or None
        Number of eigenpairs in the preconditioner; None: a 32nd of the
        size of A, from 64 (or a quarter of it) to 600. 0 uses none.
    validation_fraction : float or None
        Share of the rows that a model holds out to stop by: when their error has
        not fallen for `patience` iterations, the best weights so far are taken. The
        loss does not stop the iteration then, unless `loss_tol` is given.
    patience : int
    callback : callable, optional
        Called with a :class:`Progress` after every iteration; returning True
        stops.

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

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "tol": [Interval(Real, 0, None, closed="left"), None],
        "loss_tol": [Interval(Real, 0, None, closed="left"), None],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "rank": [Interval(Integral, 0, None, closed="left"), None],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither"), None],
        "patience": [Interval(Integral, 1, None, closed="left")],
        "callback": [callable, None],
    }

    def __init__(
        self,
        tol: float | None = None,
        loss_tol: float | None = None,
        max_iter: int = 200,
        rank: int | None = None,
        validation_fraction: float | None = None,
        patience: int = 20,
        callback: Callable[[Progress], Any] | None = None,
    ):
        self.tol = tol
        self.loss_tol = loss_tol
        self.max_iter = max_iter
        self.rank = rank
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.callback = callback

    @property
    def is_coarse(self) -> bool:
        """Whether products with an error of 1e-5 are good enough."""
        return self.tol is None or self.tol >= 1e-5

    def chosen_rank(self, size: int) -> int:
        """Return the rank of the preconditioner for a matrix of this size."""
        if self.rank is not None:
            return min(self.rank, size)
        return min(max(size // 32, min(size // 4, _LEAST_RANK)), _MOST_RANK)

    def init(self, operator: Operator, shift: float = 0.0) -> PCGState:
        """Build the preconditioner."""
        self._validate_params()
        rank = self.chosen_rank(operator.size)
        if rank == 0:
            return PCGState(operator, shift, None)
        eigenvalues, vectors = operator.leading_eigenpairs(rank)
        if len(eigenvalues) == 0:
            return PCGState(operator, shift, None)
        return PCGState(
            operator, shift, SpectralPreconditioner.of(eigenvalues, vectors, shift)
        )

    def solve(
        self,
        state: PCGState,
        rhs: Any,
        start: Any = None,
        sizes: np.ndarray | None = None,
        loss: Loss | None = None,
        validate: Callable[[Any], float] | None = None,
        report: Callable[[Progress], Any] | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> Solution:
        """Solve for right-hand sides of shape (n,) or (n, k).

        Parameters
        ----------
        state : PCGState
        rhs : ndarray or tensor
        start : array of the shape of `rhs`, optional
        sizes : ndarray of shape (k,), optional
            What residuals are compared with in place of ‖b‖, where that is larger.
        loss : Loss, optional
        validate : callable, optional
            Returns the validation error of a solution; see `patience`.
        report : callable, optional
            Called beside `callback`.
        checkpoint : Checkpoint, optional
            An iteration that it holds is continued; it is written as the iteration
            goes on and when it is interrupted, and removed at its end.
        """
        began = time.perf_counter()
        ops = ops_of(rhs)
        B = ops.as_float64(rhs.reshape(len(rhs), -1))
        norms = np.sqrt(squared_sizes(B))
        if sizes is not None:
            norms = np.minimum(norms, np.where(sizes > 0, sizes, norms))
        norms[norms == 0] = 1.0
        best = Best(self.patience, validate)
        now = None
        if checkpoint is not None:
            shift = np.float64(state.shift)
            checkpoint.identity |= {"B": ops.to_host(B), "shift": shift}
            now = resumed(checkpoint, best, B)
        if now is None:
            now = self._begin(state, B, start)
        outcome: Outcome | None = self._outcome(state, now, norms, loss)
        least = now
        try:
            while outcome is None and now.iteration < self.max_iter:
                following = self._step(state, now)
                if following is None:
                    outcome, now = Outcome.ILL_CONDITIONED, least
                    break
                now = following
                if now.residual(norms) < least.residual(norms):
                    least = now
                outcome = self._outcome(state, now, norms, loss)
                if outcome is not None:
                    now, outcome = self._verified(state, now, B, norms, loss)
                if best.is_past(now.X):
                    outcome = Outcome.VALIDATED
                if self._tell(state, now, norms, loss, began, report):
                    outcome = Outcome.STOPPED
                if checkpoint is not None and outcome is None and checkpoint.due:
                    checkpoint.save(now.arrays() | best.arrays())
        except (KeyboardInterrupt, SystemExit):
            if checkpoint is not None:
                checkpoint.save(now.arrays() | best.arrays(), interrupted=True)
            raise
        if checkpoint is not None:
            checkpoint.remove()
        if loss is None and outcome is None:
            # The residual may have grown: what it is in a dual system is the error.
            now = replace(now, X=least.X)
        if outcome is None:
            now = replace(now, R=B - self._product(state, now.X))
        value = (now.X if best.value is None else best.value).reshape(rhs.shape)
        return self._solution(value, now, norms, outcome, time.perf_counter() - began)

    def _tell(
        self,
        state: PCGState,
        now: Iterate,
        norms: np.ndarray,
        loss: Loss | None,
        began: float,
        report: Callable[[Progress], Any] | None,
    ) -> bool:
        """Tell all who listen; return whether one of them wants to stop."""
        excess = now.excess(loss, state.shift, state.rounding)
        seconds = time.perf_counter() - began
        at = now.progress(now.residual(norms), excess, seconds)
        listeners = [each for each in (self.callback, report) if each is not None]
        return any([each(at) for each in listeners])

    def _verified(
        self,
        state: PCGState,
        now: Iterate,
        B: Any,
        norms: np.ndarray,
        loss: Loss | None,
    ) -> tuple[Iterate, Outcome | None]:
        """Return the iterate with its true residual, and how the iteration ended.

        Rounding errors may have led the residual of the recurrence away from the true
        one. What is left is then sought from there (the outcome is None), unless that
        has led no further before.
        """
        R = B - self._product(state, now.X)
        drift = squared_sizes(R - now.R)
        true = replace(now, R=R)
        sizes = squared_sizes(B)
        if not np.all(squared_sizes(R) <= np.where(sizes > 0, sizes, 1.0)):
            none = replace(now, X=ops_of(B).zeros(B.shape, B), R=B)
            return none, Outcome.ILL_CONDITIONED
        # The loss is estimated from what the recurrence knows.
        outcome = self._outcome(state, now, norms, loss, true.residual(norms), drift)
        if outcome is not None:
            return true, outcome
        residual = true.residual(norms)
        if residual > _PROGRESS * float(now.residual_then):
            return true, Outcome.ROUNDED
        return now.restarted(R, residual), None

    def _begin(self, state: PCGState, B: Any, start: Any) -> Iterate:
        ops = ops_of(B)
        empty = ops.zeros((len(B), 0), B)
        gains = np.empty((0, B.shape[1]))
        if start is None:
            return Iterate(ops.zeros(B.shape, B), ops.copy(B), empty, empty, gains)
        X = ops.as_float64(ops.copy(start.reshape(B.shape)))
        product = self._product(state, X)
        gained = ops.to_host(((2 * B - product) * X).sum(axis=0))
        return Iterate(X, B - product, empty, empty, gains, gained)

    def _step(self, state: PCGState, now: Iterate) -> Iterate | None:
        """Return the next iterate, None if no direction is left."""
        S = now.R
        if state.preconditioner is not None:
            S = state.preconditioner.apply(S)
        # Conjugate to the last directions, of which PᵀAP = I.
        P = orthonormal(S - now.P @ (now.Q.T @ S))
        if P.shape[1] == 0:
            return None
        Q = self._product(state, P)
        P, Q, largest = normalised(P, Q, state.precision, float(now.largest))
        if P.shape[1] == 0:
            return None
        step = P.T @ now.R
        return Iterate(
            now.X + P @ step,
            now.R - Q @ step,
            P,
            Q,
            np.vstack([now.gains, squared_sizes(step)]),
            now.gained_before,
            largest,
            now.before,
            now.residual_then,
        )

    @staticmethod
    def _product(state: PCGState, V: Any) -> Any:
        out = state.operator.matmat(V)
        out += state.shift * V
        return out

    def _outcome(
        self,
        state: PCGState,
        now: Iterate,
        norms: np.ndarray,
        loss: Loss | None,
        residual: float | None = None,
        drift: np.ndarray | float = 0.0,
    ) -> Outcome | None:
        """Return how the iteration ends here, None if it goes on.

        `residual` is the true one, and `drift` the squares of what the recurrence's
        lacks of it, where they are known.
        """
        judged = loss is not None and state.shift > 0
        tol = _RESIDUAL_TOL if self.tol is None else self.tol
        loss_tol = _LOSS_TOL if self.loss_tol is None else self.loss_tol
        is_left = judged and now.excess(loss, state.shift, state.rounding, drift)
        within = is_left <= loss_tol
        stops = self.loss_tol is not None or (
            self.tol is None and self.validation_fraction is None
        )
        if judged and stops and self.tol is None:
            tol = 0.0
        residual = now.residual(norms) if residual is None else residual
        if residual <= tol and (within or not judged):
            return Outcome.CONVERGED
        return Outcome.LOSS_CONVERGED if judged and stops and within else None

    def _solution(
        self,
        value: Any,
        now: Iterate,
        norms: np.ndarray,
        outcome: Outcome | None,
        seconds: float,
    ) -> Solution:
        residual = now.residual(norms)
        if outcome is None:
            outcome = Outcome.ITERATION_LIMIT
        if outcome in _FAILURES:
            warnings.warn(
                f"{outcome.value} (residual {residual:.2g} after {now.iteration} "
                f"iterations of {self}).",
                ConvergenceWarning,
                stacklevel=3,
            )
        return Solution(value, residual, now.iteration, outcome, seconds=seconds)
