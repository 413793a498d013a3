"""Models of tables: the weighted mean of fits, each with its encoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.pipeline import make_pipeline

from randkern._fitting import ending
from randkern._sklearn import num_samples, safe_indexing
from randkern._warnings import ignoring
from randkern.data import row_blocks, rows_within
from randkern.exceptions import IllConditionedWarning
from randkern.kernels import Kernel
from randkern.models import KernelLogistic, KernelRidgeRegressor
from randkern.tabular.encoder import TabularEncoder
from randkern.tabular.exact_logistic import with_constant
from randkern.tabular.exact_ridge import ExactRidge
from randkern.tabular.learning import Learning
from randkern.tabular.presets import LAST_FIT
from randkern.tabular.rows import Table
from randkern.tabular.search import Trial
from randkern.tabular.target_encoding import CategoryScores, TextEncoder
from randkern.tabular.target_transforms import TRANSFORMS

_BLOCK_BYTES = 64 * 10**6
# Of a model's text, which scikit-learn shortens beyond it.
_MAX_TEXT = 100_000


@dataclass
class Member:
    """A fit to encoded rows, and its weight in the prediction."""

    weight: float
    encoder: TabularEncoder
    fit: Any

    def rows_of(self, X: Any) -> np.ndarray:
        """Return encoded rows for the fit."""
        return self.encoder.transform(X)

    @property
    def exact(self) -> Any:
        """The fit with an exact kernel, or what is fitted in each cell."""
        return getattr(self.fit, "estimator", self.fit)

    @property
    def kernel(self) -> Kernel:
        return self.exact.kernel

    @property
    def alpha(self) -> float:
        """The penalty of a least-squares fit."""
        return float(self.exact.alpha)

    @property
    def n_targets(self) -> int:
        """The number of targets of a regression."""
        fit = self.fit
        if hasattr(fit, "estimators_"):
            fit = fit.estimators_[0]
        return np.size(fit.intercept)

    def predict(self, X: Any) -> np.ndarray:
        """Return predictions, or class probabilities, (n, k)."""
        # Large weights of opposite signs leave float32 features an accuracy of 1e-4.
        rows = self.encoder.transform(X).astype(np.float64, copy=False)
        if hasattr(self.fit, "predict_proba"):
            return np.asarray(self.fit.predict_proba(rows))
        return np.asarray(self.fit.predict(rows)).reshape(len(rows), -1)


class TabularModel:
    """The weighted mean of several fits, for rows before encoding.

    `unit` is what the weights of rows have been divided by. Members predict targets
    after `target_transform`, from rows in which scores replace `texts` and stand beside
    categories.
    """

    def __init__(
        self,
        members: Sequence[Member],
        *,
        unit: float = 1.0,
        target_transform: str | None = None,
        texts: TextEncoder | None = None,
        scores: CategoryScores | None = None,
    ):
        self.members = list(members)
        self.unit, self.target_transform = unit, target_transform
        self.texts, self.scores = texts, scores

    def with_scores(self, X: Any) -> Any:
        """Return a table with the scores that the members take."""
        if self.texts is not None:
            X = self.texts.transform(X)
        return X if self.scores is None else self.scores.transform(X)

    def predict(self, X: Any) -> np.ndarray:
        """Return the weighted mean of predictions, (n, k)."""
        return np.concatenate([self._predicted(rows) for rows in self.blocks_of(X)])

    def blocks_of(self, X: Any) -> Iterator[Any]:
        """Yield blocks of rows that are small when encoded."""
        width = max(len(member.encoder.columns_) for member in self.members)
        n = max(num_samples(X), 1)  # a table without rows is refused by the encoder
        for rows in row_blocks(n, rows_within(_BLOCK_BYTES, 8 * width)):
            yield safe_indexing(X, rows)

    def _predicted(self, X: Any) -> np.ndarray:
        parts = [member.weight * member.predict(X) for member in self.members]
        return np.sum(parts, axis=0)

    def explain(self) -> str:
        """Return the text of :meth:`to_estimator`: the model in public classes."""
        return self.to_estimator().__repr__(N_CHAR_MAX=_MAX_TEXT)

    def to_estimator(self) -> Any:
        """Return an unfitted estimator of public classes with these kernels.

        Its representation shows how the model is built; fitted to the same rows, it
        predicts what the model does. Weights of rows, if the model had any, are routed
        to the steps by scikit-learn's metadata routing. It does not have the
        effects of groups.

        Returns
        -------
        estimator
            A pipeline of an encoder and a model with a kernel; of several fits, a
            `VotingRegressor` or a `VotingClassifier`.
        """
        weights, models = zip(*self.parts(), strict=True)
        parts = [(f"model_{at}", model) for at, model in enumerate(models, start=1)]
        model = models[0]
        if len(parts) > 1 and is_classifier(model):
            from sklearn.ensemble import VotingClassifier

            model = VotingClassifier(parts, voting="soft", weights=list(weights))
        elif len(parts) > 1:
            from sklearn.ensemble import VotingRegressor
            from sklearn.multioutput import MultiOutputRegressor

            model = VotingRegressor(parts, weights=list(weights))
            if self.members[0].n_targets > 1:
                model = MultiOutputRegressor(model)
        scores = [clone(each) for each in (self.texts, self.scores) if each is not None]
        if scores:
            model = make_pipeline(*scores, model)
        if self.target_transform is None:
            return model
        from sklearn.compose import TransformedTargetRegressor

        there, back, _ = TRANSFORMS[self.target_transform]
        return TransformedTargetRegressor(model, func=there, inverse_func=back)

    def parts(self) -> list[tuple[float, Any]]:
        """Return the weight of each fit, and an unfitted pipeline of public classes."""
        return [
            (
                float(member.weight),
                make_pipeline(clone(member.encoder), self._unfitted(member)),
            )
            for member in self.members
        ]

    def _unfitted(self, member: Member) -> Any:
        """Return the model of a member, with a penalty for weights in their unit."""
        exact = member.exact
        if isinstance(exact, ExactRidge):
            alpha = float(exact.alpha * self.unit)
            model = KernelRidgeRegressor(
                exact.kernel, alpha, None, solver="cholesky", fit_intercept=True
            )
        else:
            C = float(exact.C / self.unit)
            kernel = with_constant(exact.kernel)
            model = KernelLogistic(kernel, C, None, fit_intercept=False)
        if exact is member.fit:
            return model
        return clone(member.fit).set_params(estimator=model)


def fit_member(
    share: float, trial: Trial, model: Any, table: Table, learning: Learning
) -> Member:
    """Fit a model to the rows of a table, encoded for the kernel of a trial.

    Its iterations end by the deadline. Rows in cells are in single precision.
    """
    dtype = "float32" if learning.plan.in_cells else "float64"
    X = learning.encoded(trial.numbers, table.X, dtype)
    y = table.Y if table.labels is None else table.labels
    # What is expected of data that nobody has chosen.
    with ignoring(IllConditionedWarning):
        with ending(lambda: learning.deadline.ends(LAST_FIT)):
            model.fit(X, y, table.own_weight)
    return Member(share, learning.encoder(trial.numbers, dtype), model)
