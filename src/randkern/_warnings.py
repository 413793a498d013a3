"""Warnings at the line of the user's call.

A fit inside another fit can drop those that the outer fit does not repeat. What is
ignored is a context variable, so each thread has its own, whereas the filters of
:mod:`warnings` are those of the process.
"""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import joblib
import sklearn

_ignored: ContextVar[tuple[type[Warning], ...]] = ContextVar("ignored", default=())

# Frames of these packages are not those of users: pipelines, decorators and cross-
# validation of scikit-learn call the library.
_PACKAGES = tuple(
    f"{Path(file).parent}{os.sep}"
    for file in (__file__, sklearn.__file__, joblib.__file__)
)


@contextmanager
def ignoring(*categories: type[Warning]) -> Iterator[None]:
    """Drop what :func:`warn` is asked to issue in these categories, in this thread."""
    token = _ignored.set((*_ignored.get(), *categories))
    try:
        yield
    finally:
        _ignored.reset(token)


def warn(message: str, category: type[Warning]) -> None:
    """Issue a warning unless an enclosing fit ignores its category.

    Its line is that of the innermost frame outside of randkern, scikit-learn and
    joblib, as with ``skip_file_prefixes`` of Python 3.12.
    """
    if issubclass(category, _ignored.get()):
        return
    level = 1
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGES):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
