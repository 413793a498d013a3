"""Transformers that map data onto base spaces."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from randkern._fitting import all_or_nothing
from randkern._validation import (
    FLOATS,
    check_choice,
    check_count,
    check_positive,
    densify,
    is_device_array,
    is_tensor,
    tensor_floats,
    validate_rows,
)
from randkern.backend.namespace import ops_of
from randkern.skeletons.bases import Base, categorical, circle, gaussian
from randkern.skeletons.graph import Input
from randkern.skeletons.skeleton import Skeleton


class PixelsToAngles(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Map pixels to angles, t = π/2·(2(p − low)/(high − low) − 1).

    Parameters
    ----------
    low, high : float
        The values mapped to −π/2 and π/2: 0 and 255 for 8-bit images. Values outside
        this range are mapped by the same linear function.

    Notes
    -----
    float32 and 8- and 16-bit integers give float32, all other dtypes float64. Tensors
    give tensors.

    Examples
    --------
    >>> from randkern import skeletons
    >>> skeletons.PixelsToAngles().fit_transform([[0, 127.5, 255]])
    array([[-1.571, 0. , 1.571]])
    """

    def __init__(self, low: float = 0.0, high: float = 255.0):
        self.low = low
        self.high = high

    @all_or_nothing
    def fit(self, X: Any, y: Any = None) -> PixelsToAngles:
        """Check the rows of `X`; nothing is learned.

        Parameters
        ----------
        X : array or tensor of shape (n, n_pixels)
        y : ignored
        """
        ends = self.low, self.high
        largest = np.finfo(float).max
        if not all(isinstance(end, Real) and abs(end) <= largest for end in ends):
            raise ValueError(
                f"low and high must be finite numbers, got {self.low!r}, {self.high!r}."
            )
        if not self.low < self.high:
            raise ValueError(
                f"low must be less than high, got {self.low} and {self.high}."
            )
        self._checked(X, reset=True)
        self._middle = float((self.low + self.high) / 2)
        self._angle = float(np.pi / (self.high - self.low))
        return self

    def transform(self, X: Any) -> Any:
        """Return the angles of the pixels of `X`, in radians.

        Parameters
        ----------
        X : array or tensor of shape (n, n_pixels)
        """
        check_is_fitted(self)
        X = self._checked(X, reset=False)
        if is_tensor(X):
            out = X.clone()
        else:
            out = X.astype(np.float64 if X.dtype == np.float64 else np.float32)
        out -= self._middle
        out *= self._angle
        return out

    def _checked(self, X: Any, *, reset: bool) -> Any:
        """Return checked pixels; tensors are cast to float32 or float64."""
        if is_device_array(X):
            _, single = tensor_floats()
            if not X.is_floating_point() and X.dtype.itemsize <= 2:
                X = X.to(single)
            return validate_rows(self, X, reset=reset)
        X = validate_rows(self, X, reset=reset, own_dtype=True, sparse=False)
        return X if X.dtype in _DTYPES else X.astype(np.float64)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_features_in_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.array_api_support = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


_DTYPES = [*FLOATS, np.uint8, np.int8, np.uint16, np.int16]


