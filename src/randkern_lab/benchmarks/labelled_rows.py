"""Rows with classes that every process of a benchmark reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import randkern
from randkern.study.preparation import prepare

from .ridge_process import ARRAYS

__all__ = ["LabelledRows", "checked_counts", "resolved_lengthscale"]


@dataclass(frozen=True)
class LabelledRows:
    """Training and test rows in float32, and their classes.

    Attributes
    ----------
    X_train, X_test : ndarray of shape (n, d), float32
    y_train, y_test : ndarray of shape (n,)
    description : dict
        ``name``, ``n_train``, ``n_test``, ``n_features``, ``n_classes``,
        ``preprocessing``.
    """

    X_train: Any
    y_train: Any
    X_test: Any
    y_test: Any
    description: dict[str, Any]

    @classmethod
    def of(cls, dataset: Any, n: int | None, n_test: int | None) -> LabelledRows:
        """Prepare a data set, and draw at most `n` and `n_test` of its rows once.

        Raises
        ------
        ValueError
            If it has no classes, or a number is not positive.
        """
        if dataset.task != "classification":
            raise ValueError(
                f"this benchmark classifies, but {dataset.name} is a {dataset.task}; "
                "use randkern compare for it"
            )
        whole = prepare(dataset)
        rng = np.random.default_rng(0)
        rows = []
        for name, most, X in (
            ("n", n, whole.X_train),
            ("n_test", n_test, whole.X_test),
        ):
            checked_counts(name, [len(X) if most is None else most])
            rows.append(np.sort(rng.permutation(len(X))[:most]))
        train, test = rows
        description = {
            "name": dataset.name,
            "n_train": len(train),
            "n_test": len(test),
            "n_features": int(whole.X_train.shape[1]),
            "n_classes": len(np.unique(whole.y_train[train])),
            "preprocessing": whole.preprocessing,
        }
        # float32: what images are loaded as, and what all contenders keep.
        return cls(
            np.ascontiguousarray(whole.X_train[train], dtype=np.float32),
            whole.y_train[train],
            np.ascontiguousarray(whole.X_test[test], dtype=np.float32),
            whole.y_test[test],
            description,
        )

    def save(self, folder: str, n_train: int | None = None) -> None:
        """Write the arrays for processes to read, of the training rows the first."""
        for name in ARRAYS:
            kept = n_train if name.endswith("train") else None
            np.save(Path(folder) / f"{name}.npy", getattr(self, name)[:kept])


def resolved_lengthscale(lengthscale: float | str, X: Any) -> float:
    """Return the lengthscale of a Gaussian kernel on rows: rules are settled.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern_lab.benchmarks.labelled_rows import resolved_lengthscale
    >>> resolved_lengthscale(5, np.eye(3))
    5.0
    """
    kernel = randkern.Gaussian(lengthscale).resolve(X, random_state=0)
    return float(kernel.lengthscale)


def checked_counts(name: str, values: Sequence[int]) -> list[int]:
    """Return distinct positive whole numbers, in increasing order.

    Examples
    --------
    >>> from randkern_lab.benchmarks.labelled_rows import checked_counts
    >>> checked_counts("n_components", [300, 100, 100])
    [100, 300]
    """
    whole = [v for v in values if isinstance(v, int) and not isinstance(v, bool)]
    if not values or len(whole) < len(values) or min(whole) < 1:
        raise ValueError(
            f"{name} must be positive whole numbers, got {list(values)}; for instance "
            "1000"
        )
    return sorted(set(whole))
