"""Fits that either succeed or leave the estimator unchanged, and that end in time.

Whether it is late is a context variable, so each thread has its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])

_late: ContextVar[Callable[[], bool]] = ContextVar("late", default=lambda: False)


@contextmanager
def ending(late: Callable[[], bool]) -> Iterator[None]:
    """End the iterations of fits, and shorten what is left of them, once it is late."""
    token = _late.set(late)
    try:
        yield
    finally:
        _late.reset(token)


def is_late() -> bool:
    """Return whether a fit should end, by an enclosing :func:`ending`."""
    return _late.get()()


def all_or_nothing(method: Method) -> Method:
    """Restore the attributes of an estimator if `method` raises.

    After any exception, including ``KeyboardInterrupt``, the estimator predicts as
    before, or is still not fitted. Parameters keep the values that the user has set.
    Attributes are restored, but not the objects they refer to: `method` must assign
    new objects, or undo its changes to old ones.

    Apply it outside of scikit-learn's ``with_callbacks``, which tears down what the
    callbacks of this fit have set up.
    """

    @functools.wraps(method)
    def restoring(estimator: Any, *args: Any, **kwargs: Any) -> Any:
        before = vars(estimator).copy()
        try:
            return method(estimator, *args, **kwargs)
        except BaseException:
            parameters = estimator._get_param_names()
            now = vars(estimator).items()
            current = {name: value for name, value in now if name in parameters}
            estimator.__dict__ = before | current
            raise

    return restoring  # type: ignore[return-value]


def forget(estimator: Any, *names: str) -> None:
    """Delete the attributes of an earlier fit that the estimator has."""
    for name in names:
        if name in vars(estimator):
            delattr(estimator, name)


def remember(estimator: Any, attributes: Mapping[str, Any]) -> None:
    """Set the attributes of a fit."""
    for name, value in attributes.items():
        setattr(estimator, name, value)
