"""Fits of ridge models to prepared data, with notes of what was skipped."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

import randkern

from ..exceptions import MemoryLimitError
from .kernel_choices import KernelChoice
from .preparation import PreparedData

__all__ = ["Fits", "ridge_class"]


def ridge_class(task: str, *, search: bool = False) -> Any:
    """Return the ridge model of a task, with a search for its penalty or without."""
    kind = "Classifier" if task == "classification" else "Regressor"
    return getattr(randkern, f"KernelRidge{kind}{'CV' * search}")


class Fits:
    """Fits to one data set; `skipped` and `warnings` are the notes for the results."""

    def __init__(self, data: PreparedData, memory_limit: int | str | None) -> None:
        self.data = data
        self.memory_limit = memory_limit
        self.skipped: list[dict[str, Any]] = []
        self.warnings: list[dict[str, Any]] = []

    def model(
        self,
        choice: KernelChoice,
        kernel: Any,
        size: int | None,
        seed: int,
        *,
        search: bool = False,
    ) -> Any:
        """Return a model with at most as many features as an exact map needs."""
        if size is not None:
            size = choice.capped(size, self.data.X_train.shape[1])
        return ridge_class(self.data.task, search=search)(
            kernel,
            n_components=size,
            fit_intercept=True,
            memory_limit=self.memory_limit,
            random_state=seed,
        )

    def compile(self, models: Iterable[Any]) -> None:
        """Fit the models to be timed on a few rows, so that all code is compiled."""
        data, rows = self.data, few_rows(self.data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for model in models:
                # Models that exceed the limit on a few rows will be skipped on all.
                with suppress(MemoryLimitError):
                    model.fit(data.X_train[rows], data.y_train[rows])
                    model.predict(data.X_test[:2])

    def noted(self, note: Mapping[str, Any], fit: Callable[[], Any]) -> Any:
        """Return what `fit` does, or None if it was skipped; note why, and warnings."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                found = fit()
            except MemoryLimitError as error:
                self.skip(note, str(error))
                return None
        for message in sorted({str(warning.message) for warning in caught}):
            _add(self.warnings, {**note, "message": message})
        return found

    def skip(self, note: Mapping[str, Any], reason: str) -> None:
        """Note that a model was skipped."""
        _add(self.skipped, {**note, "reason": reason})


def _add(notes: list[dict[str, Any]], note: dict[str, Any]) -> None:
    if note not in notes:  # once, not once per seed
        notes.append(note)


def few_rows(data: PreparedData) -> NDArray[np.intp]:
    """Return the first 16 rows, and one row of each of the first two classes."""
    rows = np.arange(min(16, len(data.y_train)))
    if data.task == "classification":
        rows = np.union1d(rows, np.unique(data.y_train, return_index=True)[1])
    return rows
