"""Benchmarks of classifiers, each fitted and scored in a process of its own."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from randkern._memory import resolve_memory_limit

from ..contenders import Contender
from ..figures import curves, panels
from ..process import in_fresh_process
from ..runner import Case
from ..scoring import Trial, misclassified
from .rows import (
    load_rows,
    resolved_lengthscale,
    saved,
    saved_rows,
    warm_trial,
    warm_up_rows,
)


@dataclass(frozen=True)
class SavedRows:
    """Rows of a data set in files, from which processes read them.

    `fit` is the function of a module that runs in these processes.
    """

    options: Any
    contenders: Mapping[str, Contender]
    fit: Callable[[dict[str, Any]], Mapping[str, Any]]
    described: dict[str, Any]
    lengthscale: float
    folder: str

    @property
    def n(self) -> int:
        """The number of training rows."""
        return int(self.described["n_train"])

    @property
    def memory_limit(self) -> int | None:
        """The limit of randkern's models in bytes."""
        limit = self.options.memory_limit
        return None if limit is None else resolve_memory_limit(limit)

    def measure(self, case: Case) -> dict[str, Any]:
        """Run a case in its own process, which reads the rows it uses."""
        contender = self.contenders[case["method"]]
        request = {"n_train": self.n, **self.options.arguments(), **case}
        request |= {"lengthscale": self.lengthscale, "folder": self.folder}
        request |= {"memory_limit": self.memory_limit}
        d, size = self.described["n_features"], case["n_components"] or 0
        contender.check(request["n_train"], d, size)
        return {"label": contender.label, **in_fresh_process(self.fit, request)}


@contextmanager
def rows_in_files(
    options: Any, contenders: Mapping[str, Contender], fit: Any
) -> Iterator[SavedRows]:
    """Write the rows of a data set to files for the processes of contenders."""
    rows, described = load_rows(options)
    lengthscale = resolved_lengthscale(options.lengthscale, rows.X)
    with saved(rows) as folder:
        yield SavedRows(options, contenders, fit, described, lengthscale, folder)


def fit_classifier(
    request: Mapping[str, Any],
    contenders: Mapping[str, Contender],
    record: Callable[[Trial, float, Any], dict[str, Any]],
) -> dict[str, Any]:
    """Fit and score a contender in this process."""
    rows = saved_rows(request["folder"], request["n_train"])
    contender, few = contenders[request["method"]], warm_up_rows(rows.y)
    return record(*warm_trial(contender, request, rows, misclassified, few))


def classifier_record(trial: Trial, warm_up: float, model: Any) -> dict[str, Any]:
    """Return the error of a fit, and what it took."""
    return {
        "test_error": trial.score,
        "train_seconds": trial.fit.seconds,
        "train_cpu_seconds": trial.fit.cpu_seconds,
        "predict_seconds": trial.predict.seconds,
        "warm_up_seconds": warm_up,
    }


def cost_figure(
    records: Iterable[Mapping[str, Any]],
    styles: Mapping[str, Contender],
    title: str,
    size: tuple[float, float],
) -> Any:
    """Return a figure of test error against training time.

    Points are labelled with D, or with the rows of an exact kernel.
    """
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
        size = record["n_components"]
        axes.annotate(
            f"{record['n_train']:,} rows" if size is None else f"{size:,}",
            (record["train_seconds"], 100 * record["test_error"]),
            xytext=(6, 5),
            textcoords="offset points",
            fontsize=8,
        )
    axes.margins(x=0.15, y=0.15)
    axes.legend(frameon=False, fontsize=8, handlelength=3.2)
    return figure
