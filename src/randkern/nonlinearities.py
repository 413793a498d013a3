"""Nonlinearities: amplitudes and phases of projected rows.

A draw of a group of columns is w·A·[cos p, sin p], with A the product of the
amplitudes of its factors and p the sum of their phases. A nonlinearity computes the
amplitude and the phase of one factor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import gamma

from randkern._validation import Array, Rows
from randkern.backend.namespace import ops_of
from randkern.projections import InputMap


@dataclass(frozen=True)
class Nonlinearity(ABC):
    """The amplitude and the phase of one factor, from its projected rows."""

    #: Whether draws are pairs of cosine and sine.
    has_phase: ClassVar[bool] = False
    #: Whether ``centered=True`` may subtract the mean amplitude, which must be known.
    can_center: ClassVar[bool] = False

    @abstractmethod
    def contribute(self, projected: Array, block: Rows) -> tuple[Any, Any]:
        """Return the amplitude and the phase of a tile; either may be None.

        An amplitude may be complex. `projected` is what
        :meth:`Projection.phases` returned for the rows `block`, and may be overwritten.
        """

    def mean_amplitude(self, inputs: InputMap, X: Rows) -> np.ndarray | float:
        """Return the mean amplitude over draws for every row of X, in float64."""
        raise ValueError(
            f"the mean amplitude of {self} is not known; use centered=False."
        )


@dataclass(frozen=True)
class Phase(Nonlinearity):
    """Adds ω·x to the phase."""

    has_phase = True

    def contribute(self, projected: Array, block: Rows) -> tuple[Any, Any]:
        return None, projected


@dataclass(frozen=True)
class Signed(Nonlinearity):
    """Multiplies the amplitude by ω·x, whose distribution is symmetric."""

    def contribute(self, projected: Array, block: Rows) -> tuple[Any, Any]:
        return projected, None


@dataclass(frozen=True)
class Polar(Nonlinearity):
    """Amplitude and phase as returned by the projection."""

    has_phase = True

    def contribute(self, projected: Array, block: Rows) -> tuple[Any, Any]:
        return projected


@dataclass(frozen=True)
class Modulus(Nonlinearity):
    """Multiplies the amplitude by |u·x|^power, with u complex normal."""

    power: float

    can_center = True

    def contribute(self, projected: Array, block: Rows) -> tuple[Any, Any]:
        real, imaginary = projected
        return ops_of(block).modulus_in_place(real, imaginary, self.power), None

    def mean_amplitude(self, inputs: InputMap, X: Rows) -> np.ndarray:
        # |u·x|² is ‖x‖² times a standard exponential variable.
        norms = inputs.float64_squared_norms(X)
        return norms ** (self.power / 2) * gamma(1 + self.power / 2)
