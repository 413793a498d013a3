"""Stopping an iteration where the error on validation rows no longer falls."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

__all__ = ["Best"]


class Best:
    """The best solution so far on validation rows."""

    def __init__(self, patience: int, validate: Callable[[np.ndarray], float] | None):
        self._validate = validate
        self._patience = patience
        self._error = np.inf
        self._since = 0
        self.value: np.ndarray | None = None

    def arrays(self) -> dict[str, np.ndarray]:
        if self.value is None:
            return {}
        return {"best": self.value, "best_of": np.array([self._error, self._since])}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        if "best" in arrays:
            self.value = arrays["best"]
            self._error, self._since = arrays["best_of"].tolist()

    def is_past(self, X: np.ndarray) -> bool:
        """Look at a solution; tell whether the best is long past."""
        if self._validate is None:
            return False
        error = self._validate(X)
        self._since += 1
        if error < self._error:
            self._error, self._since, self.value = error, 0, X
        return self._since >= self._patience
