"""What can be read as numbers, and errors that name the place of what cannot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from reprlib import repr as shortened
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import assert_all_finite


def check_kind(array: Any, name: str) -> None:
    """Raise for what NumPy would turn into numbers: dates, records, masked entries.

    Lists must make an array, too.
    """
    if np.ma.is_masked(array):
        raise ValueError(
            f"{name} is a masked array with {np.ma.count_masked(array)} masked "
            "entries, whose mask is not read; leave such rows out, or impute."
        )
    if isinstance(array, (list, tuple)):
        try:
            array = np.asarray(array)
        except ValueError:
            raise ValueError(
                f"{name} is a {type(array).__name__} of parts of different lengths, "
                "expected as many numbers in each."
            ) from None
    dtype = getattr(array, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "mMV":
        raise ValueError(
            f"{name} holds {dtype} values, expected real numbers; convert them, for "
            "instance dates to days by (dates - first) / numpy.timedelta64(1, 'D')."
        )


def check_readable(X: Any) -> None:
    """Raise for what holds no rows of numbers, or gives them only once."""
    if hasattr(X, "__next__"):
        raise TypeError(
            f"X is a {type(X).__name__}, which can be read only once; for rows that "
            "come in blocks pass randkern.RowBlocks(make_blocks) to fit, "
            "make_blocks being a function that starts anew."
        )
    if type(X).__name__ == "LazyFrame":
        raise TypeError("X is a LazyFrame, which holds no rows yet; pass X.collect().")
    check_kind(X, "X")


@contextmanager
def naming_cells(X: Any) -> Iterator[None]:
    """Say which entry of an array of objects or text is not a number, if one is."""
    try:
        yield
    except (TypeError, ValueError, OverflowError) as error:
        array = X if isinstance(X, np.ndarray) else np.array(X, dtype=object)
        if array.ndim != 2 or array.dtype.kind not in "OUS":
            raise
        for (i, j), value in np.ndenumerate(array):
            try:
                float(value)
            except (TypeError, ValueError, OverflowError) as cause:
                kind = TypeError if isinstance(cause, TypeError) else ValueError
                raise kind(
                    f"row {i} of column {j} of X holds {shortened(value)}, expected a "
                    f"number: {cause}."
                ) from error
        raise


def check_finite(X: Any, names: Sequence[Any] | None = None) -> None:
    """Raise for missing and infinite numbers, naming the place of the first."""
    try:
        assert_all_finite(X, input_name="X")
    except ValueError as error:
        entries = X.tocoo() if sp.issparse(X) else X
        if sp.issparse(X):
            bad = np.flatnonzero(~np.isfinite(entries.data))[0]
            row, column = int(entries.row[bad]), int(entries.col[bad])
        else:
            row, column = np.argwhere(~np.isfinite(entries))[0].tolist()
        where = column if names is None else repr(names[column])
        advice = ""
        if "NaN" in str(error):
            advice = " Leave such rows out, or impute, as sklearn.impute.SimpleImputer."
        raise ValueError(
            f"{error} The first is in row {row} of column {where}.{advice}"
        ) from None
