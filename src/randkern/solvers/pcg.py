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

from randkern.solvers._best import Best
from randkern.solvers._checkpoint import Checkpoint
from randkern.solvers._directions import normalised, orthonormal
from randkern.solvers._solution import Outcome, Solution

__all__ = ["PCG", "Loss", "Operator", "Progress", "SpectralPreconditioner"]

_LEAST_GAIN = 1e-5
_LEAST_RANK, _MOST_RANK = 64, 600
_RESIDUAL_TOL = 1e-6
_LOSS_TOL = 2e-2
# What is left of the loss is estimated by the largest of so many last decreases.
_LAST = 3
# What is left of the loss is compared with no more than so many times what was gained.
_LITTLE = 10.0
# The residual of the recurrence may be smaller than the true one by this factor.
_UNTRUE = 100.0


class Operator(Protocol):
    """A symmetric positive semi-definite matrix A known by its products."""

    @property
    def size(self) -> int:
        """Number of rows of A."""

    def matmat(self, V: np.ndarray) -> np.ndarray:
        """Return AV in float64 for V of shape (size, k)."""

    def leading_eigenpairs(self, rank: int) -> tuple[np.ndarray, np.ndarray]:
        """Return estimates of at most `rank` leading eigenpairs.

        Eigenvalues fall; eigenvectors are orthonormal columns of shape (size,
        rank), float32 or float64.
        """


@dataclass(frozen=True)
class SpectralPreconditioner:
    """P⁻¹ = I + U diag((λ_l + α)/(λ_i + α) − 1) Uᵀ.

    The leading eigenvalues are brought down to the last one that is known,
    λ_l, which stands for the rest of the spectrum: without it the iteration
    would not converge.
    """

    vectors: np.ndarray
    gains: np.ndarray

    @classmethod
    def of(
        cls, eigenvalues: np.ndarray, vectors: np.ndarray, shift: float
    ) -> SpectralPreconditioner:
        tail = float(eigenvalues[-1]) + shift
        # Vectors that are orthonormal to single precision only keep P⁻¹ positive
        # as long as no direction is shrunk by more than this.
        gains = np.maximum(tail / (eigenvalues + shift), _LEAST_GAIN)
        return cls(vectors, gains - 1.0)

    def apply(self, R: np.ndarray) -> np.ndarray:
        """Return P⁻¹R."""
        inner = (self.vectors.T @ R.astype(self.vectors.dtype)).astype(np.float64)
        inner *= self.gains[:, None]
        return R + self.vectors @ inner.astype(self.vectors.dtype)

    def apply_root(self, Z: np.ndarray) -> np.ndarray:
        """Return Z P^(−1/2), for rows Z."""
        roots = np.sqrt(self.gains + 1.0) - 1.0
        return Z + ((Z @ self.vectors) * roots.astype(Z.dtype)) @ self.vectors.T


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


@dataclass(frozen=True)
class Loss:
    """What the iteration minimises: initial + x·(A + shift·I)x − 2b·x.

    Attributes
    ----------
    initial : ndarray of shape (k,)
        The loss of X = 0, Σ_i w_i y_i².
    least : float
        A loss below this share of `spread` counts as this share: where 99.9 % of the
        variance is explained, the rest need not be known as well; and labels coded as
        ±1 are told apart long before they are met, so that 1 is enough for them.
    spread : ndarray of shape (k,), optional
        The loss of the best constants, Σ_i w_i (y_i − ȳ)²; None: `initial`.
    caution : float
        The estimate of what is left is multiplied by this power of the ratio of the
        bound to it: 0 takes the estimate, 1 the bound.
    """

    initial: np.ndarray
    least: float = 1e-3
    spread: np.ndarray | None = None
    caution: float = 1 / 8


@dataclass(frozen=True)
class Progress:
    """Where an iteration stands: what a callback is told.

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
    value : ndarray
        The solution so far.
    """

    iteration: int
    residual: float
    excess: float
    seconds: float
    value: np.ndarray


