"""Models for tables that choose encoding, kernel and penalty automatically.

Each loads on first use.
"""

from randkern._lazy import loader

_MODULES = {
    "TabularClassifier": ".classifier",
    "TabularEncoder": ".encoder",
    "TabularRegressor": ".estimators",
}

__all__ = list(_MODULES)
__getattr__ = loader(__name__, _MODULES)
