"""The names of the package, for type checkers: they load on first use."""

from randkern.tabular.classifier import TabularClassifier
from randkern.tabular.encoder import TabularEncoder
from randkern.tabular.estimators import TabularRegressor

__all__ = [
    "TabularClassifier",
    "TabularEncoder",
    "TabularRegressor",
]
