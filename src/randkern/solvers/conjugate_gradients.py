"""Block conjugate gradients: iterates, the loss that they lower, and the steps.

Blocks of directions stay where the right-hand sides are; k × k matrices are decomposed
on the host.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg

from randkern.backend.namespace import ops_of
from randkern.solvers._checkpoint import Checkpoint
from randkern.solvers._solution import Outcome
from randkern.solvers.early_stopping import EarlyStopping
from randkern.solvers.iteration import Progress

__all__ = ["ConjugateGradients", "Iterate", "Loss"]

# What is left of the loss is estimated by the largest of so many last decreases.
_LAST = 5
# What is left of the loss is compared with no more than so many times what was gained.
_LITTLE = 10.0
# Decreases are known up to so many rounding errors of the largest.
_ROUNDED = 16.0
# A residual that is recomputed must have fallen by this factor since it last was.
_PROGRESS = 0.5


def squared_sizes(S: Any) -> np.ndarray:
    """Return the squared norms of columns, on the host."""
    return ops_of(S).to_host((S * S).sum(axis=0))


def orthonormal(S: Any) -> Any:
    """Return an orthonormal basis of the columns of S that are not dependent."""
    ops = ops_of(S)
    scale = np.sqrt(squared_sizes(S))
    kept = np.flatnonzero(scale > 0)
    if len(kept) < len(scale):
        S, scale = ops.take(S.T, kept).T, scale[kept]
    if len(kept) == 0:
        return S
    basis, triangle = ops.algebra.qr(S / ops.float64_like(scale, S))
    # What each column adds, descending: pivoting the factor pivots the columns.
    rotation, triangle, _ = scipy.linalg.qr(
        ops.to_host(triangle), pivoting=True, check_finite=False
    )
    added = np.abs(np.diagonal(triangle))
    rotation = rotation[:, : int(np.sum(added > 1e-10 * added[0]))]
    return basis @ ops.float64_like(rotation, basis)


def normalised(
    P: Any, Q: Any, precision: float, largest: float
) -> tuple[Any, Any, float]:
    """Rescale P and Q = AP so that PᵀQ = I, without directions that A shrinks to noise.

    A step along one of them is as long as rounding likes. Returns the largest pᵀAp so
    far, too.
    """
    ops = ops_of(P)
    inner = ops.to_host(P.T @ Q)
    values, vectors = scipy.linalg.eigh((inner + inner.T) / 2)
    largest = max(values[-1], largest, np.finfo(float).tiny)
    kept = values > precision * largest
    transform = ops.float64_like(vectors[:, kept] / np.sqrt(values[kept]), P)
    return P @ transform, Q @ transform, largest


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
    most : ndarray of shape (k,), optional
        A larger loss counts as this. What rows of enormous weight add to the loss says
        nothing of how well the others are met: this is the initial loss without them.
    caution : float
        The estimate of what is left is multiplied by this power of the ratio of the
        bound to it: 0 takes the estimate, 1 the bound.
    """

    initial: np.ndarray
    least: float = 1e-3
    spread: np.ndarray | None = None
    most: np.ndarray | None = None
    caution: float = 1 / 4

    def scale(self, gained: np.ndarray, rounding: float) -> np.ndarray:
        """Return what is left of the loss may be compared with, (k,)."""
        spread = self.initial if self.spread is None else self.spread
        # Where nearly all is explained, the rest need not be known as well ...
        least = self.least * np.where(spread > 0, spread, self.initial)
        known = self.initial - gained - _ROUNDED * rounding * self.initial
        scale = np.maximum(known, least)
        if self.most is not None:
            scale = np.minimum(scale, self.most)
        # ... but where little can be explained, most of that little should be.
        return np.minimum(scale, _LITTLE * gained)


