"""Encoders of numbers as bits, for devices with binary input."""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from randkern._fitting import all_or_nothing
from randkern._memory import check_free
from randkern._sklearn import check_feature_names_in
from randkern._validation import Rows, check_choice, check_count, validate_rows
from randkern.data import row_blocks

# Most entries that thresholds are learned from; beyond, evenly spaced rows are used.
_MAX_ENTRIES = 2**24
_OTSU_BINS = 256
_BLOCK_ROWS = 1024


class _Encoder(TransformerMixin, BaseEstimator):
    """Base class of the encoders."""

    _accepts_sparse = False

    def _rows(self, X: Any, *, reset: bool) -> Rows:
        return validate_rows(
            self, X, reset=reset, own_dtype=True, sparse=self._accepts_sparse
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self._accepts_sparse
        tags.transformer_tags.preserves_dtype = []
        return tags


class _WideEncoder(_Encoder, ABC):
    """Base class of the encoders with several bits per column, after a word."""

    _word: ClassVar[str]

    @abstractmethod
    def _bit_numbers(self) -> range:
        """Return the numbers of a column's bits, in their order."""

    @abstractmethod
    def _write_bits(self, X: np.ndarray, out: np.ndarray) -> None:
        """Write the bits of a few rows, (n, d, number of bits)."""

    def transform(self, X: Any) -> np.ndarray:
        """Return the bits, uint8 of shape (n, d·bits), column by column.

        Parameters
        ----------
        X : array or dataframe of shape (n, d)
        """
        check_is_fitted(self)
        X = self._rows(X, reset=False)
        n_bits = len(self._bit_numbers())
        width = X.shape[1] * n_bits
        check_free(
            X.shape[0] * width,
            f"the array of {width} bits for each of {X.shape[0]} rows",
            "transform fewer rows at a time",
        )
        out = np.empty((*X.shape, n_bits), dtype=np.uint8)
        for rows in row_blocks(X.shape[0], _BLOCK_ROWS):
            self._write_bits(X[rows], out[rows])
        return out.reshape(X.shape[0], width)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names ``<column>_level<number>`` or ``<column>_bit<number>``.

        Bit 0 is the least significant.

        Parameters
        ----------
        input_features : array of str, optional
            Names of the columns; by default those seen in the fit, or ``x0``, ``x1``, …
        """
        check_is_fitted(self)
        names = check_feature_names_in(self, input_features)
        numbers = self._bit_numbers()
        bit_names = [f"{name}_{self._word}{i}" for name in names for i in numbers]
        return np.array(bit_names, dtype=object)


class ThresholdBinarizer(OneToOneFeatureMixin, _Encoder):
    """One bit per column: whether it is above a threshold.

    It preserves the dimension and keeps one bit of each number. The best threshold is
    found on validation data, as in Ohana et al., by a search in a pipeline (see the
    example).

    Parameters
    ----------
    threshold : {"auto", "median"}, float, or array of shape (d,), default="auto"
        A number for all columns or one per column. "auto": Otsu's threshold, which
        splits the entries of all columns into the two groups with the smallest
        within-group variance. "median": the median of the nonzero entries, so that half
        of them stay lit; if it is the largest entry, as in images of 0 and 255, the
        next smaller number (possibly 0), so that some bits are lit.

    Attributes
    ----------
    threshold_ : float or ndarray of shape (d,)
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Notes
    -----
    CSR input gives CSR output, unless a threshold is negative. Duplicate entries of CSR
    rows are summed.

    Numbers are compared in their own precision: thresholds are rounded to float32 for
    float32 rows, so that 0.1 is not above a threshold of 0.1; integers are compared in
    float64.

    References
    ----------
    Ohana et al. 2020, appendix D, eq. 32; Otsu 1979, "A threshold selection method
    from gray-level histograms".

    Examples
    --------
    >>> from randkern.optics import ThresholdBinarizer
    >>> ThresholdBinarizer(threshold=10).fit_transform([[0, 11], [200, 10]])
    array([[0, 1],
           [1, 0]], dtype=uint8)

    Choosing the threshold by cross-validation:

    >>> import randkern as rk
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import GridSearchCV
    >>> from sklearn.pipeline import make_pipeline
    >>> from randkern.optics import SimulatedOPU
    >>> X, y = load_digits(return_X_y=True)
    >>> model = make_pipeline(
    ...     ThresholdBinarizer(),
    ...     rk.OpticalFeatures(SimulatedOPU(300, random_state=0)),
    ...     rk.KernelRidgeClassifier(rk.Linear(), alpha=1.0, n_components=300),
    ... )
    >>> grid = {"thresholdbinarizer__threshold": [1, 8, 15]}
    >>> search = GridSearchCV(model, grid, cv=2).fit(X[:400], y[:400])
    >>> search.best_params_
    {'thresholdbinarizer__threshold': 8}
    """

    _accepts_sparse = True

    def __init__(self, threshold: Any = "auto"):
        self.threshold = threshold

    @all_or_nothing
    def fit(self, X: Any, y: Any = None) -> ThresholdBinarizer:
        """Choose the threshold.

        Parameters
        ----------
        X : array, CSR matrix or dataframe of shape (n, d)
        y : ignored
        """
        X = self._rows(X, reset=True)
        if isinstance(self.threshold, str):
            check_choice("threshold", self.threshold, ("auto", "median"))
            rule = _otsu if self.threshold == "auto" else _median
            self.threshold_: float | np.ndarray = rule(_sampled(X))
            return self
        values = np.asarray(self.threshold)
        if (
            values.shape not in ((), (X.shape[1],))
            or values.dtype.kind not in "iuf"
            or not np.isfinite(values).all()
        ):
            raise ValueError(
                "threshold must be 'auto', 'median', a finite number, or one for each "
                f"of the {X.shape[1]} columns, got {self.threshold!r}."
            )
        self.threshold_ = values.astype(np.float64) if values.ndim else float(values)
        return self

    def transform(self, X: Any) -> Rows:
        """Return the bits, uint8 of shape (n, d), CSR if X is.

        Parameters
        ----------
        X : array, CSR matrix or dataframe of shape (n, d)
        """
        check_is_fitted(self)
        X = self._rows(X, reset=False)
        if sp.issparse(X) and np.min(self.threshold_) < 0:
            X = X.toarray()
        threshold = _in_precision_of(X, self.threshold_)
        if not sp.issparse(X):
            return (X > threshold).view(np.uint8)
        out = X.copy()
        limits = np.broadcast_to(threshold, X.shape[1])[out.indices]
        out.data = (out.data > limits).astype(np.uint8)
        out.eliminate_zeros()
        return out


class ThermometerEncoder(_WideEncoder):
    """Several bits per column: which of the column's thresholds a number exceeds.

    Bits fill up like a thermometer, so the dot product of two encodings counts the
    thresholds below both numbers, and close numbers have close codes. d columns become
    d·n_levels bits.

    Parameters
    ----------
    n_levels : int, default=4
        Number of thresholds, and bits, per column: at least 2, and at most as many as
        fit in the default memory limit of a fit, 2 GB. For one bit per column use
        :class:`ThresholdBinarizer`.
    strategy : {"quantile", "uniform"}, default="quantile"
        "quantile": thresholds that split the entries into groups of equal size;
        "uniform": evenly spaced between the smallest and largest entry, exclusive.
    per_column : bool, default=True
        Whether every column has its own thresholds, or all share one set, as suits the
        pixels of an image. Zeros are excluded from the quantiles of a shared set (most
        pixels are background, and several quantiles would be 0).

    Attributes
    ----------
    thresholds_ : ndarray of shape (d, n_levels)
        Ascending in each column. Thresholds, and their bits, repeat if more entries are
        equal than lie between two quantiles: for columns of mostly zeros
        ``per_column=False`` or ``strategy="uniform"`` is better.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Examples
    --------
    >>> from randkern.optics import ThermometerEncoder
    >>> encoder = ThermometerEncoder(n_levels=3, strategy="uniform")
    >>> encoder.fit_transform([[0.0], [1.5], [4.0]])
    array([[0, 0, 0],
           [1, 0, 0],
           [1, 1, 1]], dtype=uint8)
    """

    _word = "level"

    def __init__(
        self,
        n_levels: int = 4,
        *,
        strategy: str = "quantile",
        per_column: bool = True,
    ):
        self.n_levels = n_levels
        self.strategy = strategy
        self.per_column = per_column

    @all_or_nothing
    def fit(self, X: Any, y: Any = None) -> ThermometerEncoder:
        """Choose the thresholds.

        Parameters
        ----------
        X : array or dataframe of shape (n, d)
        y : ignored
        """
        n_levels = check_count("n_levels", self.n_levels)
        if n_levels == 1:
            raise ValueError(
                "n_levels must be at least 2, got 1; for one bit per column use "
                "ThresholdBinarizer."
            )
        check_choice("strategy", self.strategy, ("quantile", "uniform"))
        if not isinstance(self.per_column, (bool, np.bool_)):
            raise ValueError(
                f"per_column must be True or False, got {self.per_column!r}."
            )
        X = self._rows(X, reset=True)
        check_free(
            8 * n_levels * (2 + 3 * X.shape[1]),
            f"finding n_levels={n_levels} thresholds for {X.shape[1]} columns",
            "use fewer levels",
            share=True,
        )
        shares = np.arange(1, n_levels + 1) / (n_levels + 1)
        if self.strategy == "quantile":
            entries = _sampled(X).astype(np.float64, copy=False)
            if self.per_column:
                levels = np.quantile(entries, shares, axis=0)
            else:
                levels = _levels_of_nonzeros(entries, lambda e: np.quantile(e, shares))
        else:
            axis = 0 if self.per_column else None
            low = np.asarray(X.min(axis=axis), dtype=np.float64)
            high = np.asarray(X.max(axis=axis), dtype=np.float64)
            # A weighted mean, since the difference may overflow.
            levels = np.multiply.outer(1 - shares, low)
            levels += np.multiply.outer(shares, high)
        shape = (X.shape[1], n_levels)
        self.thresholds_ = np.ascontiguousarray(np.broadcast_to(levels.T, shape))
        return self

    def _bit_numbers(self) -> range:
        return range(self.thresholds_.shape[1])

    def _write_bits(self, X: np.ndarray, out: np.ndarray) -> None:
        thresholds = _in_precision_of(X, self.thresholds_)
        np.greater(X[:, :, None], thresholds, out=out.view(bool))


class BitPlaneEncoder(_WideEncoder):
    """The binary digits of every column, most significant first.

    A column is rounded to 2^bits equal steps between its smallest and largest fitted
    entry. d columns become d·bits bits: the shortest code of the three for a given
    resolution, but one that does not keep neighbours close: 127 and 128 share no digit.

    Parameters
    ----------
    bits : int, default=8
        Digits per column, 1 to 32.
    value_range : None or tuple of two floats, default=None
        Smallest and largest number of all columns, such as (0, 255); None: those of
        each fitted column. Numbers outside are clipped.

    Attributes
    ----------
    low_, high_ : ndarray of shape (d,)
    bits_ : int
        Digits per column, as fitted.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Examples
    --------
    >>> from randkern.optics import BitPlaneEncoder
    >>> BitPlaneEncoder(bits=3, value_range=(0, 7)).fit_transform([[0, 5], [7, 3]])
    array([[0, 0, 0, 1, 0, 1],
           [1, 1, 1, 0, 1, 1]], dtype=uint8)
    """

    _word = "bit"

    def __init__(
        self, bits: int = 8, *, value_range: tuple[float, float] | None = None
    ):
        self.bits = bits
        self.value_range = value_range

    @all_or_nothing
    def fit(self, X: Any, y: Any = None) -> BitPlaneEncoder:
        """Find the range of every column.

        Parameters
        ----------
        X : array or dataframe of shape (n, d)
        y : ignored
        """
        if check_count("bits", self.bits) > 32:
            raise ValueError(f"bits must be at most 32, got {self.bits}.")
        ends = _checked_range(self.value_range)
        X = self._rows(X, reset=True)
        self.bits_ = int(self.bits)
        low, high = (X.min(axis=0), X.max(axis=0)) if ends is None else ends
        self.low_ = np.full(X.shape[1], low, dtype=np.float64)
        self.high_ = np.full(X.shape[1], high, dtype=np.float64)
        return self

    def _bit_numbers(self) -> range:
        return range(self.bits_ - 1, -1, -1)

    def _write_bits(self, X: np.ndarray, out: np.ndarray) -> None:
        # Halved, since the difference of the ends may overflow.
        half = self.high_ / 2 - self.low_ / 2
        half[half == 0] = 1.0
        values = np.clip(X.astype(np.float64), self.low_, self.high_)
        largest = 2.0**self.bits_ - 1
        steps = np.rint((values / 2 - self.low_ / 2) / half * largest)
        shifts = np.array(self._bit_numbers(), dtype=np.uint32)
        out[:] = (steps.astype(np.uint32)[..., None] >> shifts) & 1


def _checked_range(ends: Any) -> np.ndarray | None:
    if ends is None:
        return None
    if (
        not isinstance(ends, (tuple, list, np.ndarray))
        or len(ends) != 2
        or not all(isinstance(end, numbers.Real) for end in ends)
        or not np.all(np.isfinite(np.asarray(ends, dtype=np.float64)))
        or ends[0] >= ends[1]
    ):
        raise ValueError(
            "value_range must be None or two finite numbers (low, high) with low < "
            f"high, such as (0, 255), got {ends!r}."
        )
    return np.asarray(ends, dtype=np.float64)


def _in_precision_of(X: Rows, threshold: Any) -> np.ndarray:
    """Return thresholds in the dtype of the comparison."""
    kind = X.dtype if X.dtype.kind == "f" else np.dtype(np.float64)
    with np.errstate(over="ignore"):  # overflow gives inf, above all entries
        return np.asarray(threshold, dtype=np.float64).astype(kind)


def _sampled(X: Rows) -> Rows:
    """Return evenly spaced rows if there are very many entries, else all."""
    max_rows = max(1, _MAX_ENTRIES // X.shape[1])
    if X.shape[0] <= max_rows:
        return X
    return X[np.linspace(0, X.shape[0] - 1, max_rows, dtype=int)]


def _median(X: Rows) -> float:
    """Return the median of the nonzero entries (0 if there are none)."""
    entries = X.data if sp.issparse(X) else X
    return float(_levels_of_nonzeros(entries, np.median))


def _levels_of_nonzeros(entries: np.ndarray, rule: Callable[..., Any]) -> np.ndarray:
    """Return levels of the nonzero entries by a rule (0 if there are none).

    Levels that no entry exceeds are replaced by the next smaller entry, or 0. They are
    unchanged if the entries are all the same negative number: nothing is smaller.
    """
    nonzeros = entries[entries != 0]
    entries = nonzeros if nonzeros.size else np.zeros(1)
    levels = np.asarray(rule(entries))
    largest = entries.max()
    smaller = entries[entries < largest]
    floor = 0.0 if largest > 0 else -np.inf
    highest = max(float(smaller.max()), floor) if smaller.size else floor
    if highest == -np.inf:
        return levels
    return np.where(levels >= largest, highest, levels)


def _otsu(X: Rows) -> float:
    """Return the threshold that splits the entries into the two tightest groups.

    It maximises the variance between the groups, w₀w₁(μ₀ − μ₁)², over the edges of a
    histogram (Otsu 1979, eq. 18); if several edges are best, it is the middle one.
    """
    entries = (X.data if sp.issparse(X) else X.ravel()).astype(np.float64)
    n_zeros = X.shape[0] * X.shape[1] - entries.size
    low = float(min(entries.min(initial=np.inf), 0.0 if n_zeros else np.inf))
    high = float(max(entries.max(initial=-np.inf), 0.0 if n_zeros else -np.inf))
    # Halved, since the difference may overflow.
    half = high / 2 - low / 2
    if half == 0:
        return low
    entries = (entries / 2 - low / 2) / half
    histogram, edges = np.histogram(entries, _OTSU_BINS, (0.0, 1.0))
    if n_zeros:  # those that a sparse matrix does not store
        zero = -low / 2 / half
        histogram[min(int(zero * _OTSU_BINS), _OTSU_BINS - 1)] += n_zeros
    centres = (edges[:-1] + edges[1:]) / 2
    below = np.cumsum(histogram)[:-1]
    sums = np.cumsum(histogram * centres)
    total = histogram.sum()
    above = histogram.sum() - below
    means = (
        sums[:-1] / np.maximum(below, 1),
        (sums[-1] - sums[:-1]) / np.maximum(above, 1),
    )
    between = (below / total) * (above / total) * (means[0] - means[1]) ** 2
    best = np.flatnonzero(between >= between.max() * (1 - 1e-9))
    share = edges[1:-1][best].mean()
    return float((1 - share) * low + share * high)
