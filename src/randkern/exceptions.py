"""Public errors and warnings.

Every error subclasses the built-in that fits it best, so that code which does
not know randkern still catches it.
"""

__all__ = [
    "CheckpointError",
    "DataFileError",
    "IllConditionedWarning",
    "MemoryLimitError",
    "ModelFileError",
    "ModelVersionWarning",
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


class ModelFileError(ValueError):
    """A saved model is damaged, not ours, or holds types that are not trusted."""


class ModelVersionWarning(UserWarning):
    """A saved model was written by a newer version of randkern."""


class CheckpointError(ValueError):
    """A checkpoint is damaged, belongs to another fit, or cannot be written."""
