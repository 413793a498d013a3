"""Benchmarks of classifiers, each fitted and scored in a process of its own."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from randkern._memory import resolve_memory_limit

from ..process import in_fresh_process
from ..runner import Case, Experiment
from ..tables import skip_notes
from .contenders import Contender, fit_and_predict, known_names, some_records
from .rows import (
    load_rows,
    resolved_lengthscale,
    saved,
    saved_rows,
    warm_up_rows,
)

__all__ = ["ClassifierExperiment", "fit_classifier"]


class ClassifierExperiment(Experiment):
    """Contenders on the rows of a data set.

    Attributes
    ----------
    contenders : mapping of str to Contender
    work : callable
        A function of a module that calls :func:`fit_classifier` with the contenders.
    """

    command = "bench"
    contenders: ClassVar[Mapping[str, Contender]]
    work: ClassVar[Callable[[Mapping[str, Any]], dict[str, Any]]]

    def prepare(self) -> dict[str, Any]:
        """Write the rows to files for the processes."""
        options = self.options
        rows, described = load_rows(options)
        self.n, self.d = rows.X.shape
        self.lengthscale = resolved_lengthscale(options.lengthscale, rows.X)
        self.folder = self.resources.enter_context(saved(rows))
        return described

    @property
    def methods(self) -> list[str]:
        """The names of the contenders that take part."""
        return known_names("method", self.options.methods, self.contenders)

    @property
    def memory_limit(self) -> int | None:
        """The limit of randkern's models in bytes."""
        limit = self.options.memory_limit
        return None if limit is None else resolve_memory_limit(limit)

    def measure(self, case: Case) -> dict[str, Any]:
        """Run the case in its own process, which reads the rows it uses."""
        contender = self.contenders[case["method"]]
        request = {"n_train": self.n, **self.options.arguments(), **case}
        request |= {"lengthscale": self.lengthscale, "folder": self.folder}
        request["memory_limit"] = self.memory_limit
        contender.check(request["n_train"], self.d, case["n_components"] or 0)
        return {"label": contender.label, **in_fresh_process(self.work, request)}

    def conclude(self, results: dict[str, Any]) -> dict[str, Any]:
        """Return the resolved lengthscale."""
        some_records(results)
        return {"arguments": results["arguments"] | {"lengthscale": self.lengthscale}}

    @classmethod
    def notes(cls, results: Mapping[str, Any]) -> list[str]:
        """Return the skipped cases."""
        return skip_notes(results, "method", "n_components")


def fit_classifier(
    contenders: Mapping[str, Contender], request: Mapping[str, Any]
) -> tuple[dict[str, Any], Any]:
    """Fit and score a classifier in this process; return its record, and the model."""
    rows = saved_rows(request["folder"], request["n_train"])
    contender, few = contenders[request["method"]], warm_up_rows(rows.y)
    timed = fit_and_predict(contender, request, *rows[:3], few)
    return {
        "test_error": float(np.mean(timed.predicted != rows.y_test)),
        "train_seconds": timed.fit.seconds,
        "train_cpu_seconds": timed.fit.cpu_seconds,
        "predict_seconds": timed.predict.seconds,
        "warm_up_seconds": timed.warm_up.seconds,
    }, timed.model
