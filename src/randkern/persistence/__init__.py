"""Saving fitted estimators in files that are safe to load.

A file is a zip archive as skops writes it: a description of the objects in
JSON, and their arrays in NumPy's format. It contains no code, and loading it
creates only objects of known types: no name in a file is imported.

Importing skops imports every module of scikit-learn, and PyTorch and Dask where they
are installed: seconds, for a model that predicts a row in milliseconds. So models of
randkern are written and read here, in the format of skops, and skops is left those with
objects of other packages. It also lacks: types under public names, so that files
outlive moved definitions; tensors; a header with versions and checksums; sizes that are
checked before memory is allocated; and files that are replaced as a whole.
"""

from __future__ import annotations

from typing import Any

from randkern.persistence.files import load, save, write
from randkern.persistence.stored_types import TRUSTED_TYPES, TYPES

__all__ = ["TRUSTED_TYPES", "TYPES", "load", "save", "write"]


def __getattr__(name: str) -> Any:
    """Return a part of estimators by its name in files."""
    try:
        return TYPES[f"{__name__}.{name}"]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
