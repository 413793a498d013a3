"""Loads data sets by name or path, from scikit-learn or files.

Loaders of files that are no tables are in other packages, and are found through entry
points of the group ``randkern.datasets``.
"""

import difflib
import os
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np

from randkern._files import special_kind
from randkern.data.table_format import TableFormat
from randkern.datasets.frames import dataset_from_frame
from randkern.datasets.record import Dataset, Task
from randkern.datasets.tables import (
    ENDINGS,
    TABLE_SUFFIXES,
    read_table,
)

# Data sets of scikit-learn, and the functions of sklearn.datasets that load them.
_LOADERS = {
    "digits": "load_digits",
    "breast-cancer": "load_breast_cancer",
    "diabetes": "load_diabetes",
    "wine": "load_wine",
    "iris": "load_iris",
}
BUNDLED_NAMES = tuple(_LOADERS)


def load_bundled(name: str) -> Dataset:
    """Load one of scikit-learn's bundled data sets, without a test split.

    Digits are images, float32 in [0, 1] (scikit-learn's 0..16 divided by 16).
    """
    from sklearn import datasets

    bunch = getattr(datasets, _LOADERS[name])()
    X, y = bunch.data, bunch.target
    regression, images = name == "diabetes", name == "digits"
    task: Task = "regression" if regression else "classification"
    return Dataset(
        name=name,
        X_train=(X / 16).astype(np.float32) if images else X,
        y_train=y.astype(np.float64 if regression else np.int64),
        task=task,
        feature_names=tuple(map(str, bunch.feature_names)),
        target_names=None if regression else tuple(map(str, bunch.target_names)),
        image_shape=(8, 8, 1) if images else None,
        description=(
            f"{name}, bundled with scikit-learn: n = {X.shape[0]:,}, "
            f"d = {X.shape[1]}, {task}"
        ),
    )


_DATA_VARIABLE = "RANDKERN_DATA"
# Functions of a folder that return the data set in its files.
_FILE_LOADERS = {entry.name: entry for entry in entry_points(group="randkern.datasets")}

DATASET_NAMES = (*BUNDLED_NAMES, *_FILE_LOADERS)


def load_dataset(
    name_or_path: str | Path,
    *,
    data_dir: str | Path | None = None,
    target: str | None = None,
    task: str | None = None,
    form: TableFormat | None = None,
) -> Dataset:
    """Load a data set by name, or a table from a file.

    Parameters
    ----------
    name_or_path : str or Path
        One of

        - ``"digits"``, ``"breast-cancer"``, ``"diabetes"``, ``"wine"``,
          ``"iris"``: bundled with scikit-learn, need nothing else;
        - ``"mnist"``, ``"fashion-mnist"``: the four IDX files, plain or gzip
          (``"fashion-mnist-sample"``: the same in a folder of that name);
        - ``"cifar10"``: the binary version, or JPEG or PNG files in ``train/CLASS/``
          and ``test/CLASS/``, in a folder or in ``cifar10.zip``: whichever exists;
        - a table file that :func:`read_table` reads, with ``target``.
    data_dir : str or Path, optional
        The folder of the files, or the parent of a sub-folder ``NAME`` with the
        files. For cifar10 it may be the zip archive itself; a relative table path may
        also be relative to it. By default the environment variable ``RANDKERN_DATA``.
    target : str, optional
        For tables, the column to predict. The others are features; dates and
        durations among them become days.
    task : {"classification", "regression"}, optional
        For tables. By default inferred from the target: strings, booleans and two
        different numbers are classes; other numbers are regression targets if they
        have fractions, if more than 100 whole ones are different, if there are more
        than 5 but fewer than 5 rows for each, or if more than 20 do not number classes
        from 0 or 1; others are classes. Whole numbers are
        classes as they are written if some begin with a zero, such as 01.
    form : TableFormat, optional
        For table files: which columns are categories, numbers, or left out, and the
        format of numbers and dates.

    Returns
    -------
    Dataset
        Images are float32 in [0, 1], flattened in (height, width, channel)
        order, their labels int64. The split is the source's own; bundled sets
        and tables have none (``X_test`` is None).

    Raises
    ------
    ValueError
        If the name is unknown (the message lists the names), a required
        ``data_dir`` is missing, or ``target`` or ``task`` do not apply.
    FileNotFoundError
        If the files are not found: the message says where it looked, and for what.
    randkern.exceptions.DataFileError
        If files are damaged, truncated or mislabelled.
    ImportError
        If reading needs pandas, pyarrow or Pillow, and it is not installed.

    Examples
    --------
    >>> from randkern.datasets import load_dataset
    >>> digits = load_dataset("digits")
    >>> digits.X_train.shape, digits.X_train.dtype, digits.image_shape
    ((1797, 64), dtype('float32'), (8, 8, 1))
    >>> print(load_dataset("diabetes").description)
    diabetes, bundled with scikit-learn: n = 442, d = 10, regression
    """
    text = os.fspath(name_or_path)
    folder = (
        data_dir if data_dir is not None else os.environ.get(_DATA_VARIABLE) or None
    )
    place = None if folder is None else Path(folder)
    is_name = text in DATASET_NAMES
    if text.lower().endswith(TABLE_SUFFIXES) or (not is_name and Path(text).is_file()):
        path = Path(text)
        if place is not None and not path.exists() and (place / path).exists():
            path = place / path
        # Labels are read as they are written: 01 is not 1.
        frame = read_table(path, form, texts=() if target is None else (target,))
        return dataset_from_frame(
            frame,
            target,
            name=path.name,
            source=str(path),
            task=task,
            form=form,
        )
    if not is_name:
        if (kind := special_kind(text)) is not None:
            raise ValueError(f"{text} is {kind}, not a file; check the path")
        close = difflib.get_close_matches(text.lower(), DATASET_NAMES, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(
            f"unknown data set {text!r}{hint}; expected one of "
            f"{', '.join(DATASET_NAMES)}, or a file that ends in {ENDINGS}"
        )
    if target is not None:
        raise ValueError(
            f"target={target!r} applies to tables, but {text!r} has its own target; "
            f"omit it"
        )
    data = load_bundled(text) if text in BUNDLED_NAMES else _load_files(text, place)
    if form is not None and form != TableFormat():
        raise ValueError(
            f"form= applies to tables in files, but {text!r} is not one; omit it"
        )
    if task not in (None, data.task):
        raise ValueError(f"task={task!r}, but {text!r} is a {data.task}; omit task")
    return data


def _load_files(name: str, place: Path | None) -> Dataset:
    if place is None:
        raise ValueError(
            f"{name!r} is not bundled: pass data_dir=, the folder that holds its "
            f"files, or set the environment variable {_DATA_VARIABLE}"
        )
    return _FILE_LOADERS[name].load()(place)
