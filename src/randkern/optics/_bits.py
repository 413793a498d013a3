"""Rows of bits: what an optical device takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_array

from randkern._validation import Rows, canonical

_ENCODERS = (
    "encode it first, for instance with randkern.optics.ThresholdBinarizer, "
    "ThermometerEncoder or BitPlaneEncoder"
)
# Entries that are compared at a time.
_CHECKED_ENTRIES = 2**22


def check_bits(X: Any, n_features: int | None = None) -> Rows:
    """Return rows of zeros and ones as they are, an array or CSR of any dtype.

    Raises
    ------
    ValueError
        If an entry is neither 0 nor 1, or the width is not `n_features`.
    """
    X = check_array(
        X, accept_sparse="csr", dtype=None, ensure_all_finite=False, input_name="X"
    )
    if n_features is not None and X.shape[1] != n_features:
        raise ValueError(
            f"X has {X.shape[1]} columns, but the device is set up for rows of "
            f"{n_features} bits; call calibrate(X) to lay out its mirrors anew."
        )
    if X.dtype.kind not in "biuf":
        raise ValueError(
            f"an optical device takes rows of bits (0 or 1), got {X.dtype} values; "
            f"{_ENCODERS}."
        )
    X = canonical(X)
    values = X.data if sp.issparse(X) else X
    if values.dtype.kind == "b":
        return X
    rows = max(1, _CHECKED_ENTRIES // (values.shape[1] if values.ndim == 2 else 1))
    for start in range(0, len(values), rows):
        part = values[start : start + rows]
        wrong = (part != 0) & (part != 1)
        if wrong.any():
            raise ValueError(
                "an optical device takes rows of bits (0 or 1), got the value "
                f"{part[wrong][0]}; {_ENCODERS}."
            )
    return X


def count_lit(X: Rows) -> np.ndarray:
    """Return the number of ones of every row, which is its squared norm."""
    if sp.issparse(X):
        return np.asarray(X.sum(axis=1, dtype=np.int64)).ravel()
    if X.dtype.kind == "f":
        return X.sum(axis=1, dtype=np.float64).astype(np.int64)
    return X.sum(axis=1, dtype=np.int64)


def with_lit_bits(X: Rows, n_lit: int) -> Rows:
    """Return rows with `n_lit` more bits, all of them one."""
    if n_lit == 0:
        return X
    ones = np.ones((X.shape[0], n_lit), dtype=X.dtype)
    if sp.issparse(X):
        return sp.hstack([X, sp.csr_array(ones)], format="csr")
    return np.hstack([X, ones])
