"""The names of the package, for type checkers: they load on first use."""

from randkern.models.gaussian_process import GaussianProcessRegressor
from randkern.models.gaussian_process_classifier import GaussianProcessClassifier
from randkern.models.local import LocalClassifier, LocalRegressor
from randkern.models.logistic import KernelLogistic
from randkern.models.quantile import KernelQuantileRegressor
from randkern.models.ridge import KernelRidgeClassifier, KernelRidgeRegressor
from randkern.models.ridge_cv import KernelRidgeClassifierCV, KernelRidgeRegressorCV
from randkern.models.svc import KernelSVC
from randkern.models.svr import KernelSVR

__all__ = [
    "GaussianProcessClassifier",
    "GaussianProcessRegressor",
    "KernelLogistic",
    "KernelQuantileRegressor",
    "KernelRidgeClassifier",
    "KernelRidgeClassifierCV",
    "KernelRidgeRegressor",
    "KernelRidgeRegressorCV",
    "KernelSVC",
    "KernelSVR",
    "LocalClassifier",
    "LocalRegressor",
]
