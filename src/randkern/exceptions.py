"""Public errors and warnings.

Every error subclasses the built-in that fits it best, so that code written
without knowledge of randkern still catches it.
"""

from typing import Any

__all__ = [
    "ColumnScaleWarning",
    "DataFileError",
    "DeadlineWarning",
    "FeatureErrorWarning",
    "IllConditionedWarning",
    "MemoryLimitError",
    "ModelFileError",
    "ModelVersionWarning",
    "NarrowMarginError",
    "NoSignalWarning",
    "NotSeparableError",
    "RowsChangedError",
    "UnresolvedKernelError",
]


class UnresolvedKernelError(ValueError):
    """A kernel was called whose hyperparameters still depend on data.

    A lengthscale of ``"scale"`` or ``"median"`` has no value before
    ``kernel.resolve(X)``.
    """


class MemoryLimitError(MemoryError):
    """The estimated working memory exceeds the limit; nothing was allocated."""


class DataFileError(ValueError):
    """A data file is damaged, truncated, mislabelled, or not in the expected format."""


class DeadlineWarning(UserWarning):
    """A time limit has cut a fit short, which may differ on a faster machine."""


class RowsChangedError(ValueError):
    """A later pass over a stream gave other rows, targets or weights than the first."""


class IllConditionedWarning(UserWarning):
    """A linear system was solved only after adding jitter to its diagonal."""


class ColumnScaleWarning(UserWarning):
    """The scales of columns differ too much for one lengthscale; standardise them."""


class FeatureErrorWarning(UserWarning):
    """Errors of random features exceed the spread of the kernel's values.

    As for rows that are nearly orthogonal, such as TF-IDF vectors, or a lengthscale
    that is much too short. Use landmarks, the exact kernel, another lengthscale or more
    components.
    """


class NoSignalWarning(UserWarning):
    """No fit predicts the targets clearly better than their mean."""


class ModelFileError(ValueError):
    """A saved model is damaged, not from randkern, or holds untrusted types."""


class ModelVersionWarning(UserWarning):
    """A saved model was written by a newer version, or by one without checksums."""


class NotSeparableError(ValueError):
    """No hyperplane through the origin of the features separates two classes.

    Attributes
    ----------
    certificate : ndarray of shape (n,) or None
        Non-negative numbers a of sum 1 with Σ a_i y_i φ(x_i) = 0 (to rounding), y_i
        = ±1: no w can have y_i w·φ(x_i) > 0 for every i, since Σ a_i y_i w·φ(x_i) is 0.
    residual : float or None
        ‖Σ a_i y_i φ(x_i)‖, relative to the longest φ(x_i).
    """

    certificate: Any = None
    residual: float | None = None


class NarrowMarginError(RuntimeError):
    """Rounding errors hide whether two classes can be separated.

    Neither weights that separate them were found, nor a vanishing combination of rows,
    the certificate of :class:`NotSeparableError`.
    """
