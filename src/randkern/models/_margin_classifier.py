"""What margin classifiers share: features cached or recomputed, labels, decisions."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin

from randkern.backend.namespace import ops_of
from randkern.data.training_data import TrainingData
from randkern.models._feature_model import FeatureModel
from randkern.models._targets import ClassLabels
from randkern.models.feature_matrix import FeatureMatrix, GramFactor


class MarginClassifier(ClassLabels, ClassifierMixin, FeatureModel):
    """A classifier whose decisions are the signs or the largest of its values."""

    def _features(
        self, rows: TrainingData, cache_bytes: int, precise: bool = False
    ) -> FeatureMatrix:
        """Return the features of the rows: random ones, or a factor of the Gram."""
        if self.plan_ is not None:
            return FeatureMatrix(self.plan_, rows, cache_bytes, precise)
        X = rows.whole().X
        gram = self.kernel_._gram(ops_of(X).as_float64(X), None)
        return GramFactor(gram, *rows.targets())

    def decision_function(self, X: Any) -> np.ndarray:
        """Return fitted values, (n,) for two classes, else (n, n_classes)."""
        return self._values(X)
