"""Models on random features, or on the exact kernel."""

from randkern.models.ridge import KernelRidgeClassifier, KernelRidgeRegressor

__all__ = ["KernelRidgeClassifier", "KernelRidgeRegressor"]
