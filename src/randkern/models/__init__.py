"""Models on random features, or on the exact kernel; each loads on first use."""

import importlib
from typing import Any

_MODULES = {
    "GaussianProcessClassifier": ".gaussian_process_classifier",
    "GaussianProcessRegressor": ".gaussian_process",
    "KernelLogistic": ".logistic",
    "KernelQuantileRegressor": ".quantile",
    "KernelRidgeClassifier": ".ridge",
    "KernelRidgeClassifierCV": ".ridge_cv",
    "KernelRidgeRegressor": ".ridge",
    "KernelRidgeRegressorCV": ".ridge_cv",
    "KernelSVC": ".svc",
    "KernelSVR": ".svr",
}

__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
