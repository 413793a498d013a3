"""Models for tables that need no argument: columns, kernel and penalty are chosen."""

from randkern.tabular.classifier import TabularClassifier
from randkern.tabular.encoder import TabularEncoder
from randkern.tabular.estimators import TabularRegressor

__all__ = ["TabularClassifier", "TabularEncoder", "TabularRegressor"]
