"""Rows that are moved to a device as they are read."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp

from randkern.backend.namespace import empty_on
from randkern.data.blocks import RowBlocks


def check_dense(X: Any) -> None:
    """Raise unless rows can be moved to a device."""
    if sp.issparse(X):
        raise ValueError(
            "sparse rows cannot be moved to a device; pass dense rows, such as "
            "X.toarray(), or omit DeviceBlocks."
        )


class DeviceBlocks:
    """Rows on the host that are moved to a device block by block.

    Rows are checked on the host, so that neither ``SCIPY_ARRAY_API`` nor
    ``array_api_dispatch`` is needed. Features, Gram matrices and products are computed
    on the device. Predictions are NumPy arrays, as the rows are.

    Parameters
    ----------
    X : RowBlocks, array, memory map, dataframe, tensor, or Dask array or dataframe
        Dense rows of shape (n, d). :class:`RowBlocks` include targets and weights; for
        the others these are passed to `fit` and `score`.
    device : str or torch.device, default="cuda"
        A PyTorch device that supports float64. Models of rows in this process are
        fitted there. For a Dask collection every worker uses its own device of that
        name: with one GPU visible to each worker, as in dask-cuda, "cuda" is the
        worker's. Sums, of n_components × k or n_components² numbers, are returned as
        NumPy arrays, and the weights are fitted on the host.

    Attributes
    ----------
    rows : as given
    device : str

    Raises
    ------
    TypeError
        If X is none of these.
    ValueError
        If there is no such device (for Dask collections workers raise, in `fit`).

    See Also
    --------
    RowBlocks : blocks of tensors, which are used on their device.

    Notes
    -----
    A fit reads :class:`RowBlocks` and arrays once for each pass over the rows, as it
    does without a device. Features are cached on the device between iterations if they
    fit `memory_limit` (None: half of its memory); other rows, and those of Dask
    collections, are moved again in each pass.

    Examples
    --------
    >>> import numpy as np, randkern as rk
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> rows = rk.DeviceBlocks(X, device="cpu")
    >>> model = rk.KernelRidgeRegressor(n_components=100, random_state=0)
    >>> model.fit(rows, X[:, 0]).coef_.device
    device(type='cpu')
    >>> type(model.predict(rows))
    <class 'numpy.ndarray'>
    """

    def __init__(self, X: Any, device: Any = "cuda"):
        if isinstance(X, DeviceBlocks):
            raise TypeError(
                "DeviceBlocks already have a device; pass them as they are."
            )
        if not isinstance(X, RowBlocks) and not hasattr(X, "shape"):
            raise TypeError(
                "expected RowBlocks, an array, or a Dask array or dataframe, got "
                f"{type(X).__name__}; pass an iterable of blocks as "
                "DeviceBlocks(RowBlocks(blocks), device)."
            )
        self.rows = X
        self.device = str(device)
        if not hasattr(X, "__dask_graph__"):  # otherwise the workers need it
            empty_on(self.device, np.float64)

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            "DeviceBlocks cannot be converted to an array: models that accept "
            "RowBlocks accept them in fit and predict; elsewhere pass arrays or "
            "tensors."
        )

    def __repr__(self) -> str:
        is_named = not isinstance(self.rows, RowBlocks)
        rows = type(self.rows).__name__ if is_named else self.rows
        return f"DeviceBlocks({rows}, device={self.device!r})"


def split_device(X: Any) -> tuple[Any, str | None]:
    """Return rows without :class:`DeviceBlocks`, and the device, None for their own."""
    return (X.rows, X.device) if isinstance(X, DeviceBlocks) else (X, None)
