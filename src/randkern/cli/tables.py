"""Tables that commands are given, and models that they fit to them."""

import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from ..exceptions import DataFileError
from .console import progress_bar

__all__ = [
    "described",
    "keep",
    "load",
    "load_for_study",
    "read",
    "test_rows",
    "trial_progress",
    "with_dates",
    "without_texts",
]

# Text of so many different numbers is a quantity with odd entries.
_MANY_NUMBERS = 20
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


def load(data: str, target: str, task: str | None) -> Any:
    """Return the data set of a file, or of standard input where it is ``-``."""
    if data != "-":
        return _load(data, target, task)
    with _standard_input() as path:
        return _load(path, target, task)


def _load(
    path: str | Path, target: str | None, task: str | None, data_dir: Path | None = None
) -> Any:
    """Return a data set; complaints about a target name a row."""
    from ..datasets import load_dataset, read_table
    from ..datasets.frames import dataset_from_frame

    place = Path(path)
    if target is None or not (place.suffix and place.is_file()):
        return load_dataset(path, data_dir=data_dir, target=target, task=task)
    frame = with_dates(read_table(place), {target})
    try:
        table = dataset_from_frame(
            frame, target, name=place.name, source=str(path), task=task
        )
    except ValueError as error:
        column = frame[target] if target in frame else None
        texts = column is not None and column.dtype.kind not in "iuf"
        # Of classes any text may be one, but none may be missing.
        if column is None or (texts and task != "regression" and column.notna().all()):
            raise
        odd = _odd_row(column)
        raise type(error)(f"{error}; {odd}" if odd else str(error)) from error
    if task is None and table.y_train.dtype.kind == "O":
        _check_text(table.y_train, target)
    return table


