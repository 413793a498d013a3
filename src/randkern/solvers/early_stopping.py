"""Stopping an iteration where the error on validation rows no longer falls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from randkern.backend.namespace import ops_of

# The error of few rows is noisy, while iterates of conjugate gradients come ever closer
# to the minimiser: the last of those that are about as good is taken.
_AS_GOOD = 1e-2
# Smaller gains do not count.
_LEAST_GAIN = 1e-3


class EarlyStopping:
    """The last solution of those within 1 % of the least error on validation rows."""

    def __init__(self, patience: int, validate: Callable[[Any], float] | None):
        self._validate = validate
        self._patience = patience
        # The least error, that when it last fell by enough, and iterations since then.
        self._least = self._noted = np.inf
        self._since = 0
        self.value: Any = None

    def arrays(self) -> dict[str, np.ndarray]:
        if self.value is None:
            return {}
        record = np.array([self._least, self._noted, self._since])
        return {"best": ops_of(self.value).to_host(self.value), "best_record": record}

    def restore(self, arrays: dict[str, np.ndarray], like: Any) -> None:
        if "best_record" in arrays:
            self.value = ops_of(like).float64_like(arrays["best"], like)
            self._least, self._noted, self._since = arrays["best_record"].tolist()

    def is_past(self, X: Any) -> bool:
        """Record a solution; return whether the error has long stopped falling."""
        if self._validate is None:
            return False
        error = self._validate(X)
        self._since += 1
        if error < self._noted * (1 - _LEAST_GAIN):
            self._noted, self._since = error, 0
        self._least = min(self._least, error)
        if error <= self._least * (1 + _AS_GOOD):
            self.value = X
        return self._since >= self._patience
