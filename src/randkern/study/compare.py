"""Test error against the number of random features, compared to the exact kernel."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier, DummyRegressor

import randkern

from .._memory import resolve_memory_limit
from .._validation import check_choice
from ..exceptions import MemoryLimitError
from ..report.scores import area_under_curve, mean_log_loss, rmse_error
from .fits import Fits, few_rows, ridge_class
from .kernel_choices import KernelChoice, parse_kernels
from .measure import Measurement
from .preparation import PreparedData, prepare
from .records import Record, describe_machine, installed_versions
from .selection import Selection, select_hyperparameters

__all__ = [
    "DEFAULT_KERNELS",
    "DEFAULT_N_COMPONENTS",
    "METRICS",
    "compare",
    "describe_dataset",
    "report",
    "scores",
    "test_error",
]

DEFAULT_KERNELS = ("gaussian", "laplacian", "optical")
DEFAULT_N_COMPONENTS = (30, 100, 300, 1000, 3000)
METRICS = {
    "classification": "misclassified share",
    "regression": "RMSE / std",
}
_METRIC_FORMULAS = {
    "classification": "1 - accuracy on the test rows",
    "regression": "root mean squared error over the standard deviation of the "
    "test targets: sqrt(1 - R^2)",
}

Progress = Callable[[int, int, str], None]


def compare(
    dataset: Any,
    kernels: str | Sequence[str] = DEFAULT_KERNELS,
    n_components: Sequence[int] = DEFAULT_N_COMPONENTS,
    *,
    exact: bool = True,
    features: Sequence[str] = ("random",),
    alpha: float | None = None,
    n_seeds: int = 3,
    memory_limit: int | str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure test error, time and memory of kernels by number of features.

    Every kernel's hyperparameters are chosen once on validation rows held out of the
    training rows (:func:`.selection.select_hyperparameters`) and used for every number
    of features and for the exact kernel. Each model is then fitted on all training rows
    and scored on the test rows. The models' intercept centres the targets.

    Parameters
    ----------
    dataset : randkern.datasets.Dataset
        See :func:`.preparation.prepare` for how it is split and scaled.
    kernels : str or sequence of str
        Names accepted by :func:`.kernel_choices.parse_kernels`.
    n_components : sequence of int
        Numbers of random features. The linear kernel has at most as many features as
        the data has columns; larger numbers are recorded as skipped.
    exact : bool, default=True
        Whether to fit the exact kernels too.
    features : sequence of {"random", "nystrom"}, default=("random",)
        The features of the models; landmarks are recorded as a separate kernel,
        ``"gaussian, landmarks"``.
    alpha : float, optional
        Ridge penalty of every kernel; by default one is chosen per kernel.
    n_seeds : int, default=3
        Models with random features are drawn with seeds 0, 1, ..., n_seeds - 1;
        the split and the hyperparameters are the same for all.
    memory_limit : int or str, optional
        Passed to the models. Fits that would exceed it are recorded as skipped.
    progress : callable, optional
        Called as ``progress(done, total, doing)`` before every step, and finally with
        ``done == total``.

    Returns
    -------
    results : dict
        JSON-compatible: ``command``, ``arguments``, ``dataset``, ``versions``,
        ``machine``, ``selection`` (trials by kernel), ``baselines`` (by name: scores
        and times of the most frequent class, or the mean, and of a linear model),
        ``records`` (see :class:`.records.Record`), ``skipped`` (``kernel``,
        ``n_components``, ``reason``) and ``warnings`` (``kernel``, ``n_components``,
        ``message``).

    Raises
    ------
    ValueError
        If an argument is invalid, or the data set cannot be used.

    Notes
    -----
    Before a kernel is timed, its models are fitted once on a few rows, so that no
    record includes compilation.

    Examples
    --------
    >>> from randkern.datasets import load_dataset
    >>> from randkern.study.compare import compare
    >>> results = compare(load_dataset("breast-cancer"), "gaussian", [10, 100],
    ...                   n_seeds=2)
    >>> [(r["n_components"], r["seed"]) for r in results["records"]]
    [(None, 0), (10, 0), (10, 1), (100, 0), (100, 1)]
    """
    choices = parse_kernels(kernels)
    sizes = _checked_sizes(n_components, exact)
    for each in features:
        check_choice("features", each, ("random", "nystrom"))
    _check_numbers(alpha, n_seeds)
    resolve_memory_limit(memory_limit)  # raises before the work, not after
    data = prepare(dataset)
    runs = _Runs(data, memory_limit)
    total = len(choices) * (1 + int(exact) + len(features) * len(sizes) * n_seeds)
    beside, refused = baselines(data, memory_limit)
    for name, reason in refused.items():
        runs.skip({"kernel": name, "n_components": None}, reason)
    done = 0
    for choice in choices:
        report(progress, done, total, f"{choice.label}: choosing hyperparameters")
        runs.begin(choice, alpha)
        done += 1
        for size, seed, which in _schedule(sizes, exact, n_seeds, features):
            doing = "exact" if size is None else f"{size:,} features, seed {seed}"
            report(progress, done, total, f"{_label(choice, which)}: {doing}")
            runs.run(choice, size, seed, which)
            done += 1
    report(progress, total, total, "done")
    return {
        "command": "compare",
        "arguments": {
            "kernels": [choice.label for choice in choices],
            "n_components": sizes,
            "exact": exact,
            "features": list(features),
            "alpha": "auto" if alpha is None else alpha,
            "n_seeds": n_seeds,
            "memory_limit": memory_limit,
        },
        "dataset": describe_dataset(dataset, data),
        "versions": installed_versions(),
        "machine": describe_machine(),
        "selection": {k: asdict(v) for k, (_, v, _) in runs.chosen.items()},
        "baselines": beside,
        "records": [record.to_dict() for record in runs.records],
        "skipped": runs.skipped,
        "warnings": runs.warnings,
    }


