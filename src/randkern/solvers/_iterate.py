"""Where conjugate gradients stand: an iterate, its loss, and what is told of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from randkern.backend.namespace import ops_of
from randkern.solvers._checkpoint import Checkpoint
from randkern.solvers._directions import squared_sizes
from randkern.solvers.early_stopping import Best

__all__ = ["Iterate", "Loss", "Progress", "resumed"]

# What is left of the loss is estimated by the largest of so many last decreases.
_LAST = 5
# What is left of the loss is compared with no more than so many times what was gained.
_LITTLE = 10.0
# Decreases are known up to so many rounding errors of the largest.
_ROUNDED = 16.0


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
    value : ndarray or tensor
        The solution so far, where the right-hand sides are.
    """

    iteration: int
    residual: float
    excess: float
    seconds: float
    value: Any


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
    # Steps that came before R was last computed anew, and the residual then.
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

    def progress(self, residual: float, excess: float, seconds: float) -> Progress:
        return Progress(self.iteration, residual, excess, seconds, self.X)

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


def resumed(checkpoint: Checkpoint, best: Best, like: Any) -> Iterate | None:
    """Return the iterate that a checkpoint holds, if it is one of this system."""
    arrays = checkpoint.load()
    if arrays is None:
        return None
    whole: tuple[int, ...] = tuple(like.shape)
    n, k = whole
    shapes: dict[str, list[tuple[int, ...]]] = {"X": [whole], "R": [whole]}
    shapes |= {"P": [(n, -1)], "Q": [(n, -1)]}
    shapes |= {"gains": [(-1, k)], "gained_before": [(), (k,)], "largest": [(), (k,)]}
    shapes |= {"before": [()], "residual_then": [()]}
    if "best_record" in arrays:
        shapes |= {"best": [whole], "best_record": [(3,)]}
    checkpoint.check(arrays, shapes)
    names = list(Iterate.__dataclass_fields__)
    best.restore(arrays, like)
    blocks = {
        name: ops_of(like).float64_like(arrays[name], like)
        for name in ("X", "R", "P", "Q")
    }
    return Iterate(**{name: arrays[name] for name in names} | blocks)
