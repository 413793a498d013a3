"""What random features make of projected rows: amplitudes, phases, or both.

A draw of a group of columns is w·A·[cos p, sin p]: the amplitudes of its factors
multiply to A, their phases add to p. A nonlinearity says what one factor contributes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import gamma

from randkern._validation import Rows
from randkern.backend.namespace import ops_of
from randkern.projections import InputMap, Projection

__all__ = [
    "ComplexValue",
    "Modulus",
    "Nonlinearity",
    "Phase",
    "Polar",
    "RectifiedPower",
    "ShiftedExponential",
    "Signed",
]


@dataclass(frozen=True)
class Nonlinearity(ABC):
    """What one factor of a draw makes of its projected rows."""

    #: Whether draws are pairs of cosine and sine.
    has_phase: ClassVar[bool] = False
    #: Whether the mean amplitude is known and worth subtracting (``centered=True``).
    can_center: ClassVar[bool] = False
    #: Outputs of a group of this one factor that projections write in one pass.
    fused: ClassVar[frozenset[str]] = frozenset()

    def project(
        self, projection: Projection, block: Rows, start: int, stop: int
    ) -> Any:
        """Return the projection of a block onto draws `start` to `stop`."""
        return projection.project(block, start, stop)

    @abstractmethod
    def contribute(self, projected: Any, block: Rows) -> tuple[Any, Any]:
        """Return the amplitude and the phase of a tile, None for one it lacks.

        An amplitude may be complex: its angle counts as phase.

        Parameters
        ----------
        projected : array of shape (n, n_draws), or two of them for a complex law
            From `project`; may be overwritten.
        block : array of shape (n, width)
            The rows that were projected.
        """

    def mean_amplitude(self, inputs: InputMap, X: Rows) -> np.ndarray | float:
        """Return the mean amplitude over draws for every row of X, in float64."""
        raise ValueError(f"{self} has no mean amplitude.")

    def bounded(self, X: Rows, inputs: InputMap) -> tuple[Rows, InputMap, Any]:
        """Return rows whose amplitudes stay in range, their map, and what undoes it.

        Amplitudes are to be multiplied by the third value, one per row (None: by 1).
        """
        return X, inputs, None

    def write(
        self,
        projection: Projection,
        X: Rows,
        inputs: InputMap,
        draws: slice,
        weight: float,
        out: np.ndarray,
    ) -> None:
        """Write the weighted amplitudes of a group of this one factor, if fused."""
        raise NotImplementedError(f"{self} is not fused.")


@dataclass(frozen=True)
class Phase(Nonlinearity):
    """Adds ω·x to the phase."""

    has_phase = True
    fused = frozenset({"pair", "offset"})

    def project(
        self, projection: Projection, block: Rows, start: int, stop: int
    ) -> Any:
        return projection.phases(block, start, stop)

    def contribute(self, projected: Any, block: Rows) -> tuple[Any, Any]:
        return None, projected


@dataclass(frozen=True)
class Signed(Nonlinearity):
    """Multiplies the amplitude by ω·x, whose law is symmetric."""

    def contribute(self, projected: Any, block: Rows) -> tuple[Any, Any]:
        return projected, None

    def mean_amplitude(self, inputs: InputMap, X: Rows) -> float:
        return 0.0


@dataclass(frozen=True)
class Polar(Nonlinearity):
    """Takes modulus and phase as the projection gives them."""

    has_phase = True

    def contribute(self, projected: Any, block: Rows) -> tuple[Any, Any]:
        return projected


@dataclass(frozen=True)
class Modulus(Nonlinearity):
    """Multiplies the amplitude by |u·x|^power, u complex normal."""

    power: float

    can_center = True
    fused = frozenset({"amplitude", "centered"})

    def contribute(self, projected: Any, block: Rows) -> tuple[Any, Any]:
        real, imaginary = projected
        return ops_of(block).modulus_in_place(real, imaginary, self.power), None

    def mean_amplitude(self, inputs: InputMap, X: Rows) -> np.ndarray:
        # |u·x|² is ‖x‖² times a standard exponential variable.
        norms = inputs.squared_norms(X)
        return norms ** (self.power / 2) * gamma(1 + self.power / 2)

    def bounded(self, X: Rows, inputs: InputMap) -> tuple[Rows, InputMap, Any]:
        # |u·x|² may overflow, or vanish, where |u·x|^power does not: rows of extreme
        # size are divided by powers of two, which loses no bit.
        found = ops_of(X).bounded_amplitudes(X, inputs.apply, self.power)
        if found is None:
            return X, inputs, None
        block, undo = found
        return block, InputMap(inputs.width), undo

    def write(
        self,
        projection: Projection,
        X: Rows,
        inputs: InputMap,
        draws: slice,
        weight: float,
        out: np.ndarray,
    ) -> None:
        projection.modulus(X, inputs, draws.start, draws.stop, self.power, weight, out)


@dataclass(frozen=True)
class ComplexValue(Nonlinearity):
    """Multiplies by the complex number u·x/√2, for rows u of modulus √2."""

    has_phase = True

    def contribute(self, projected: Any, block: Rows) -> tuple[Any, Any]:
        real, imaginary = projected
        return (real + 1j * imaginary) * math.sqrt(0.5), None


@dataclass(frozen=True)
class RectifiedPower(Nonlinearity):
    """Multiplies the amplitude by √2·max(0, w·x)^power, w normal; a step for 0."""

    power: int

    can_center = True

    def contribute(self, projected: Any, block: Rows) -> tuple[Any, Any]:
        if self.power == 0:
            return ops_of(block).asarray(projected > 0, block) * math.sqrt(2), None
        return math.sqrt(2) * projected.clip(min=0) ** self.power, None

    def mean_amplitude(self, inputs: InputMap, X: Rows) -> np.ndarray:
        n = self.power
        half_moment = 2 ** (n / 2 - 1) * gamma((n + 1) / 2) / math.sqrt(math.pi)
        norms = inputs.squared_norms(X)
        # At x = 0 a step is 0, whatever is drawn.
        return math.sqrt(2) * half_moment * norms ** (n / 2) * (norms > 0)


@dataclass(frozen=True)
class ShiftedExponential(Nonlinearity):
    """Multiplies the amplitude by exp(w·x − ‖x‖²/2), w normal: its mean is 1."""

    can_center = True

    def contribute(self, projected: Any, block: Rows) -> tuple[Any, Any]:
        ops = ops_of(block)
        shift = ops.asarray(ops.squared_norms(block) / 2, block)
        return ops.xp.exp(projected - shift[:, None]), None

    def mean_amplitude(self, inputs: InputMap, X: Rows) -> float:
        return 1.0
