"""Tables that commands are given, and models that they fit to them."""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from .console import progress_bar

__all__ = [
    "described",
    "keep",
    "load",
    "load_for_study",
    "read",
    "test_rows",
    "trial_progress",
]


def load(data: str, target: str, task: str | None) -> Any:
    """Return the data set of a file, or of standard input where it is ``-``."""
    from ..datasets import load_dataset

    if data != "-":
        return load_dataset(data, target=target, task=task)
    with _standard_input() as path:
        return load_dataset(path, target=target, task=task)


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
    from ..datasets import load_dataset

    if data == "-":
        table = load(data, str(target), task)
    else:
        table = load_dataset(data, data_dir=data_dir, target=target, task=task)
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
