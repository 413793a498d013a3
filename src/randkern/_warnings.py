"""Warnings that a fit inside another fit does not repeat.

What is ignored is a context variable, so each thread has its own, whereas the filters
of :mod:`warnings` are those of the process.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_ignored: ContextVar[tuple[type[Warning], ...]] = ContextVar("ignored", default=())


@contextmanager
def ignoring(*categories: type[Warning]) -> Iterator[None]:
    """Drop what :func:`warn` is asked to issue in these categories, in this thread."""
    token = _ignored.set((*_ignored.get(), *categories))
    try:
        yield
    finally:
        _ignored.reset(token)


def warn(message: str, category: type[Warning], stacklevel: int) -> None:
    """Issue a warning unless an enclosing fit ignores its category.

    `stacklevel` counts from the caller, as for :func:`warnings.warn`.
    """
    if not issubclass(category, _ignored.get()):
        warnings.warn(message, category, stacklevel=stacklevel + 1)