def with_dates(frame: Any, keep: Collection[str]) -> Any:
    """Return a table whose dates, but for some columns, are days since 1970.

    Dates of files of text are texts: a column is one of dates where all of its values
    are such as 2026-11-22, with or without a time. Where a few are not, a row is named.
    """
    import numpy as np
    import pandas as pd

    found = {}
    for name in frame.columns:
        column = frame[name]
        if name in keep or pd.api.types.is_numeric_dtype(column.dtype):
            continue
        times = column
        if not pd.api.types.is_datetime64_any_dtype(column.dtype):
            first = column.dropna().head(1).tolist()
            if not (first and _DATE.match(str(first[0]))):
                continue
            times = pd.to_datetime(
                column.astype(object), format="ISO8601", errors="coerce", utc=True
            )
            odd = np.flatnonzero(times.isna() & column.notna())
            if len(odd) > len(column) / 2:
                continue
            if len(odd):
                value = column.iloc[[odd[0]]].tolist()[0]
                raise ValueError(
                    f"column {name!r} holds dates but for {len(odd):,} rows: row "
                    f"{odd[0]:,} holds {value!r} (the first row is 0); mend or empty it"
                )
        times = pd.to_datetime(times, utc=True)
        found[name] = (times - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
    return frame.assign(**found) if found else frame


def without_texts(table: Any) -> Any:
    """Return a data set without columns of too many texts, and warn of these."""
    from ..tabular import TabularEncoder

    X, dropped = table.X_train, []
    for name in X.columns:
        column = X[name]
        if column.dtype != "category" or column.nunique() < _MANY_NUMBERS:
            continue
        try:
            TabularEncoder().fit(X[[name]])
        except ValueError:
            if _mostly_numbers(column.dropna()):
                raise  # it names the row that is no number
            dropped.append(name)
    if not dropped:
        return table
    told = ", ".join(f"{name!r} ({X[name].nunique():,} different)" for name in dropped)
    advice = "put what they say into columns of numbers or of few categories"
    if len(dropped) == X.shape[1]:
        raise ValueError(
            f"{table.name}: all columns hold texts that hardly repeat: {told}; {advice}"
        )
    told = f"left out, as texts that hardly repeat: {told}; {advice}"
    warnings.warn(told, UserWarning, stacklevel=2)
    return replace(table, X_train=X.drop(columns=dropped))


def _odd_row(values: Any) -> str | None:
    """Say which row is the first that holds no finite number, if one does."""
    import numpy as np
    import pandas as pd

    column = pd.Series(values)
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(float)
    rows = np.flatnonzero(column.isna())
    if not len(rows):
        rows = np.flatnonzero(~np.isfinite(numbers))
    if not len(rows):
        return None
    value = column.iloc[[rows[0]]].tolist()[0]
    found = "is empty" if pd.isna(value) else f"holds {value!r}"
    return f"row {rows[0]:,} {found} (the first row is 0)"


def _check_text(labels: Any, target: str) -> None:
    """Raise where texts are numbers but for a few, which were hardly meant as such."""
    if _mostly_numbers(labels):
        raise DataFileError(
            f"the target {target!r} holds numbers and text: {_odd_row(labels)}; mend "
            "such rows, or say --task classification if each value is a class"
        )


def _mostly_numbers(texts: Any) -> bool:
    import pandas as pd

    numbers = pd.to_numeric(pd.Series(texts).astype(object), errors="coerce")
    return bool(numbers.notna().mean() > 0.5 and numbers.nunique() > _MANY_NUMBERS)


def described(table: Any, task: str | None) -> str:
    """Say what the data are taken for, and, of a guess, why and what changes it."""
    if task is not None:
        return table.description
    y = table.y_train
    if y.dtype.kind not in "iuf":
        kind = "booleans" if y.dtype.kind == "b" else "text"
        return f"{table.description}, because it holds {kind}"
    n = len(set(y.tolist()))
    other = "regression" if table.task == "classification" else "classification"
    few = "only " if other == "regression" else ""
    whole = "whole " if bool((y == y.astype("int64")).all()) else ""
    return (
        f"{table.description}, because it has {few}{n:,} different {whole}numbers; "
        f"--task {other} changes it"
    )


def test_rows(path: Path, table: Any, target: str) -> tuple[Any, Any]:
    """Return the rows and targets of a file that judge models of a table."""
    test = load(str(path), target, table.task)
    columns = list(table.X_train.columns)
    missing = [name for name in columns if name not in test.X_train.columns]
    if missing:
        raise ValueError(f"{test.name} has no column {', '.join(missing)}")
    return test.X_train[columns], test.y_train


test_rows.__test__ = False  # type: ignore[attr-defined]  # not one of pytest's


def load_for_study(
    data: str, data_dir: Path | None, target: str | None, task: str | None, test: Any
) -> Any:
    """Return a data set by name or of a file, with test rows of another file."""
    if data == "-":
        table = load(data, str(target), task)
    else:
        table = _load(data, target, task, data_dir)
    if test is None:
        return table
    if target is None:
        raise ValueError("--test takes rows of a table: give --data FILE and --target")
    X, y = test_rows(test, table, target)
    return replace(table, X_test=X, y_test=y)


def keep(
    console: Console,
    dataset: Any,
    results: dict[str, Any],
    save: Path | None,
    out: Path,
    draw: Callable[[Mapping[str, Any], Path], list[Path]],
    show: Callable[[Console, Mapping[str, Any]], None],
) -> None:
    """Save the best model if that is asked for; write the results; print them all."""
    from ..study.records import write_results

    saved = "" if save is None else _save_winner(dataset, results, save)
    written = [write_results(results, out / "results.json"), *draw(results, out)]
    show(console, results)
    if save is not None:
        console.print(saved, soft_wrap=True)
        written.append(save)
    console.print(f"wrote {', '.join(str(path) for path in written)}", soft_wrap=True)


def _save_winner(dataset: Any, results: dict[str, Any], path: Path) -> str:
    """Fit and save the best model; say which it is."""
    import randkern

    from ..study.winner import fit_winner, winner

    randkern.save(fit_winner(dataset, results), path)
    best = winner(results) or {}
    results["saved"] = best
    size = best["n_components"]
    features = "the exact kernel" if size is None else f"{size:,} features"
    if best["features"] == "nystrom":
        features = f"{size:,} landmarks"
    named = ", ".join(f"{k} {v:.4g}" for k, v in best["hyperparameters"].items())
    return f"saved the best, {best['kernel']} with {features} ({named})"


def read(data: str) -> Any:
    """Return the dataframe of a file, or of CSV from standard input."""
    from ..datasets import read_table

    if data != "-":
        return read_table(data)
    with _standard_input() as path:
        return read_table(path)


@contextmanager
def _standard_input() -> Iterator[Path]:
    """Yield a file that holds it: a table is read twice, and tells its kind by name."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "standard-input.csv"
        path.write_bytes(sys.stdin.buffer.read())
        yield path


class _Trials:
    """A callback of scikit-learn that counts the tasks of a fit."""

    def __init__(self, tell: Callable[[int], None]):
        self._tell, self._n = tell, 0

    def setup(self, estimator: Any, context: Any) -> None: ...

    def teardown(self, estimator: Any, context: Any) -> None: ...

    def on_fit_task_begin(self, estimator: Any, context: Any, **_: Any) -> None: ...

    def on_fit_task_end(self, estimator: Any, context: Any, **_: Any) -> bool:
        self._n += 1
        self._tell(self._n)
        return False


@contextmanager
def trial_progress(model: Any, doing: str) -> Iterator[None]:
    """Show the seconds of the model's limit, and the kernels tried, in the block."""
    began, limit = time.perf_counter(), int(model.time_limit)
    with progress_bar() as report:

        def tell(n: int) -> None:
            seconds = min(int(time.perf_counter() - began), limit)
            report(seconds, limit, f"{doing}: {n} kernels tried")

        tell(0)
        if hasattr(model, "set_callbacks"):  # scikit-learn 1.9
            model.set_callbacks(_Trials(tell))
        yield
