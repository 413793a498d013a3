"""Benchmarks of classifiers, each fitted and scored in a process of its own."""

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, ClassVar

from randkern._memory import resolve_memory_limit

from ..contenders import Contender, known_names, nonempty_records
from ..figures import curves, panels
from ..process import in_fresh_process
from ..runner import Case, Experiment
from ..scoring import Trial, misclassified
from .rows import (
    load_rows,
    resolved_lengthscale,
    saved,
    saved_rows,
    warm_trial,
    warm_up_rows,
)


def classifier_record(trial: Trial, warm_up: float, model: Any) -> dict[str, Any]:
    """Return the error of a fit, and what it took."""
    return {
        "test_error": trial.score,
        "train_seconds": trial.fit.seconds,
        "train_cpu_seconds": trial.fit.cpu_seconds,
        "predict_seconds": trial.predict.seconds,
        "warm_up_seconds": warm_up,
    }


class ClassifierExperiment(Experiment):
    """Contenders on the rows of a data set.

    `record` returns the record of what :func:`.rows.warm_trial` returns.
    """

    command = "bench"
    skipped_by: ClassVar[Sequence[str]] = ("method", "n_components")
    contenders: ClassVar[Mapping[str, Contender]]
    record: ClassVar[Any] = staticmethod(classifier_record)

    def prepare(self) -> dict[str, Any] | None:
        """Write the rows to files for the processes."""
        rows, described = load_rows(self.options)
        self.n, self.d = rows.X.shape
        self.lengthscale = resolved_lengthscale(self.options.lengthscale, rows.X)
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
        request |= {"memory_limit": self.memory_limit, "module": self.__module__}
        request["experiment"] = type(self).__name__
        contender.check(request["n_train"], self.d, case["n_components"] or 0)
        return {"label": contender.label, **in_fresh_process(fit_classifier, request)}

    def conclude(self, results: dict[str, Any]) -> dict[str, Any]:
        """Return the resolved lengthscale."""
        nonempty_records(results)
        return {"arguments": results["arguments"] | {"lengthscale": self.lengthscale}}


def cost_figure(
    records: Iterable[Mapping[str, Any]],
    styles: Mapping[str, Contender],
    title: str,
    size: tuple[float, float],
) -> Any:
    """Return a figure of test error against training time, labelled with D."""
    shown = list(records)
    figure, (axes,) = panels(1, size=size)
    xlabel = "seconds: features of the training rows, and fit"
    curves(
        axes,
        shown,
        "train_seconds",
        "test_error",
        styles,
        title=title,
        xlabel=xlabel,
        ticks=None,
    )
    for record in shown:
        if record["n_components"] is not None:
            axes.annotate(
                f"{record['n_components']:,}",
                (record["train_seconds"], 100 * record["test_error"]),
                xytext=(6, 5),
                textcoords="offset points",
                fontsize=8,
            )
    axes.margins(x=0.15, y=0.15)
    axes.legend(frameon=False, fontsize=8, handlelength=3.2)
    return figure


def fit_classifier(request: Mapping[str, Any]) -> dict[str, Any]:
    """Fit and score a contender of an experiment in this process."""
    experiment = getattr(import_module(request["module"]), request["experiment"])
    rows = saved_rows(request["folder"], request["n_train"])
    contender, few = experiment.contenders[request["method"]], warm_up_rows(rows.y)
    trial = warm_trial(contender, request, rows, misclassified, few)
    result: dict[str, Any] = experiment.record(*trial)
    return result
