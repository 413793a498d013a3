"""Whether the exposure suits the light."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

_MOST_SATURATED = 0.02
_LEAST_MEAN = 1.0


class LightMeter:
    """Adds up the counts of a camera, and warns if they are too dark or too bright.

    Parameters
    ----------
    full_scale : int or None
        The largest count; None: that of the type of the counts. Counts that are
        floats have no unit, and say nothing about the camera.
    """

    def __init__(self, full_scale: int | None):
        self.full_scale = full_scale
        self._n = self._n_saturated = 0
        self._sum = 0.0

    def add(self, counts: np.ndarray) -> None:
        """Add counts of any shape."""
        full_scale = self.full_scale
        if full_scale is None:
            if counts.dtype.kind not in "iu":
                return
            full_scale = int(np.iinfo(counts.dtype).max)
        self._n += counts.size
        self._n_saturated += int(np.count_nonzero(counts >= full_scale))
        self._sum += float(counts.sum(dtype=np.float64))

    def warn(self, what: str, *, stacklevel: int = 4) -> None:
        """Warn if more than 2 % saturate, or the mean is below a count."""
        if not self._n:
            return
        share, mean = self._n_saturated / self._n, self._sum / self._n
        problem: Any = None
        if share > _MOST_SATURATED:
            problem = f"{100 * share:.3g} % of the counts of {what} are saturated"
            advice = "shorten the exposure, lower the level"
        elif mean < _LEAST_MEAN:
            problem = f"the mean count of {what} is {mean:.2g}, lost in rounding"
            advice = "lengthen the exposure, raise the level"
        if problem:
            warnings.warn(
                f"{problem}: {advice} (exposure='auto' chooses), or use a camera of "
                "more bits, since the features are biased.",
                UserWarning,
                stacklevel=stacklevel,
            )