class PCG(BaseEstimator):
    """Solve (A + shift·I)X = B by block conjugate gradients.

    One product with A serves all columns of B; the search directions of all
    columns are combined (O'Leary 1980, "The block conjugate gradient
    algorithm"), each block being orthonormalised so that dependent columns do
    no harm (Dubrulle 2001).

    Parameters
    ----------
    tol : float or None
        Stop when ‖b − Ax‖ ≤ tol·‖b‖ for every column. The error of X may be
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
        rhs: np.ndarray,
        start: np.ndarray | None = None,
        loss: Loss | None = None,
        validate: Callable[[np.ndarray], float] | None = None,
        report: Callable[[Progress], Any] | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> Solution:
        """Solve for right-hand sides of shape (n,) or (n, k).

        Parameters
        ----------
        state : PCGState
        rhs : ndarray
        start : ndarray of the shape of `rhs`, optional
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
        B = rhs.reshape(len(rhs), -1).astype(np.float64)
        norms = np.linalg.norm(B, axis=0)
        norms[norms == 0] = 1.0
        best = Best(self.patience, validate)
        now = None
        if checkpoint is not None:
            checkpoint.identity |= {"B": B, "shift": np.float64(state.shift)}
            now = _resumed(checkpoint, best)
        if now is None:
            now = self._begin(state, B, start)
        outcome: Outcome | None = self._outcome(now, norms, loss, state.shift)
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
                outcome = self._outcome(now, norms, loss, state.shift)
                if best.is_past(now.X):
                    outcome = Outcome.VALIDATED
                seconds = time.perf_counter() - began
                if self._tell(now.progress(norms, loss, state.shift, seconds), report):
                    outcome = Outcome.STOPPED
                if checkpoint is not None and outcome is None and checkpoint.due:
                    checkpoint.save(now.arrays() | best.arrays())
        except (KeyboardInterrupt, SystemExit):
            if checkpoint is not None:
                checkpoint.save(now.arrays() | best.arrays())
            raise
        if checkpoint is not None:
            checkpoint.remove()
        if outcome is Outcome.CONVERGED and now.iteration:
            now, outcome = self._verified(state, now, B, norms)
        if loss is None and outcome is None:
            # The residual may have grown: what it is in a dual system is the error.
            now = replace(now, X=least.X, R=least.R)
        value = now.X if best.value is None else best.value
        return self._solution(
            *(value.reshape(rhs.shape), now, norms, outcome),
            time.perf_counter() - began,
        )

    def _tell(self, at: Progress, report: Callable[[Progress], Any] | None) -> bool:
        """Tell all who listen; return whether one of them wants to stop."""
        listeners = [each for each in (self.callback, report) if each is not None]
        return any([each(at) for each in listeners])

    def _verified(
        self, state: PCGState, now: _Iterate, B: np.ndarray, norms: np.ndarray
    ) -> tuple[_Iterate, Outcome]:
        """Return the iterate with its true residual, which rounding may have left."""
        now = replace(now, R=B - self._product(state, now.X))
        tol = max(_RESIDUAL_TOL if self.tol is None else self.tol, state.precision)
        if now.residual(norms) <= _UNTRUE * tol:
            return now, Outcome.CONVERGED
        if not now.residual(norms) <= 1.0:
            now = replace(now, X=np.zeros_like(now.X), R=B)
        return now, Outcome.ILL_CONDITIONED

    def _begin(
        self, state: PCGState, B: np.ndarray, start: np.ndarray | None
    ) -> _Iterate:
        empty = np.empty((len(B), 0))
        gains = np.empty((0, B.shape[1]))
        if start is None:
            return _Iterate(np.zeros_like(B), B.copy(), empty, empty, gains)
        X = start.reshape(B.shape).astype(np.float64)
        product = self._product(state, X)
        gained = np.sum((2 * B - product) * X, axis=0)
        return _Iterate(X, B - product, empty, empty, gains, gained)

    def _step(self, state: PCGState, now: _Iterate) -> _Iterate | None:
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
        return _Iterate(
            now.X + P @ step,
            now.R - Q @ step,
            P,
            Q,
            np.vstack([now.gains, np.sum(step**2, axis=0)]),
            now.gained_before,
            largest,
        )

    @staticmethod
    def _product(state: PCGState, V: np.ndarray) -> np.ndarray:
        out = state.operator.matmat(V)
        out += state.shift * V
        return out

    def _outcome(
        self, now: _Iterate, norms: np.ndarray, loss: Loss | None, shift: float
    ) -> Outcome | None:
        tol, loss_tol = self.tol, self.loss_tol
        if tol is None:
            tol = _RESIDUAL_TOL
            if loss_tol is None and self.validation_fraction is None:
                loss_tol = _LOSS_TOL
            if loss is not None and loss_tol is not None and shift > 0:
                # A small residual may hide a part of a target that is small itself.
                tol = 0.0
        if now.residual(norms) <= tol:
            return Outcome.CONVERGED
        if loss_tol is not None and now.excess(loss, shift) <= loss_tol:
            return Outcome.LOSS_CONVERGED
        return None

    def _solution(
        self,
        value: np.ndarray,
        now: _Iterate,
        norms: np.ndarray,
        outcome: Outcome | None,
        seconds: float,
    ) -> Solution:
        residual = now.residual(norms)
        if outcome is None:
            outcome = Outcome.ITERATION_LIMIT
        if outcome in (Outcome.ITERATION_LIMIT, Outcome.ILL_CONDITIONED):
            warnings.warn(
                f"{outcome.value} (residual {residual:.2g} after {now.iteration} "
                f"iterations of {self}).",
                ConvergenceWarning,
                stacklevel=3,
            )
        return Solution(value, residual, now.iteration, outcome, seconds=seconds)


