"""Rows in parts that lie on several devices."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from randkern._tensors import is_tensor

__all__ = ["DeviceRows"]


class DeviceRows:
    """Rows in parts, each a tensor on its device, that are fitted together.

    A fit makes features where the parts lie and adds up their sums on the device of
    the first, where the weights are. The order of all rows is that of the parts:
    targets and sample weights are arrays or tensors of all rows, wherever they lie.

    Parameters
    ----------
    parts : sequence of tensors of shape (n_i, d)
        Of one dtype and width, each with a row at least; several may share a device.

    Attributes
    ----------
    parts : tuple of tensors
    shape : tuple of int
        (n, d), n being the sum of all n_i.
    dtype : dtype of the tensors
    devices : tuple of devices, one a part

    Raises
    ------
    TypeError
        If a part is no tensor, or of another dtype than the first.
    ValueError
        If there is no part, or their shapes do not fit.

    See Also
    --------
    DeviceRows.split : a tensor in parts on devices.

    Examples
    --------
    >>> import torch, randkern as rk
    >>> rk.DeviceRows([torch.ones(3, 2), torch.zeros(2, 2)])
    DeviceRows(5 rows: 3 on cpu, 2 on cpu)
    """

    def __init__(self, parts: Iterable[Any]):
        self.parts = tuple(parts)
        if not self.parts:
            raise ValueError("DeviceRows needs a part at least, got none.")
        for number, part in enumerate(self.parts):
            if not is_tensor(part):
                raise TypeError(
                    f"part {number} of DeviceRows is a {type(part).__name__}, expected "
                    "a tensor; for rows on the host pass an array, or RowBlocks."
                )
            if part.ndim != 2 or len(part) == 0:
                raise ValueError(
                    f"part {number} of DeviceRows has shape {tuple(part.shape)}, "
                    "expected (n_rows, n_columns) with a row at least."
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
                    f"{first.dtype}; convert them to one."
                )
        self.devices = tuple(part.device for part in self.parts)
        self.dtype = self.parts[0].dtype
        self.shape = (sum(map(len, self.parts)), self.parts[0].shape[1])

    @classmethod
    def split(cls, X: Any, devices: Sequence[Any]) -> DeviceRows:
        """Return nearly equal shares of the rows of X, in their order, on devices.

        Parameters
        ----------
        X : tensor of shape (n, d)
        devices : sequence of devices, or of their names
            Such as ``["cuda:0", "cuda:1"]``. What lies there already is not copied.

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
                "needs a row at least."
            )
        cuts = [len(X) * i // len(devices) for i in range(len(devices) + 1)]
        ranges = itertools.pairwise(cuts)
        return cls(
            X[start:stop].to(device)
            for device, (start, stop) in zip(devices, ranges, strict=True)
        )

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            "DeviceRows are no array: KernelRidgeRegressor and KernelRidgeClassifier "
            "take them in fit, predict and score; elsewhere pass one of their parts."
        )

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        parts = ", ".join(f"{len(part)} on {part.device}" for part in self.parts)
        return f"DeviceRows({len(self)} rows: {parts})"
