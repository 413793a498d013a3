"""Models of tables: the weighted mean of fits, each with its encoder."""

from __future__ import annotations

from collections.abc import Iterator
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

    @property
    def exact(self) -> Any:
        """The fit with an exact kernel, or what is fitted in each cell."""
        return getattr(self.fit, "estimator", self.fit)

    @property
    def kernel(self) -> Kernel:
        return self.exact.kernel

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

    def to_estimator(self, unit: float) -> Any:
        """Return an unfitted pipeline of public classes, for weights over `unit`."""
        exact = self.exact
        if hasattr(exact, "C"):
            kernel, C = with_constant(exact.kernel), float(exact.C / unit)
            public: Any = KernelLogistic(kernel, C, None, fit_intercept=False)
        else:
            alpha = float(exact.alpha * unit)
            public = KernelRidgeRegressor(
                exact.kernel, alpha, None, solver="cholesky", fit_intercept=True
            )
        if exact is not self.fit:
            public = clone(self.fit).set_params(estimator=public)
        return make_pipeline(clone(self.encoder), public)


@dataclass(repr=False, eq=False)
class TabularModel:
    """The weighted mean of several fits, for rows before encoding.

    `unit` is what the weights of rows have been divided by. Members predict targets
    after `target_transform`, from rows in which scores replace `texts` and stand beside
    categories.
    """

    members: list[Member]
    unit: float = 1.0
    target_transform: str | None = None
    texts: TextEncoder | None = None
    scores: CategoryScores | None = None

    def with_scores(self, X: Any) -> Any:
        """Return a table with the scores that the members take."""
        if self.texts is not None:
            X = self.texts.transform(X)
        return X if self.scores is None else self.scores.transform(X)

    def predict(self, X: Any) -> np.ndarray:
        """Return the weighted mean of predictions, (n, k)."""
        parts = [
            sum(member.weight * member.predict(rows) for member in self.members)
            for rows in self.blocks_of(X)
        ]
        return np.concatenate(parts)

    def blocks_of(self, X: Any) -> Iterator[Any]:
        """Yield blocks of rows that are small when encoded."""
        width = max(len(member.encoder.columns_) for member in self.members)
        n = max(num_samples(X), 1)  # a table without rows is refused by the encoder
        for rows in row_blocks(n, rows_within(_BLOCK_BYTES, 8 * width)):
            yield safe_indexing(X, rows)

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
        parts = [
            (f"model_{at}", member.to_estimator(self.unit))
            for at, member in enumerate(self.members, start=1)
        ]
        weights = [float(member.weight) for member in self.members]
        model = parts[0][1]
        if len(parts) > 1 and is_classifier(model):
            from sklearn.ensemble import VotingClassifier

            model = VotingClassifier(parts, voting="soft", weights=weights)
        elif len(parts) > 1:
            from sklearn.ensemble import VotingRegressor
            from sklearn.multioutput import MultiOutputRegressor

            model = VotingRegressor(parts, weights=weights)
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