class TableToBases(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Map the columns of a table onto base spaces by their type.

    Categories become codes, one of which is for values not seen in `fit`. Numbers are
    either standardised and multiplied by `scale`, for ``gaussian(1.0)``, or mapped to
    angles on the circle, −π/2 at the smallest training value and π/2 at the largest.

    Parameters
    ----------
    categorical : "auto" or list of column numbers or names
        ``"auto"``: the columns of a dataframe that do not hold numbers.
    numbers : {"gaussian", "circle"}
        Base space of the other columns: ``"gaussian"``, the line with a Gaussian
        kernel; ``"circle"``, angles of half a circle.
    scale : float
        Inverse of the lengthscale on the Gaussian space, in standard deviations: a
        search over it needs no new skeleton. It has no effect on the circle.

    Attributes
    ----------
    bases_ : tuple of Base
        The base space of every column.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Notes
    -----
    `categorical` and `numbers` determine the base spaces of the skeleton: after a
    change of them, or for a table with other categories, build a new one with
    :meth:`skeleton`. Refitted on a subset of the rows, as in cross-validation, a
    transformer finds the same categories or fewer, which the skeleton accepts.

    On the circle, values outside the training range go beyond ±π/2 and wrap: a value
    one range above the largest is as far from it as the smallest is.

    Examples
    --------
    >>> import numpy as np, randkern as rk
    >>> from randkern import skeletons
    >>> table = np.array([[0.0, 1], [1.0, 2], [2.0, 1]])
    >>> to_bases = skeletons.TableToBases(categorical=[1]).fit(table)
    >>> to_bases.bases_
    (gaussian(1.0), categorical(3))
    >>> to_bases.transform(table)
    array([[-1.225, 0. ], [ 0. , 1. ], [ 1.225, 0. ]])
    >>> kernel = rk.Compositional(to_bases.skeleton())
    >>> kernel(to_bases.transform(table)).shape
    (3, 3)
    """

    def __init__(
        self, categorical: Any = "auto", numbers: str = "gaussian", scale: float = 1.0
    ):
        self.categorical = categorical
        self.numbers = numbers
        self.scale = scale

    @all_or_nothing
    def fit(self, X: Any, y: Any = None) -> TableToBases:
        """Learn the categories and the ranges of the numbers in `X`.

        Parameters
        ----------
        X : dataframe or array of shape (n, d)
        y : ignored
        """
        check_choice("numbers", self.numbers, ("gaussian", "circle"))
        check_positive("scale", self.scale)
        X = densify(validate_rows(self, X, reset=True))
        categories = set(self._categorical_columns(X.shape[1]))
        self.categories_: list[Any] = []
        bases: list[Base] = []
        centers = np.zeros(X.shape[1])
        scales = np.ones(X.shape[1])
        for j, column in enumerate(X.T):
            values = np.unique(column) if j in categories else None
            self.categories_.append(values)
            if values is not None:
                bases.append(categorical(len(values) + 1))
            elif self.numbers == "gaussian":
                bases.append(gaussian(1.0))
                centers[j], scales[j] = _mean_and_spread(column.astype(np.float64))
            else:
                bases.append(circle)
                low = float(column.min()) / 2
                high = float(column.max()) / 2
                centers[j], scales[j] = low + high, (high - low) / (np.pi / 2)
        # A constant column is not scaled, in spite of rounding errors.
        tiny = 10 * np.finfo(X.dtype).eps * np.abs(centers)
        self.centers_ = centers
        self.scales_ = np.where(scales > tiny, scales, 1.0)
        if self.numbers == "gaussian":
            for j in set(range(X.shape[1])) - categories:
                self.scales_[j] /= self.scale
        self.bases_ = tuple(bases)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return the points of the rows of `X` in the base spaces.

        Parameters
        ----------
        X : dataframe or array of shape (n, d)
        """
        check_is_fitted(self)
        X = densify(validate_rows(self, X, reset=False))
        # Halved, since the difference of extreme numbers may overflow.
        centers, scales = self.centers_ / 2, self.scales_ / 2
        out = (X / 2 - centers.astype(X.dtype)) / scales.astype(X.dtype)
        for j, values in enumerate(self.categories_):
            if values is not None:
                out[:, [j]] = ops_of(X).codes(X[:, [j]], (values,))
        return out

    def inputs(self) -> list[Input]:
        """Return one input node per column."""
        check_is_fitted(self)
        return [Input(base, j) for j, base in enumerate(self.bases_)]

    def skeleton(self, activation: Any = "exponential", depth: int = 1) -> Skeleton:
        """Return the skeleton that averages all columns.

        Parameters
        ----------
        activation : str or Activation
        depth : int
            Number of internal nodes, in a chain.
        """
        depth = check_count("depth", depth)
        inputs = self.inputs()
        n = len(inputs)
        edges = [(j, n) for j in range(n)]
        edges += [(n + level, n + level + 1) for level in range(depth - 1)]
        return Skeleton([*inputs, *[activation] * depth], edges)

    def _categorical_columns(self, n_columns: int) -> list[int]:
        encoder = self.table_encoder_
        columns = [] if encoder is None else list(encoder.levels)
        if isinstance(self.categorical, str):
            if self.categorical == "auto":
                return columns
            raise ValueError(
                "categorical must be 'auto' or a list of columns, got "
                f"{self.categorical!r}; use [{self.categorical!r}] for a single column."
            )
        is_number = getattr(self.categorical, "shape", None) == ()
        if is_number or not isinstance(self.categorical, Iterable):
            raise ValueError(
                "categorical must be 'auto' or a list of columns, got "
                f"{self.categorical!r}; use [] for no columns."
            )
        names = list(getattr(self, "feature_names_in_", []))
        for column in self.categorical:
            is_number = isinstance(column, (int, np.integer))
            if column in names:
                columns.append(names.index(column))
            elif is_number and -n_columns <= column < n_columns:
                columns.append(int(column) % n_columns)
            else:
                raise ValueError(
                    f"categorical contains {column!r}, which is not a column of the "
                    f"table, which has {n_columns} columns"
                    f"{f', {names}' if names else ''}."
                )
        return columns

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _mean_and_spread(column: np.ndarray) -> tuple[float, float]:
    """Return the mean and standard deviation without overflow."""
    size = float(np.abs(column).max())
    if size == 0:
        return 0.0, 0.0
    column = column / size
    return size * float(column.mean()), size * float(column.std())
