"""The record that every loader returns."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from randkern.datasets.schema import TableSchema

if TYPE_CHECKING:
    import pandas as pd

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
