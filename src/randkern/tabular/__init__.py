"""Models for tables that choose encoding, kernel and penalty automatically."""

from randkern.tabular.classifier import TabularClassifier
from randkern.tabular.encoder import TabularEncoder
from randkern.tabular.estimators import TabularRegressor

__all__ = ["TabularClassifier", "TabularEncoder", "TabularRegressor"]