@dataclass(frozen=True)
class _Iterate:
    """A step of the iteration: nothing of it is changed by the next."""

    X: np.ndarray
    R: np.ndarray
    P: np.ndarray
    Q: np.ndarray
    gains: np.ndarray
    gained_before: np.ndarray | float = 0.0
    # The largest pᵀAp of a direction of length 1.
    largest: np.ndarray | float = 0.0

    @property
    def iteration(self) -> int:
        return len(self.gains)

    def residual(self, norms: np.ndarray) -> float:
        return float(np.max(np.linalg.norm(self.R, axis=0) / norms, initial=0.0))

    def excess(self, loss: Loss | None, shift: float) -> float:
        """Estimate the largest share by which the loss is above its minimum."""
        if loss is None:
            return np.inf
        spread = loss.initial if loss.spread is None else loss.spread
        gained = self.gains.sum(axis=0) + self.gained_before
        # Where nearly all is explained, the rest need not be known as well ...
        least = loss.least * np.where(spread > 0, spread, loss.initial)
        scale = np.maximum(loss.initial - gained, least)
        # ... but where little can be explained, most of that little should be.
        scale = np.minimum(scale, _LITTLE * gained)
        squares = np.sum(self.R**2, axis=0)
        left = squares / shift if shift > 0 else np.where(squares > 0, np.inf, 0.0)
        if len(self.gains) > _LAST + 1 and shift > 0:
            # Decreases come in bursts: plateaus so far tell how long the next may be.
            gains = np.maximum(self.gains, np.finfo(float).tiny)
            following = np.cumsum(gains[::-1], axis=0)[::-1]
            burst = np.max(following / gains, axis=0)
            estimate = burst * gains[-_LAST:].max(axis=0)
            raised = np.maximum(left / estimate, 1.0) ** loss.caution * estimate
            left = np.minimum(left, raised)
        known = (scale > 0) | (left == 0)
        shares = np.where(known, left / np.where(scale > 0, scale, 1.0), np.inf)
        return float(shares.max(initial=0.0))

    def progress(
        self, norms: np.ndarray, loss: Loss | None, shift: float, seconds: float
    ) -> Progress:
        residual, excess = self.residual(norms), self.excess(loss, shift)
        return Progress(self.iteration, residual, excess, seconds, self.X)

    def arrays(self) -> dict[str, np.ndarray]:
        names = self.__dataclass_fields__
        return {name: np.asarray(getattr(self, name)) for name in names}


def _resumed(checkpoint: Checkpoint, best: Best) -> _Iterate | None:
    """Return the iterate that a checkpoint holds, if it is one of this system."""
    arrays = checkpoint.load()
    if arrays is None:
        return None
    names = list(_Iterate.__dataclass_fields__)
    checkpoint.check(arrays, names)
    best.restore(arrays)
    return _Iterate(**{name: arrays[name] for name in names})
