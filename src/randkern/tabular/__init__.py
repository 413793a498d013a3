"""Models for tables that need no argument: columns, kernel and penalty are chosen."""

from randkern.tabular.encoder import TabularEncoder
from randkern.tabular.estimators import TabularClassifier, TabularRegressor

__all__ = ["TabularClassifier", "TabularEncoder", "TabularRegressor"]
