"""Rows on several devices, or moved to a device as they are read."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp

from randkern._validation import is_tensor
from randkern.backend.namespace import empty_on
from randkern.data.blocks import RowBlocks


def check_dense(X: Any) -> None:
    """Raise unless rows can be moved to a device."""
    if sp.issparse(X):
        raise ValueError(
            "sparse rows cannot be moved to a device; pass dense rows, such as "
            "X.toarray(), or omit DeviceBlocks."
        )


class DeviceRows:
    """Rows in parts on several devices, each a tensor, that are fitted together.

    A fit computes features on the device of each part and adds up their sums on the
    device of the first, which also holds the weights. The order of all rows is that of
    the parts: targets and sample weights are arrays or tensors of all rows, on any
    device.

    Parameters
    ----------
    parts : sequence of tensors of shape (n_i, d)
        With the same dtype and width, each with at least one row; several may share a
        device.

    Attributes
    ----------
    parts : tuple of tensors
    shape : tuple of int
        (n, d), n being the sum of all n_i.
    dtype : dtype of the tensors
    devices : tuple of devices, one per part

    Raises
    ------
    TypeError
        If a part is not a tensor, or has another dtype than the first.
    ValueError
        If there are no parts, or their shapes do not match.

    See Also
    --------
    DeviceRows.split : split a tensor over devices.

    Examples
    --------
    >>> import torch, randkern as rk
    >>> rk.DeviceRows([torch.ones(3, 2), torch.zeros(2, 2)])
    DeviceRows(5 rows: 3 on cpu, 2 on cpu)
    """

    def __init__(self, parts: Iterable[Any]):
        self.parts = tuple(parts)
        if not self.parts:
            raise ValueError("DeviceRows needs at least one tensor, got an empty list.")
        for number, part in enumerate(self.parts):
            if not is_tensor(part):
                raise TypeError(
                    f"part {number} of DeviceRows is a {type(part).__name__}, expected "
                    "a tensor; for rows on the host pass an array, or RowBlocks."
                )
            if part.ndim != 2 or len(part) == 0:
                raise ValueError(
                    f"part {number} of DeviceRows has shape {tuple(part.shape)}, "
                    "expected (n_rows, n_columns) with at least one row."
                )
            first = self.parts[0]
            if part.shape[1] != first.shape[1]:
                raise ValueError(
                    f"part {number} of DeviceRows has {part.shape[1]} columns, the "
                    f"first has {first.shape[1]}; they must be the same."
                )
            if part.dtype != first.dtype:
                raise TypeError(
                    f"part {number} of DeviceRows is {part.dtype}, the first is "
                    f"{first.dtype}; convert them to the same dtype."
                )
        self.devices = tuple(part.device for part in self.parts)
        self.dtype = self.parts[0].dtype
        self.shape = (sum(map(len, self.parts)), self.parts[0].shape[1])

    @classmethod
    def split(cls, X: Any, devices: Sequence[Any]) -> DeviceRows:
        """Split the rows of X, in order, into nearly equal parts on devices.

        Parameters
        ----------
        X : tensor of shape (n, d)
        devices : sequence of devices, or of their names
            Such as ``["cuda:0", "cuda:1"]``. Rows already there are not copied.

        Examples
        --------
        >>> import torch, randkern as rk
        >>> rk.DeviceRows.split(torch.ones(5, 2), ["cpu", "cpu"])
        DeviceRows(5 rows: 2 on cpu, 3 on cpu)
        """
        if not is_tensor(X):
            raise TypeError(
                f"expected a tensor to split, got {type(X).__name__}; use for instance "
                "torch.from_numpy(X)."
            )
        if not 0 < len(devices) <= len(X):
            raise ValueError(
                f"cannot split {len(X)} rows between {len(devices)} devices; each "
                "needs at least one row."
            )
        cuts = [len(X) * i // len(devices) for i in range(len(devices) + 1)]
        ranges = itertools.pairwise(cuts)
        return cls(
            X[start:stop].to(device)
            for device, (start, stop) in zip(devices, ranges, strict=True)
        )

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            "DeviceRows cannot be converted to an array: ridge models, KernelLogistic "
            "and Gaussian processes accept them; elsewhere pass one of their parts."
        )

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        parts = ", ".join(f"{len(part)} on {part.device}" for part in self.parts)
        return f"DeviceRows({len(self)} rows: {parts})"


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
    DeviceRows : rows that are already on devices.
    RowBlocks : blocks of tensors, which are used on their device.

    Notes
    -----
    A fit reads :class:`RowBlocks` and arrays once for each pass over the rows, as it
    does without a device. Features are cached on the device between iterations if they
    fit `memory_limit` (None: half of its memory). Dask workers cache rows instead,
    up to half of that limit; other rows are moved again in each pass.

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
        if isinstance(X, (DeviceRows, DeviceBlocks)):
            raise TypeError(
                f"{type(X).__name__} already have a device; pass them without "
                "DeviceBlocks."
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
