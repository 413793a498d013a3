"""Public errors and warnings.

Every error subclasses the built-in that fits it best, so that code which does
not know randkern still catches it.
"""

from typing import Any

__all__ = [
    "CheckpointError",
    "DataFileError",
    "IllConditionedWarning",
    "MemoryLimitError",
    "ModelFileError",
    "ModelVersionWarning",
    "NarrowMarginError",
    "NoSignalWarning",
    "NotSeparableError",
    "UnresolvedKernelError",
]


class UnresolvedKernelError(ValueError):
    """A kernel whose hyperparameters still await data was called.

    A lengthscale of ``"scale"`` or ``"median"`` has no value before
    ``kernel.resolve(X)``.
    """


class MemoryLimitError(MemoryError):
    """The estimated working memory exceeds the limit; nothing was allocated."""


class DataFileError(ValueError):
    """A data file is damaged, truncated, mislabelled, or not what it claims."""


class IllConditionedWarning(UserWarning):
    """A linear system was solved only after adding jitter to its diagonal."""


class ColumnScaleWarning(UserWarning):
    """Columns vary on scales that one lengthscale cannot serve; scale them first."""


class NoSignalWarning(UserWarning):
    """Targets could not be predicted clearly better than by their mean."""


class ModelFileError(ValueError):
    """A saved model is damaged, not ours, or holds types that are not trusted."""


class ModelVersionWarning(UserWarning):
    """A saved model was written by a newer version of randkern."""


class CheckpointError(ValueError):
    """A checkpoint is damaged, belongs to another fit, or cannot be written."""


class NotSeparableError(ValueError):
    """No hyperplane through the origin of the features separates two classes.

    Attributes
    ----------
    certificate : ndarray of shape (n,) or None
        Non-negative numbers a of sum 1 with Σ a_i y_i φ(x_i) = 0 (to rounding), y_i
        = ±1: no w can have y_i w·φ(x_i) > 0 for every i, since the sum of these with
        the numbers a is 0.
    residual : float or None
        ‖Σ a_i y_i φ(x_i)‖, relative to the longest φ(x_i).
    """

    certificate: Any = None
    residual: float | None = None


class NarrowMarginError(RuntimeError):
    """Rounding errors hide whether two classes can be separated.

    No weights were found that separate them, nor a combination of rows that vanishes,
    which :class:`NotSeparableError` has for a proof.
    """
