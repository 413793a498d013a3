"""The record that every loader returns, and the scaling of pixels."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from randkern.datasets.schema import TableSchema
from randkern.exceptions import DataFileError

if TYPE_CHECKING:
    import pandas as pd

#: (X, y) by the name of the split.
Splits: TypeAlias = dict[str, tuple[np.ndarray, np.ndarray]]
Task: TypeAlias = Literal["classification", "regression"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set, with a test split if its source has one.

    Attributes
    ----------
    name : str
        The requested name; for incomplete image sets, followed by the size of the
        sample: ``"fashion-mnist sample (3,000 of 60,000)"``.
    X_train : ndarray or pandas.DataFrame of shape (n_train, d)
        Images: float32 in [0, 1], one image per row, pixels in (height, width,
        channel) order. Tables: a dataframe with numeric, boolean or categorical
        columns; missing features stay missing (NaN).
    y_train : ndarray of shape (n_train,)
        Images: int64 class numbers. Tables: the labels as in the file, or float64
        for regression.
    X_test, y_test : as above, or None
        None if the source has no split; use scikit-learn's ``train_test_split`` to
        make one.
    task : {"classification", "regression"}
    feature_names : tuple of str, or None for images without named pixels
    target_names : tuple of str, or None
        Classification: the class names, in the order of the sorted labels.
    image_shape : tuple of int, or None
        (height, width, channels), with 1 channel for grey images.
    schema : TableSchema or None
        Tables: how their columns were read, with which other tables are read alike.
    groups, time : ndarray of shape (n_train,), or None
        Tables: the group, or the time, of each training row, if such a column is named:
        rows of one group are then held out together, and the last rows in time.
    description : str
        One line: the source, n and d.

    Examples
    --------
    >>> from randkern.datasets import load_dataset
    >>> iris = load_dataset("iris")
    >>> iris.X_train.shape, iris.task, iris.target_names
    ((150, 4), 'classification', ('setosa', 'versicolor', 'virginica'))
    """

    name: str
    X_train: "np.ndarray | pd.DataFrame" = field(repr=False)
    y_train: np.ndarray = field(repr=False)
    X_test: "np.ndarray | pd.DataFrame | None" = field(default=None, repr=False)
    y_test: np.ndarray | None = field(default=None, repr=False)
    task: Task = "classification"
    feature_names: tuple[str, ...] | None = field(default=None, repr=False)
    target_names: tuple[str, ...] | None = field(default=None, repr=False)
    image_shape: tuple[int, int, int] | None = None
    schema: TableSchema | None = field(default=None, repr=False)
    groups: np.ndarray | None = field(default=None, repr=False)
    time: np.ndarray | None = field(default=None, repr=False)
    description: str = ""


def unit_pixels(pixels: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Divide uint8 pixels by 255: each float32 is the nearest to p / 255."""
    if out is None:
        out = np.empty(pixels.shape, dtype=np.float32)
    return np.divide(pixels, np.float32(255), out=out)


@dataclass(frozen=True)
class ImageSet:
    """A published set of images, and how it is told from samples of it."""

    name: str
    title: str
    classes: tuple[str, ...]
    image_shape: tuple[int, int, int]

    def dataset(
        self, source: str, splits: Splits, full_counts: tuple[int, int]
    ) -> Dataset:
        """Return images as a data set, whose name states their number if some lack.

        `full_counts` are the numbers of training and test rows of the complete set.
        """
        (X_train, y_train), (X_test, y_test) = splits["train"], splits["test"]
        counts = len(y_train), len(y_test)
        note = ""
        if counts[0] != full_counts[0]:
            note = f"sample ({counts[0]:,} of {full_counts[0]:,})"
        elif counts[1] != full_counts[1]:
            note = f"sample ({counts[1]:,} of {full_counts[1]:,} test)"
        return Dataset(
            f"{self.name} {note}".strip(),
            X_train,
            y_train,
            X_test,
            y_test,
            target_names=self.classes,
            image_shape=self.image_shape,
            description=(
                f"{self.title}{', ' if note else ''}{note}, {source}: n = "
                f"{counts[0]:,} train + {counts[1]:,} test, d = {X_train.shape[1]:,}"
            ),
        )

    def check_labels(self, path: Path, labels: np.ndarray, where: str) -> None:
        """Raise if labels are not classes; `where` is the word for their place."""
        wrong = np.flatnonzero((labels < 0) | (labels >= len(self.classes)))
        if wrong.size:
            raise DataFileError(
                f"{path}: {wrong.size:,} labels out of 0..{len(self.classes) - 1}, the "
                f"first {labels[wrong[0]]} {where} {wrong[0]:,}; the file is damaged "
                f"or not the labels of {self.title}: get it again"
            )
