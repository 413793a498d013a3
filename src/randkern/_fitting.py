"""Fits that either succeed or leave the estimator unchanged."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])


def all_or_nothing(method: Method) -> Method:
    """Restore the attributes of an estimator if `method` raises.

    After any exception, including ``KeyboardInterrupt``, the estimator predicts as
    before, or is still not fitted. Parameters keep the values that the user has set.
    Attributes are restored, but not the objects they refer to: `method` must assign
    new objects, or undo its changes to old ones.

    Apply it outside of scikit-learn's ``with_callbacks``, which tears down what the
    callbacks of this fit have set up.

    Examples
    --------
    >>> class Model:
    ...     def _get_param_names(self):
    ...         return []
    ...     @all_or_nothing
    ...     def fit(self, X):
    ...         self.mean_ = sum(X) / len(X)
    ...         self.largest_ = max(X)
    ...         return self
    >>> model = Model().fit([1, 2, 3])
    >>> model.fit([])
    Traceback (most recent call last):
        ...
    ZeroDivisionError: division by zero
    >>> model.mean_, model.largest_
    (2.0, 3)
    """

    @functools.wraps(method)
    def restoring(estimator: Any, *args: Any, **kwargs: Any) -> Any:
        before = vars(estimator).copy()
        try:
            return method(estimator, *args, **kwargs)
        except BaseException:
            now, parameters = vars(estimator), estimator._get_param_names()
            for name in [*now, *before]:
                if name in parameters:
                    continue
                if name in before:
                    now[name] = before[name]
                else:
                    now.pop(name, None)
            raise

    return restoring  # type: ignore[return-value]
