"""The progress of a fit, for scikit-learn's callbacks such as ``ProgressBar``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from randkern._fitting import is_late
from randkern.data.reading import are_in_memory

if TYPE_CHECKING:
    from randkern.solvers import Progress

try:  # scikit-learn 1.9
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Replacement for versions of scikit-learn without callbacks."""

        def _init_callback_context(self, **_: Any) -> _Silent:
            return _Silent()

    def with_callbacks(method: Any) -> Any:
        """Return the method unchanged."""
        return method


__all__ = ["CallbackSupportMixin", "FitReport", "with_callbacks"]


class _Silent:
    """The context of a fit without callbacks."""

    def subcontext(self, **_: Any) -> _Silent:
        return self

    def call_on_fit_task_begin(self, **_: Any) -> None: ...

    def call_on_fit_task_end(self, **_: Any) -> bool:
        return False


class FitReport:
    """Reports a fit and its iterations to callbacks.

    They receive what was passed to `fit`, or None for rows that are not in memory.
    """

    def __init__(self, estimator: Any, X: Any, y: Any, sample_weight: Any):
        if not are_in_memory(X):
            X = y = sample_weight = None
        metadata = None if sample_weight is None else {"sample_weight": sample_weight}
        self._context_arguments = {
            "estimator": estimator,
            "X": X,
            "y": y,
            "metadata": metadata,
        }
        self._estimator = estimator
        self._context: Any = None
        self._attributes_of: Callable[[Any], dict[str, Any]] | None = None

    def begin(self, attributes_of: Callable[[Any], dict[str, Any]] | None) -> None:
        """Report the start of the fit.

        `attributes_of` returns the attributes of the estimator for the value of an
        iteration. None: there are no iterations.
        """
        self._attributes_of = attributes_of
        self._context = self._estimator._init_callback_context(
            max_subtasks=None if attributes_of else 0
        )
        self._context.call_on_fit_task_begin(**self._context_arguments)

    def __call__(self, progress: Progress) -> bool:
        """Report an iteration; return whether a callback requests to stop."""
        return self.step(progress.iteration, progress.value)

    def step(self, number: int, value: Any, name: str = "iteration") -> bool:
        """Report the value of a step; return whether to stop.

        A callback may request it, or it is late.
        """
        attributes_of = self._attributes_of
        assert attributes_of is not None
        task = self._context.subcontext(task_name=f"{name} {number}")
        task.call_on_fit_task_begin(**self._context_arguments)
        stop = task.call_on_fit_task_end(
            **self._context_arguments,
            reconstruction_attributes=lambda: attributes_of(value),
        )
        return bool(stop) or is_late()

    def end(self) -> None:
        """Report the end of the fit, with all attributes set."""
        if self._context is None:
            self.begin(None)
        self._attributes_of = None  # which may refer to features
        self._context.call_on_fit_task_end(
            **self._context_arguments, reconstruction_attributes={}
        )
