"""The fits that a model averages, each with its encoder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from randkern._fitting import ending
from randkern._warnings import ignoring
from randkern.exceptions import IllConditionedWarning
from randkern.kernels import Kernel
from randkern.tabular.encoder import TabularEncoder
from randkern.tabular.exact_ridge import ExactRidge
from randkern.tabular.presets import Deadline

MEMORY_LIMIT = "3GB"


@dataclass
class Member:
    """A fit to encoded rows, and its weight in the prediction."""

    weight: float
    encoder: TabularEncoder
    fit: Any

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state.pop("turn", None) is not None:
            raise ValueError(
                "the model is of an earlier version of randkern, and reads rotated "
                "columns, which this version does not have; predict with the version "
                "that wrote it, or fit the model again."
            )
        vars(self).update(state)

    def rows_of(self, X: Any) -> np.ndarray:
        """Return encoded rows for the fit."""
        return self.encoder.transform(X)

    @property
    def kernel(self) -> Kernel:
        return getattr(self.fit, "kernel_", None) or self.fit.kernel

    @property
    def alpha(self) -> float:
        """The penalty of a least-squares fit."""
        fit = getattr(self.fit, "estimator", self.fit)  # of cells
        return float(fit.alpha_ if hasattr(fit, "alpha_") else fit.alpha)

    @property
    def n_targets(self) -> int:
        """The number of targets of a regression."""
        fit = self.fit
        if hasattr(fit, "estimators_"):
            fit = fit.estimators_[0].ridge_
        exact = isinstance(fit, ExactRidge)
        return np.size(fit.intercept if exact else fit.intercept_)

    def predict(self, X: Any) -> np.ndarray:
        """Return predictions, or class probabilities, (n, k)."""
        # Large weights of opposite signs leave float32 features an accuracy of 1e-4.
        rows = self.encoder.transform(X).astype(np.float64, copy=False)
        if hasattr(self.fit, "predict_proba"):
            return np.asarray(self.fit.predict_proba(rows))
        return np.asarray(self.fit.predict(rows)).reshape(len(rows), -1)


def normalised(members: list[Member]) -> list[Member]:
    """Return members with weights normalised to sum 1."""
    total = sum(member.weight for member in members)
    return [replace(member, weight=member.weight / total) for member in members]


def fit_quietly(
    model: Any, X: Any, y: Any, weight: Any, deadline: Deadline | None = None
) -> None:
    """Fit a model without warnings of what is expected of its data.

    Iterations end by the deadline, if there is one.
    """
    with ignoring(ConvergenceWarning, IllConditionedWarning):
        with ending(lambda: deadline is not None and deadline.ends("the last fit")):
            model.fit(X, y, weight)
