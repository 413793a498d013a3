"""Input tables of commands, and the models fitted to them."""

import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
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
    with opened(data, form) as path:
        table: Any = load_dataset(
            path, data_dir=data_dir, target=target, task=task, form=form
        )
        table = with_dependent_rows(table, groups, time)
        table = without_free_texts(table, read=read_texts)
    if test is None:
        return table
    if target is None:
        raise ValueError("--test needs a table; pass --data FILE and --target")
    with opened(str(test), form) as path:
        return test_rows(table, read(path, table.schema, [target])[1], target, path)


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
    path: str, schema: Any = None, texts: Iterable[str] = (), strip: bool = True
) -> tuple[Any, Any]:
    """Return the dataframe in a file.

    First as it is, `texts` being columns of texts; then, with a schema, with the types
    of the fit. With `strip`, spaces around names and texts are removed.
    """
    from ..datasets import read_table

    if schema is None:
        frame = read_table(path, texts=[*texts], strip=strip)
        return frame, frame
    # What the fit dropped may be missing; numbers may have leading zeros.
    numeric = tuple(name for name in schema.kinds if name not in schema.texts)
    form = replace(schema.form, drop=(), numeric=numeric, categorical=(), text=())
    frame = read_table(path, form, texts=[*schema.texts, *texts], strip=strip)
    return frame, schema.apply(frame)


@contextmanager
def opened(data: str, form: Any) -> Iterator[str]:
    """Yield the path of a table; name the file, and the line of a cell, in errors.

    Standard input, ``-``, is copied to a temporary file, as a table is read twice; its
    extension, from which the format follows, is guessed from the first bytes.
    """
    from .._cells import with_places
    from ..datasets.tables import guess_suffix, place_of_row

    with ExitStack() as stack:
        path = data
        if data == "-":
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            copied = folder / "standard-input"
            with copied.open("wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file)
            path = str(copied.rename(copied.with_suffix(guess_suffix(copied))))

        def named(message: Any) -> str:
            text = str(message)
            return text if path == data else text.replace(path, "standard input")

        try:
            with warnings.catch_warnings(record=path != data) as caught:
                yield path
        except ValueError as error:
            text = with_places(str(error), lambda row: place_of_row(path, row, form))
            if text.startswith(("column ", "the target ")):
                text = f"{path}: {text}"
            raise ValueError(named(text)) from error
        finally:
            for each in caught or ():
                warnings.warn(named(each.message), each.category, stacklevel=1)