def test_error(y_true: NDArray[Any], y_predicted: NDArray[Any], task: str) -> float:
    """Return the error of predictions, 0 for perfect ones.

    It is the share of misclassified rows; or the root mean squared error divided by the
    standard deviation of `y_true` (1 for predicting the mean), or by 1 if that is zero.
    """
    if task == "classification":
        return float(np.mean(y_true != y_predicted))
    residual = np.asarray(y_predicted).reshape(np.shape(y_true)) - y_true
    spread = float(np.sqrt(np.mean(np.var(y_true, axis=0))))
    return float(np.sqrt(np.mean(residual**2))) / (spread if spread > 0 else 1.0)


def scores(model: Any, data: PreparedData, predicted: NDArray[Any]) -> dict[str, Any]:
    """Return the test scores of a fitted model by their names in records."""
    y = data.y_test
    found: dict[str, Any] = {
        "test_error": test_error(y, predicted, data.task),
        "log_loss": None,
        "auc": None,
    }
    if data.task == "regression":
        squares = (np.asarray(predicted).reshape(y.shape) - y) ** 2
        squares = squares.reshape(len(y), -1).mean(axis=1)
        spread = float(np.sqrt(np.mean(np.var(y, axis=0)))) or 1.0
        return found | {"standard_error": rmse_error(squares) / spread}
    found["standard_error"] = float(np.std(predicted != y)) / len(y) ** 0.5
    if hasattr(model, "predict_proba"):
        P = model.predict_proba(data.X_test)
        found["log_loss"] = mean_log_loss(model, P, y)
        area = area_under_curve(model, P, y)
        found["auc"] = area if np.isfinite(area) else None
    return found


test_error.__test__ = False  # type: ignore[attr-defined]  # not one of pytest's


