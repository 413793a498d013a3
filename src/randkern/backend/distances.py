"""Squared distances of all pairs of rows, dense or sparse, without cancellation."""

import numpy as np
import scipy.sparse as sp
from scipy.spatial.distance import cdist

from randkern.backend.pairwise import squared_distances

# In so few columns differences cost no more than a matrix product.
_FEW_COLUMNS = 16
# ‖x‖² + ‖y‖² − 2x·y has lost three digits or more where it is this much smaller.
CANCELLED = 1e-3
_PAIRS = 4096


def _dense(X):
    return X.toarray() if sp.issparse(X) else X


def scaled_squared_distances(X, Y, scale, same):
    """Return ‖(x − y)·scale‖² for a tile, as ‖x‖² + ‖y‖² − 2x·y.

    Dense rows are first shifted by the mean of Y, so that data far from the
    origin does not cancel; where it still does, rows are subtracted instead.

    Parameters
    ----------
    X, Y : ndarray or CSR matrix, shapes (n, d) and (m, d)
    scale : float or ndarray of shape (d,)
    same : bool
        Whether Y is X.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.backend.distances import scaled_squared_distances
    >>> scaled_squared_distances(np.eye(2), np.zeros((1, 2)), 2.0, False)
    array([[4.],
           [4.]])
    """
    if sp.issparse(X) or sp.issparse(Y):
        X = X_centred = sp.csr_array(X).multiply(scale).tocsr()
        Y = Y_centred = sp.csr_array(Y).multiply(scale).tocsr()
        x_norms = np.asarray(X.multiply(X).sum(axis=1)).ravel()
        y_norms = np.asarray(Y.multiply(Y).sum(axis=1)).ravel()
    else:
        X = X * scale
        Y = X if same else Y * scale
        if X.shape[1] <= _FEW_COLUMNS:
            return cdist(X, Y, "sqeuclidean")
        center = Y.mean(axis=0)
        X_centred = X - center
        Y_centred = X_centred if same else Y - center
        x_norms = np.einsum("ij,ij->i", X_centred, X_centred)
        y_norms = np.einsum("ij,ij->i", Y_centred, Y_centred)
    if not np.isfinite(max(x_norms.max(), y_norms.max())):
        return cdist(_dense(X), _dense(Y), "sqeuclidean")
    products = X_centred @ Y_centred.T
    squared = products.toarray() if sp.issparse(products) else products
    near = squared_distances(x_norms, y_norms, CANCELLED, squared)
    if not sp.issparse(X) and near.sum() > squared.size // 20:
        return cdist(X, Y, "sqeuclidean").astype(squared.dtype, copy=False)
    rows = np.flatnonzero(near)
    bound = CANCELLED * (x_norms[rows, None] + y_norms)
    first, second = np.nonzero(squared[rows] <= bound)
    _subtract(squared, X, Y, rows[first], second)
    if same:
        np.fill_diagonal(squared, 0.0)
    return squared


def _subtract(squared, X, Y, first, second):
    """Take the squared distances of some pairs from differences of rows."""
    for start in range(0, len(first), _PAIRS):
        part = slice(start, start + _PAIRS)
        difference = X[first[part]] - Y[second[part]]
        if sp.issparse(difference):
            squares = np.asarray(difference.multiply(difference).sum(axis=1)).ravel()
        else:
            squares = np.einsum("ij,ij->i", difference, difference)
        squared[first[part], second[part]] = squares
