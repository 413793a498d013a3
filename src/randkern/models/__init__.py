"""Models on random features, or on the exact kernel; each loads on first use."""

from randkern._lazy import loader

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
    "LocalClassifier": ".local",
    "LocalRegressor": ".local",
}

__all__ = list(_MODULES)
__getattr__ = loader(__name__, _MODULES)