@dataclass(frozen=True)
class Iterate:
    """A step of the iteration: nothing of it is changed by the next.

    X, R, P and Q lie where the right-hand sides do.
    """

    X: Any
    R: Any
    P: Any
    Q: Any
    gains: np.ndarray
    gained_before: np.ndarray | float = 0.0
    # The largest pᵀAp of a direction of length 1.
    largest: np.ndarray | float = 0.0
    # Steps taken before R was last recomputed, and the residual then.
    before: np.ndarray | int = 0
    residual_then: np.ndarray | float = np.inf

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
        """By how much the loss has fallen, (k,)."""
        return self.gains.sum(axis=0) + self.gained_before

    def left(self, loss: Loss, shift: float) -> np.ndarray:
        """Estimate by how much the loss is above its minimum, (k,)."""
        squares = self._squares
        left = squares / shift if shift > 0 else np.where(squares > 0, np.inf, 0.0)
        gains = self.gains[int(self.before) :]
        if len(gains) <= _LAST + 1 or shift <= 0:
            return left
        # Decreases come in bursts: plateaus so far tell how long the next may be.
        gains = np.maximum(gains, np.finfo(float).tiny)
        following = np.cumsum(gains[::-1], axis=0)[::-1]
        burst = np.max(following / gains, axis=0)
        estimate = burst * gains[-_LAST:].max(axis=0)
        raised = np.maximum(left / estimate, 1.0) ** loss.caution * estimate
        return np.minimum(left, raised)

    def excess(
        self,
        loss: Loss | None,
        shift: float,
        rounding: float,
        drift: np.ndarray | float = 0.0,
    ) -> float:
        """Estimate the largest share by which the loss is above its minimum.

        `drift` are the squares of what R lacks of the true residual, (k,).
        """
        if loss is None:
            return np.inf
        scale, left = loss.scale(self.gained, rounding), self.left(loss, shift)
        if shift > 0:
            left = (np.sqrt(left) + np.sqrt(drift / shift)) ** 2
        known = (scale > 0) | (left == 0)
        shares = np.where(known, left / np.where(scale > 0, scale, 1.0), np.inf)
        return float(shares.max(initial=0.0))

    def restarted(self, R: Any, residual: float) -> Iterate:
        """Return the iterate with its true residual, and no directions."""
        none = ops_of(R).zeros((len(R), 0), R)
        return replace(
            self,
            R=R,
            P=none,
            Q=none,
            before=self.iteration,
            residual_then=residual,
        )

    def arrays(self) -> dict[str, np.ndarray]:
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: ops_of(value).to_host(value) for name, value in values.items()}