def baselines(
    data: PreparedData, memory_limit: int | str | None
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Score a constant and a linear model.

    Returns their scores and costs by name, and for those that would take too much
    memory the reasons.
    """
    n, d = data.X_train.shape
    # One equation per column, or per row if there are fewer rows.
    linear = ridge_class(data.task, search=True)(
        randkern.Linear(),
        n_components=d if d <= n else None,
        fit_intercept=True,
        memory_limit=memory_limit,
    )
    models = {"mean": DummyRegressor(), "linear model": linear}
    if data.task == "classification":
        models = {"most frequent class": DummyClassifier(), "linear model": linear}
    found, refused = {}, {}
    for name, model in models.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found[name], _ = _measured(model, data)
            except MemoryLimitError as error:
                refused[name] = str(error)
    return found, refused


def _measured(model: Any, data: PreparedData) -> tuple[dict[str, Any], int]:
    """Return scores and costs of a model, and the memory before its fit."""
    with Measurement() as fit:
        model.fit(data.X_train, data.y_train)
    with Measurement() as predict:
        predicted = model.predict(data.X_test)
    found = scores(model, data, predicted) | {
        "fit_seconds": fit.seconds,
        "predict_seconds": predict.seconds,
        "peak_memory_bytes": max(fit.peak_bytes, predict.peak_bytes),
    }
    return found, fit.before_bytes


class _Runs(Fits):
    """Fits, scores and times models on one data set, and stores the records."""

    def __init__(self, data: PreparedData, memory_limit: int | str | None) -> None:
        super().__init__(data, memory_limit)
        self.records: list[Record] = []
        # The kernel, what was chosen, and the hyperparameters of every choice.
        self.chosen: dict[str, tuple[Any, Selection, dict[str, float]]] = {}

    def begin(self, choice: KernelChoice, alpha: float | None) -> None:
        """Choose the kernel's hyperparameters, and compile its code."""
        data = self.data
        found = select_hyperparameters(
            choice, data.X_train, data.y_train, task=data.task, alpha=alpha
        )
        named = choice.hyperparameters(found.value, found.alpha)
        self.chosen[choice.label] = choice.build(found.value), found, named
        # The exact kernel, and fewer features than rows: the primal system.
        sizes = None, len(few_rows(data)) // 2
        self.compile(self._model(choice, size, 0) for size in sizes)

    def run(
        self, choice: KernelChoice, size: int | None, seed: int, features: str
    ) -> None:
        """Add one record, or a note on why it was skipped."""
        note: dict[str, Any] = {
            "kernel": _label(choice, features),
            "n_components": size,
        }
        most = choice.capped(size or 0, self.data.X_train.shape[1])
        if size is not None and size > most:
            reason = f"the {choice.family} kernel is exact with {most} features"
            self.skip(note, reason)
            return
        model = self._model(choice, size, seed).set_params(features=features)
        measured = self.noted(note, partial(_measured, model, self.data))
        if measured is None:
            return
        found, before = measured
        self.records.append(
            Record(
                **note,
                seed=seed,
                **found,
                memory_before_bytes=before,
                hyperparameters=self.chosen[choice.label][2],
            )
        )

    def _model(self, choice: KernelChoice, size: int | None, seed: int) -> Any:
        kernel, selection, _ = self.chosen[choice.label]
        return self.model(choice, kernel, size, seed).set_params(alpha=selection.alpha)


def _schedule(
    sizes: Sequence[int], exact: bool, n_seeds: int, features: Sequence[str]
) -> Iterator[tuple[int | None, int, str]]:
    """Yield (n_components, seed, features): the exact kernel once, then all draws."""
    if exact:
        yield None, 0, "random"
    for which in features:
        for size in sizes:
            for seed in range(n_seeds):
                yield size, seed, which


def _label(choice: KernelChoice, features: str) -> str:
    """Return the name of a kernel with these features in records."""
    return choice.label if features == "random" else f"{choice.label}, landmarks"


def describe_dataset(dataset: Any, data: PreparedData) -> dict[str, Any]:
    """Return a data set's entry in the results: its metric, sizes and preparation."""
    description: dict[str, Any] = {
        "name": dataset.name,
        "task": data.task,
        "metric": METRICS[data.task],
        "metric_formula": _METRIC_FORMULAS[data.task],
        "n_train": len(data.X_train),
        "n_test": len(data.X_test),
        "n_features": int(data.X_train.shape[1]),
        "dtype": str(data.X_train.dtype),
        "split": data.split,
        "preprocessing": data.preprocessing,
    }
    if data.task == "classification":
        description["n_classes"] = len(np.unique(data.y_train))
    return description


def _checked_sizes(n_components: Sequence[int], exact: bool) -> list[int]:
    """Return the distinct sizes in increasing order."""
    for size in n_components:
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
            raise ValueError(
                f"n_components must be positive whole numbers, got {size!r}; "
                "for instance 100,1000"
            )
    if len(n_components) == 0 and not exact:
        raise ValueError(
            "nothing to compare: give n_components, or exact kernels, or both"
        )
    return sorted({int(size) for size in n_components})


def _check_numbers(alpha: float | None, n_seeds: int) -> None:
    if alpha is not None and not 0 < alpha < float("inf"):
        raise ValueError(f"alpha must be 'auto' or a positive number, got {alpha!r}")
    if n_seeds < 1:
        raise ValueError(f"at least 1 seed is needed, got {n_seeds}")


def report(progress: Progress | None, done: int, total: int, doing: str) -> None:
    """Call `progress` if it is not None."""
    if progress is not None:
        progress(done, total, doing)
