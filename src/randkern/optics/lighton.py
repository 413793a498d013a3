"""Adapter for devices of the lightonml package."""

from __future__ import annotations

from typing import Any

import numpy as np

from randkern._validation import Rows, densify
from randkern.optics._scattering import SharedDevice, check_bits, count_lit


class LightOnDevice(SharedDevice):
    """A lightonml OPU, real or simulated, as an :class:`OpticalDevice`.

    It accepts only bits (lightonml silently casts other numbers to uint8), gives a
    simulated OPU a matrix as wide as its rows, and measures the scale of the linear
    mode, which lightonml normalises twice for a simulated OPU.

    As a device is hardware, `clone` returns it unchanged.

    Parameters
    ----------
    opu : lightonml.OPU
        For example ``lightonml.OPU(1000, simulated=True)``, which stores its matrix and
        has no noise.

    Notes
    -----
    lightonml 1.4.3 requires a version of numexpr that no longer builds. Install
    it with ``pip install --no-deps lightonml==1.4.3``, and numexpr, attrs, requests
    and ``'setuptools<81'``.

    Examples
    --------
    >>> import lightonml  # doctest: +SKIP
    >>> device = LightOnDevice(lightonml.OPU(1000, simulated=True))  # doctest: +SKIP
    >>> randkern.OpticalFeatures(device).fit_transform(X)  # doctest: +SKIP
    """

    def __init__(self, opu: Any):
        super().__init__()
        for name in ("fit1d", "transform", "n_components"):
            if not hasattr(opu, name):
                raise TypeError(
                    f"opu has no attribute {name!r}; pass an OPU of lightonml, such "
                    "as lightonml.OPU(1000, simulated=True)."
                )
        self.opu = opu
        self.n_features: int | None = None

    @property
    def n_components(self) -> int:
        """Number of outputs."""
        return int(self.opu.n_components)

    def calibrate(self, X: Any) -> LightOnDevice:
        """Set the OPU up for rows like those of X.

        A simulated OPU gets a new matrix, unless its ``max_n_features`` is the width
        of X.

        Parameters
        ----------
        X : array or CSR matrix of 0 and 1, shape (n, n_features)
        """
        bits = _as_uint8(check_bits(X))
        width = bits.shape[1]
        simulated = type(getattr(self.opu, "device", None)).__name__
        with self.lock:
            if simulated == "SimulatedOpuDevice" and self.opu.max_n_features != width:
                self.opu.max_n_features = width
            self.opu.fit1d(bits)
            self.n_features = width
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return the OPU's intensities: a camera's integers, or floats if simulated.

        Parameters
        ----------
        X : array or CSR matrix of 0 and 1, shape (n, n_features)
        """
        with self.lock:
            return np.asarray(self.opu.transform(self._prepared(X)))

    def linear_transform(self, X: Any) -> np.ndarray:
        """Return the OPU's linear projection, scaled to entries of variance 1.

        The scale is chosen on the rows of X so that the mean of (Wx)²/‖x‖² over rows
        and outputs is 1.

        Parameters
        ----------
        X : array or CSR matrix of 0 and 1, shape (n, n_features)
        """
        with self.lock:
            bits = self._prepared(X)
            values = np.asarray(self.opu.linear_transform(bits), dtype=np.float64)
        lit = count_lit(bits)
        if not lit.any():
            return np.zeros_like(values)
        squares = np.einsum("ij,ij->i", values, values)[lit > 0]
        size = np.sqrt(np.mean(squares / lit[lit > 0]) / values.shape[1])
        return values / size

    def _prepared(self, X: Any) -> np.ndarray:
        if self.n_features is None:
            self.calibrate(X)
        return _as_uint8(check_bits(X, self.n_features))


def _as_uint8(X: Rows) -> np.ndarray:
    return np.ascontiguousarray(densify(X), dtype=np.uint8)