class ConjugateGradients:
    """Block conjugate gradients on (A + shift·I)X = B, under way.

    Parameters
    ----------
    state : PCGState
        The operator, the shift and the preconditioner.
    B : array of shape (n, k)
    tol, loss_tol : float
        Of the residual, and of the loss.
    stops_by_loss : bool
        Whether the loss alone may end the iteration.
    loss : Loss or None
    sizes : ndarray of shape (k,) or None
        What residuals are compared with in place of ‖b‖, where that is larger.
    best : EarlyStopping
    checkpoint : Checkpoint or None
    start : array of the shape of B, or None
    """

    def __init__(
        self,
        state: Any,
        B: Any,
        *,
        tol: float,
        loss_tol: float,
        stops_by_loss: bool,
        loss: Loss | None,
        sizes: np.ndarray | None,
        best: EarlyStopping,
        checkpoint: Checkpoint | None,
        start: Any,
    ):
        self.state, self.B, self.loss, self.best = state, B, loss, best
        self.checkpoint = checkpoint
        self.judged = loss is not None and state.shift > 0
        self.stops_by_loss = self.judged and stops_by_loss
        self.tol, self.loss_tol = tol, loss_tol
        self.norms = np.sqrt(squared_sizes(B))
        if sizes is not None:
            self.norms = np.minimum(self.norms, np.where(sizes > 0, sizes, self.norms))
        self.norms[self.norms == 0] = 1.0
        resumed = None
        if checkpoint is not None:
            shift = np.float64(state.shift)
            checkpoint.identity |= {"B": ops_of(B).to_host(B), "shift": shift}
            resumed = self._resumed(checkpoint)
        self.now = self.least = self._begin(start) if resumed is None else resumed
        self.outcome = self._judge(self.residual)

    def _begin(self, start: Any) -> Iterate:
        B, ops = self.B, ops_of(self.B)
        empty = ops.zeros((len(B), 0), B)
        gains = np.empty((0, B.shape[1]))
        if start is None:
            return Iterate(ops.zeros(B.shape, B), ops.copy(B), empty, empty, gains)
        X = ops.as_float64(ops.copy(start.reshape(B.shape)))
        product = self._product(X)
        gained = ops.to_host(((2 * B - product) * X).sum(axis=0))
        return Iterate(X, B - product, empty, empty, gains, gained)

    def _resumed(self, checkpoint: Checkpoint) -> Iterate | None:
        """Return the iterate that a checkpoint holds, if it is one of this system."""
        arrays = checkpoint.load()
        if arrays is None:
            return None
        whole: tuple[int, ...] = tuple(self.B.shape)
        n, k = whole
        shapes: dict[str, list[tuple[int, ...]]] = {"X": [whole], "R": [whole]}
        shapes |= {"P": [(n, -1)], "Q": [(n, -1)], "gains": [(-1, k)]}
        shapes |= {"gained_before": [(), (k,)], "largest": [(), (k,)]}
        shapes |= {"before": [()], "residual_then": [()]}
        if "best_record" in arrays:
            shapes |= {"best": [whole], "best_record": [(3,)]}
        checkpoint.check(arrays, shapes)
        self.best.restore(arrays, self.B)
        like = ops_of(self.B).float64_like
        blocks = {name: like(arrays[name], self.B) for name in ("X", "R", "P", "Q")}
        names = Iterate.__dataclass_fields__
        return Iterate(**{name: arrays[name] for name in names} | blocks)

    @property
    def count(self) -> int:
        return self.now.iteration

    @property
    def residual(self) -> float:
        return self.now.residual(self.norms)

    def progress(self, seconds: float) -> Progress:
        excess = self.now.excess(self.loss, self.state.shift, self.state.rounding)
        return Progress(self.count, self.residual, excess, seconds, self.now.X)

    def arrays(self) -> dict[str, Any]:
        return self.now.arrays() | self.best.arrays()

    def advance(self) -> bool:
        """Take a step; False if no direction is left."""
        following = self._step()
        if following is None:
            self.outcome, self.now = Outcome.ILL_CONDITIONED, self.least
            return False
        self.now = following
        if self.residual < self.least.residual(self.norms):
            self.least = self.now
        self.outcome = self._judge(self.residual)
        if self.outcome is not None:
            self._verify()
        if self.best.is_past(self.now.X):
            self.outcome = Outcome.VALIDATED
        return True

    def close(self) -> None:
        """Name the limit of iterations, with the true residual, if nothing else."""
        if self.outcome is None:
            if self.loss is None:
                # The residual may have grown: in a dual system it is the error.
                self.now = replace(self.now, X=self.least.X)
            R = self.B - self._product(self.now.X)
            self.now, self.outcome = replace(self.now, R=R), Outcome.ITERATION_LIMIT

    def _step(self) -> Iterate | None:
        """Return the next iterate, None if no direction is left."""
        now, state = self.now, self.state
        S = now.R
        if state.preconditioner is not None:
            S = state.preconditioner.apply(S)
        # Conjugate to the last directions, of which PᵀAP = I.
        P = orthonormal(S - now.P @ (now.Q.T @ S))
        if P.shape[1] == 0:
            return None
        Q = self._product(P)
        P, Q, largest = normalised(P, Q, state.precision, float(now.largest))
        if P.shape[1] == 0:
            return None
        step = P.T @ now.R
        return replace(
            now,
            X=now.X + P @ step,
            R=now.R - Q @ step,
            P=P,
            Q=Q,
            gains=np.vstack([now.gains, squared_sizes(step)]),
            largest=largest,
        )

    def _product(self, V: Any) -> Any:
        out = self.state.operator.matmat(V)
        out += self.state.shift * V
        return out

    def _judge(
        self, residual: float, drift: np.ndarray | float = 0.0
    ) -> Outcome | None:
        """Return how the iteration ends here, None if it goes on.

        `drift` holds the squares of what the residual of the recurrence lacks of the
        true one, if they are known.
        """
        within = True
        if self.judged:
            state = self.state
            excess = self.now.excess(self.loss, state.shift, state.rounding, drift)
            within = excess <= self.loss_tol
        if residual <= self.tol and within:
            return Outcome.CONVERGED
        return Outcome.LOSS_CONVERGED if self.stops_by_loss and within else None

    def _verify(self) -> None:
        """Judge by the true residual.

        Rounding errors may have led the residual of the recurrence away from the true
        one. What is left is then sought from there (the outcome is None), unless that
        has led no further before.
        """
        B, now = self.B, self.now
        R = B - self._product(now.X)
        true, sizes = replace(now, R=R), squared_sizes(B)
        if not np.all(squared_sizes(R) <= np.where(sizes > 0, sizes, 1.0)):
            self.now = replace(now, X=ops_of(B).zeros(B.shape, B), R=B)
            self.outcome = Outcome.ILL_CONDITIONED
            return
        # The loss is estimated from what the recurrence knows.
        residual = true.residual(self.norms)
        self.outcome = self._judge(residual, squared_sizes(R - now.R))
        self.now = true
        if self.outcome is None:
            if residual > _PROGRESS * float(now.residual_then):
                self.outcome = Outcome.ROUNDED
            else:
                self.now = now.restarted(R, residual)
