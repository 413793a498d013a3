"""The law of the number of factors of a draw.

:mod:`randkern.backend.paths` draws from it, by inversion of its distribution function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

#: Degrees above it are not drawn; each law says how much probability that omits.
MAX_DEGREE = 10_000


@dataclass(frozen=True, eq=False)
class DegreeLaw:
    """The probabilities a₀, a₁, ... of the degrees of a power series.

    Attributes
    ----------
    probabilities : ndarray of shape (L + 1,)
        Of the degrees 0, ..., L: those of the series, divided by their sum.
    omitted : float
        Probability of the degrees above L before that division.

    Examples
    --------
    >>> from randkern import skeletons
    >>> law = skeletons.ReLU().degree_law()
    >>> law.probabilities[:4].round(3)
    array([0.318, 0.5  , 0.159, 0.   ])
    >>> law.omitted < 1e-7
    True
    """

    probabilities: np.ndarray
    omitted: float

    @classmethod
    def of(cls, coefficients: np.ndarray) -> DegreeLaw:
        """Return the law of the first coefficients of a series that sums to 1."""
        coefficients = np.asarray(coefficients, dtype=np.float64)
        total = float(coefficients.sum())
        if not total > 0:  # all of it lies beyond the degrees that are drawn
            coefficients = np.ones(1)
            total = 0.0
        # Degrees too rare to be drawn even once in 10¹⁶ times make the table long.
        kept = int(np.flatnonzero(coefficients > 1e-18).max(initial=0)) + 1
        probabilities = coefficients[:kept] / coefficients[:kept].sum()
        probabilities.flags.writeable = False
        return cls(probabilities, max(0.0, 1.0 - total))

    @property
    def mean(self) -> float:
        """The mean degree under the truncated law."""
        return float(np.arange(len(self.probabilities)) @ self.probabilities)

    @property
    def cumulative(self) -> np.ndarray:
        """The distribution function at 0, ..., L; exactly 1 at the end."""
        table = np.cumsum(self.probabilities)
        table[-1] = 1.0
        return table

    def generating(self, x: float) -> float:
        """Return E[xˡ] under the truncated law."""
        degrees = np.arange(len(self.probabilities))
        return float(self.probabilities @ np.power(float(x), degrees))
