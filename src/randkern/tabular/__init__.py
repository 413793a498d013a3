"""Models for tables that choose encoding, kernel and penalty automatically.

Each loads on first use.
"""

import importlib
from typing import Any

_MODULES = {
    "TabularClassifier": ".classifier",
    "TabularEncoder": ".encoder",
    "TabularRegressor": ".estimators",
}

__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
