"""Block conjugate gradients: iterates, the loss that they lower, and directions.

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

# What is left of the loss is estimated by the largest of this many last decreases.
_LAST = 5
# What is left of the loss is compared with at most this many times what was gained.
_LITTLE = 10.0
# Decreases are known up to this many rounding errors of the largest.
_ROUNDED = 16.0


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
        ±1 have the right sign long before their values are met: 1 is enough for them.
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
        # Decreases come in bursts: plateaus so far suggest how long the next may be.
        gains = np.maximum(gains, np.finfo(float).tiny)
        following = np.cumsum(gains[::-1], axis=0)[::-1]
        burst = np.max(following / gains, axis=0)
        estimate = burst * gains[-_LAST:].max(axis=0)
        with np.errstate(over="ignore"):  # infinite beside `left`, the lesser
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
