"""Functions of targets that are learned in place of the targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class TargetTransform(NamedTuple):
    """An increasing function, its inverse, and the target that it does not reach."""

    function: Callable[[Any], Any]
    inverse: Callable[[Any], Any]
    infimum: float

    def of(self, y: np.ndarray, name: str) -> np.ndarray:
        """Return transformed targets; raise if some are too small."""
        if (least := float(y.min())) <= self.infimum:
            advice = "use target_transform=None"
            if name == "log" and least == 0:
                advice = "use target_transform='log1p'"
            raise ValueError(
                f"target_transform={name!r} takes targets above {self.infimum:g}, got "
                f"{least:g} in row {int(y.argmin() // (y.size // len(y))):,}; {advice}."
            )
        return np.asarray(self.function(y))


TRANSFORMS = {
    "log": TargetTransform(np.log, np.exp, 0.0),
    "log1p": TargetTransform(np.log1p, np.expm1, -1.0),
}
