"""Input tables of commands, and the models fitted to them."""

import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any


def load(
    data: str,
    target: str | None,
    task: str | None,
    data_dir: Path | None = None,
    test: Path | None = None,
    form: Any = None,
    groups: str | None = None,
    time: str | None = None,
    read_texts: bool = False,
) -> Any:
    """Load a data set by name, from a file, or from standard input if it is ``-``.

    Columns of free text are dropped, unless they are to be read; `test` is a file with
    the test rows, and `form` says how to read files; `groups` or `time` names the
    column by which rows are held out.
    """
    from ..datasets import TableFormat, load_dataset
    from ..datasets.frames import test_rows, with_dependent_rows, without_free_texts

    form = form or TableFormat()
    if data == "-" and str(test) == "-":
        raise ValueError("standard input can be read only once; pass a file for --test")
    with naming(data, form), _file_of(data) as path:
        table: Any = load_dataset(
            path, data_dir=data_dir, target=target, task=task, form=form
        )
        table = with_dependent_rows(table, groups, time)
        table = without_free_texts(table, read=read_texts)
    if test is None:
        return table
    if target is None:
        raise ValueError("--test needs a table; pass --data FILE and --target")
    with naming(str(test), form):
        rows = read(str(test), table.schema, [target])[1]
        return test_rows(table, rows, target, test.name)


def described(table: Any, task: str | None) -> str:
    """Describe the task, and if it was inferred, why and how to change it."""
    if task is not None:
        return table.description
    y = table.y_train
    n = len(set(y.tolist()))
    if y.dtype.kind not in "iuf":
        kind = "booleans" if y.dtype.kind == "b" else "text"
        return f"{table.description}, because it holds {kind}"
    if any(name not in table.feature_names for name in table.schema.units):
        return f"{table.description}, because its numbers have a unit"
    other = "regression" if table.task == "classification" else "classification"
    few = "only " if other == "regression" else ""
    whole = "whole " if bool((y == y.astype("int64")).all()) else ""
    return (
        f"{table.description}, because it has {few}{n:,} different {whole}numbers; "
        f"--task {other} changes it"
    )


def read(
    data: str, schema: Any = None, texts: Iterable[str] = (), strip: bool = True
) -> tuple[Any, Any]:
    """Return the dataframe in a file, or in standard input if it is ``-``.

    First as it is, `texts` being columns of texts; then, with a schema, with the types
    of the fit. With `strip`, spaces around names and texts are removed.
    """
    from ..datasets import read_table

    with _file_of(data) as path:
        if schema is None:
            frame = read_table(path, texts=[*texts], strip=strip)
            return frame, frame
        # What the fit dropped may be missing; numbers may have leading zeros.
        numeric = tuple(name for name in schema.kinds if name not in schema.texts)
        form = replace(schema.form, drop=(), numeric=numeric, categorical=(), text=())
        frame = read_table(path, form, texts=[*schema.texts, *texts], strip=strip)
        return frame, schema.apply(frame)


@contextmanager
def naming(data: str, form: Any) -> Iterator[None]:
    """Name the file, and the line of a cell, in errors about a table."""
    from .._cells import with_places
    from ..datasets.tables import place_of_row

    try:
        yield
    except ValueError as error:
        text = with_places(str(error), lambda row: place_of_row(data, row, form))
        if text.startswith(("column ", "the target ")):
            text = f"{'standard input' if data == '-' else data}: {text}"
        raise ValueError(text) from error


@contextmanager
def _file_of(data: str) -> Iterator[str | Path]:
    """Yield the argument, or a temporary file with the contents of standard input.

    A table is read twice, and its format follows from the file's extension, here
    guessed from the first bytes.
    """
    from ..datasets.tables import guess_suffix

    if data != "-":
        yield data
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "standard-input"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        copied = path.rename(path.with_suffix(guess_suffix(path)))
        try:
            yield copied
        except ValueError as error:
            text = str(error)
            if str(copied) not in text:
                raise
            raise ValueError(text.replace(str(copied), "standard input")) from error
