"""Fits to a prepared data set: their scores, what was skipped, and which is best."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.pipeline import make_pipeline

import randkern
from randkern._memory import resolve_memory_limit
from randkern.exceptions import FeatureErrorWarning, MemoryLimitError
from randkern.reporting.scores import evaluate, number_scores, rmse_error
from randkern.study.kernel_choices import capped, parse_kernel
from randkern.study.measure import Measurement
from randkern.study.metrics import metric_of
from randkern.study.preparation import prepare
from randkern.study.records import describe_machine, installed_versions

Progress = Callable[[int, int, str], None]


class Fits:
    """Fits to one data set, their records, and notes of what was skipped or warned of.

    `progress` is called as ``progress(done, total, task)`` before every task, of which
    there are `total`, and finally with ``done == total``.
    """

    def __init__(
        self,
        dataset: Any,
        memory_limit: int | str | None,
        progress: Progress | None = None,
        total: int = 0,
    ) -> None:
        resolve_memory_limit(memory_limit)  # raises before the work, not after
        self.dataset = dataset
        if progress is not None:
            progress(0, total, "encoding columns")
        self.data = prepare(dataset)
        self.memory_limit = memory_limit
        self.records: list[dict[str, Any]] = []
        self.skipped: list[dict[str, Any]] = []
        self.warnings: list[dict[str, Any]] = []
        self.total = total
        self._done = 0
        self._progress = progress
        self._task = ""

    def begin(self, task: str) -> None:
        """Report the task that begins."""
        self._task = task
        if self._progress is not None:
            self._progress(self._done, self.total, task)
        self._done += 1

    def detail(self, text: str) -> None:
        """Report how far the task is."""
        if self._progress is not None:
            self._progress(self._done - 1, self.total, f"{self._task}, {text}")

    def model(
        self, kernel: Any, size: int | None, seed: int | None, *, search: bool = False
    ) -> Any:
        """Return the ridge model of the task, or one that searches for its penalty.

        It has at most as many features as an exact map needs.
        """
        if size is not None:
            size = capped(size, kernel, self.data.X_train.shape[1])
        kind = "Classifier" if self.data.task == "classification" else "Regressor"
        name = f"KernelRidge{kind}CV" if search else f"KernelRidge{kind}"
        return getattr(randkern, name)(
            kernel,
            n_components=size,
            fit_intercept=True,
            memory_limit=self.memory_limit,
            random_state=seed,
        )

    def compile(self, models: Iterable[Any]) -> None:
        """Fit the models to be timed on a few rows, so that all code is compiled."""
        data = self.data
        rows = self.few_rows()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for model in models:
                # Models that exceed the limit on a few rows will be skipped on all.
                with suppress(MemoryLimitError):
                    model.fit(data.X_train[rows], data.y_train[rows])
                    model.predict(data.X_test[:2])

    def few_rows(self) -> NDArray[np.intp]:
        """Return the first 16 rows, and one row of each class."""
        y = self.data.y_train
        rows = np.arange(min(16, len(y)))
        if self.data.task == "classification":
            rows = np.union1d(rows, np.unique(y, return_index=True)[1])
        return rows

    def try_fit(self, note: Mapping[str, Any], fit: Callable[[], Any]) -> Any:
        """Return the result of `fit`, or None if it was skipped; record why."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            # What few features cost is what is measured.
            warnings.simplefilter("ignore", FeatureErrorWarning)
            try:
                result = fit()
            except MemoryLimitError as error:
                self.skip(note, str(error))
                return None
        for message in sorted({str(warning.message) for warning in caught}):
            _add(self.warnings, {**note, "message": message})
        return result

    def skip(self, note: Mapping[str, Any], reason: str) -> None:
        """Note that a model was skipped."""
        _add(self.skipped, {**note, "reason": reason})

    def measured(self, model: Any) -> dict[str, Any]:
        """Fit a model, and return its test scores and what it cost."""
        data = self.data
        with Measurement() as fit:
            model.fit(data.X_train, data.y_train)
        with Measurement() as predict:
            predicted = model.predict(data.X_test)
        return self.scores(model, predicted) | {
            "fit_seconds": fit.seconds,
            "predict_seconds": predict.seconds,
            "peak_memory_bytes": max(fit.peak_bytes, predict.peak_bytes),
            "memory_before_bytes": fit.before_bytes,
        }

    def scores(self, model: Any, predicted: NDArray[Any]) -> dict[str, Any]:
        """Return the test scores of a fitted model by their names in records."""
        y = self.data.y_test
        if self.data.task == "regression":
            spread = float(y.std()) or 1.0
            values = number_scores(predicted, y)
            values["error"] = values["rmse"] / spread
            error = rmse_error((predicted - y) ** 2) / spread
        else:
            evaluation = evaluate(model, self.data.X_test, y, predicted)
            values, error = evaluation.scores, evaluation.standard_error
        known = {name: value for name, value in values.items() if np.isfinite(value)}
        return {
            "test_error": values["error"],
            "standard_error": error,
            "log_loss": known.get("log_loss"),
            "auc": known.get("auc"),
            **{
                name: known.get(name)
                for name in ("rmse", "mae", "r2")
                if name in values
            },
        }

    def baselines(self, note: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Return scores and costs of a constant and a linear model, by their names."""
        n, d = self.data.X_train.shape
        # One equation per column, or per row if there are fewer rows.
        size = d if d <= n else None
        linear = self.model(randkern.Linear(), size, None, search=True)
        models = {"mean": DummyRegressor(), "linear model": linear}
        if self.data.task == "classification":
            models = {"most frequent class": DummyClassifier(), "linear model": linear}
        measurements = {}
        for name, model in models.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    measurements[name] = self.measured(model)
                except MemoryLimitError as error:
                    self.skip({"kernel": name, **note}, str(error))
                    continue
            del measurements[name]["memory_before_bytes"]
        return measurements

    def results(self, arguments: Mapping[str, Any], **values: Any) -> dict[str, Any]:
        """Return all that is known of a study, JSON-compatible."""
        data = self.data
        described: dict[str, Any] = {
            "name": self.dataset.name,
            "task": data.task,
            "metric": metric_of(None, data.task).title,
            "n_train": len(data.X_train),
            "n_test": len(data.X_test),
            "n_features": int(data.X_train.shape[1]),
            "dtype": str(data.X_train.dtype),
            "split": data.split,
            "preprocessing": data.preprocessing,
        }
        if data.task == "classification":
            described["n_classes"] = len(np.unique(data.y_train))
        return {
            "command": "compare",
            "arguments": arguments,
            "dataset": described,
            "versions": installed_versions(),
            "machine": describe_machine(),
            **values,
            "records": self.records,
            "skipped": self.skipped,
            "warnings": self.warnings,
        }


def _add(notes: list[dict[str, Any]], note: dict[str, Any]) -> None:
    if note not in notes:  # once, not once per seed
        notes.append(note)


def fitted_to_training_rows(
    dataset: Any, record: Mapping[str, Any], arguments: Mapping[str, Any]
) -> Any:
    """Return the model of a record, fitted to the training rows.

    For a table it is a pipeline that starts with the encoder of columns.
    """
    named = record["hyperparameters"]
    name, _, landmarks = record["kernel"].partition(", ")
    choice = parse_kernel(name)
    fits = Fits(dataset, arguments["memory_limit"])
    kernel = choice.build(named.get(choice.opens))
    model = fits.model(kernel, record["n_components"], 0)
    features = "nystrom" if landmarks else "random"
    model.set_params(alpha=named["alpha"], features=features)
    model.fit(fits.data.X_train, fits.data.y_train)
    encoder = fits.data.encoder
    return model if encoder is None else make_pipeline(encoder, model)
