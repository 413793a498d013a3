"""Tables that commands are given, and models that they fit to them."""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .console import progress_bar

__all__ = ["load", "read", "trial_progress"]


def load(data: str, target: str, task: str | None) -> Any:
    """Return the data set of a file, or of standard input where it is ``-``."""
    from ..datasets import load_dataset

    if data != "-":
        return load_dataset(data, target=target, task=task)
    with _standard_input() as path:
        return load_dataset(path, target=target, task=task)


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
