"""Optical random features from a device, as a scikit-learn transformer."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils.validation import check_is_fitted

from randkern._fitting import all_or_nothing
from randkern._validation import (
    MAX_COMPONENTS,
    Rows,
    check_count,
    check_positive,
    validate_rows,
)
from randkern.data import row_blocks, rows_within
from randkern.optics._scattering import (
    LightMeter,
    check_bits,
    count_lit,
    exclusive,
    with_lit_bits,
)
from randkern.optics.counts import count_features, mean_count_per_bit
from randkern.optics.device import OpticalDevice
from randkern.optics.lighton import LightOnDevice

# Memory for counts besides the features.
_BLOCK_BYTES = 32 * 2**20


class OpticalFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Features |Ux|^m/√D of binary rows, measured by an optical device.

    Their products approximate the kernel ``randkern.Optical(degree, bias)``. The
    device's counts are divided by their mean per lit bit on the fitted rows, so
    that the mean of |Ux|²/‖x‖² is 1, and raised to the power m/2.

    Parameters
    ----------
    device : OpticalDevice
        A :class:`SimulatedOPU`, a :class:`LightOnDevice`, an OPU of lightonml, or
        any other object that calibrates and transforms (:class:`OpticalDevice`).
    degree : float, default=2
        m > 0, any real number.
    bias : int, default=0
        ν, shown as so many extra lit bits in every row. A device cannot show a
        fraction of a bit: other values are an error.
    n_calibration : int, default=1000
        Number of rows, evenly spaced among those with lit bits, that calibration
        measures (all if there are fewer).

    Attributes
    ----------
    device_ : OpticalDevice
        `device`, or the adapter of a lightonml OPU.
    scale_ : float
        Mean count per lit bit.
    settings_ : object
        The device's settings after calibration (None for devices without settings);
        `transform` restores them, so a device may serve several maps.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    See Also
    --------
    randkern.RandomFeatures : with ``randkern.Optical(degree, bias)``, computes the same
        features without noise, for rows of any numbers.

    Notes
    -----
    A device has noise: transforming the same rows again gives different features.
    Threads may share a device: fits and transforms hold its ``lock``, if it has one.
    Cloning keeps the device (:class:`SimulatedOPU`, :class:`LightOnDevice`), but a bare
    lightonml OPU would be copied: pass the adapter to searches.

    References
    ----------
    Ohana et al. 2020, "Kernel computations from large-scale random features obtained
    by optical processing units", eq. 6.

    Examples
    --------
    >>> import numpy as np, randkern as rk
    >>> from randkern.optics import SimulatedOPU
    >>> X = np.random.default_rng(0).random((4, 100)) < 0.3
    >>> features = rk.OpticalFeatures(SimulatedOPU(20_000, random_state=0), degree=2)
    >>> Z = features.fit_transform(X)
    >>> exact = rk.Optical(degree=2)(X)
    >>> bool(np.abs(Z @ Z.T / exact - 1).max() < 0.1)
    True
    """

    def __init__(
        self,
        device: Any,
        degree: float = 2,
        bias: int = 0,
        *,
        n_calibration: int = 1000,
    ):
        self.device = device
        self.degree = degree
        self.bias = bias
        self.n_calibration = n_calibration

    @all_or_nothing
    def fit(self, X: Any, y: Any = None) -> OpticalFeatures:
        """Calibrate the device on rows like those of `X`.

        Parameters
        ----------
        X : array, CSR matrix or dataframe of 0 and 1, shape (n, d)
        y : ignored

        Warns
        -----
        UserWarning
            If more than 2 % of the counts are saturated, or their mean is below 1.
        """
        check_positive("degree", self.degree)
        check_count("n_calibration", self.n_calibration)
        self._n_lit_bits = _check_bias(self.bias)
        self._degree = float(self.degree)
        self.device_ = _as_device(self.device)
        X = self._bits(X, reset=True)
        lit = count_lit(X)
        bright = np.flatnonzero(lit)
        if not len(bright):
            raise ValueError(
                "all bits of X are 0, but calibration needs light; pass rows with bits "
                "that are 1."
            )
        n_measured = min(len(bright), self.n_calibration)
        measured = bright[np.linspace(0, len(bright) - 1, n_measured, dtype=int)]
        with exclusive(self.device_):
            self.device_.calibrate(X)
            self.settings_ = getattr(self.device_, "settings", None)
            self.scale_ = self._measure(X[measured], lit[measured])
        self._n_features_out = int(self.device_.n_components)
        return self

    def _measure(self, X: Rows, lit: np.ndarray) -> float:
        """Return the mean count per lit bit, measuring a few megabytes at a time."""
        total = 0.0
        meter = LightMeter(getattr(self.device_, "full_scale", None))
        for rows in self._row_blocks(len(lit)):
            counts = self.device_.transform(X[rows])
            share = mean_count_per_bit(counts, lit[rows])
            total += share * len(counts)
            meter.add(np.asarray(counts))
        meter.warn("the rows")
        return total / len(lit)

    def _row_blocks(self, n_rows: int) -> Any:
        width = int(self.device_.n_components)
        return row_blocks(n_rows, rows_within(_BLOCK_BYTES, width))

    def _bits(self, X: Any, *, reset: bool) -> Rows:
        """Return checked rows with the bits of the bias."""
        X = validate_rows(self, X, reset=reset, own_dtype=True)
        return with_lit_bits(check_bits(X), self._n_lit_bits)

    def transform(self, X: Any) -> np.ndarray:
        """Return features of rows of bits, measured by the device.

        Parameters
        ----------
        X : array, CSR matrix or dataframe of 0 and 1, shape (n, d)

        Returns
        -------
        ndarray of float32, shape (n, n_components)
        """
        check_is_fitted(self)
        X = self._bits(X, reset=False)
        out = np.empty((X.shape[0], self._n_features_out), dtype=np.float32)
        options = {"scale": self.scale_, "degree": self._degree}
        # No other map may change the settings before the frames are shown.
        with exclusive(self.device_):
            if self.settings_ is not None:
                self.device_.settings = self.settings_
            for rows in self._row_blocks(X.shape[0]):
                counts = self.device_.transform(X[rows])
                count_features(counts, **options, out=out[rows])
        return out

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = True
        tags.transformer_tags.preserves_dtype = []
        return tags


def _check_bias(bias: Any) -> int:
    number = check_positive("bias", bias, zero=True)
    if number != int(number):
        raise ValueError(
            f"bias must be an integer, got {bias!r}: a device adds this number of bits "
            "1 to each row; round it, or use "
            "randkern.RandomFeatures(randkern.Optical(degree, bias))."
        )
    if number > MAX_COMPONENTS:
        raise ValueError(
            f"bias must be at most {MAX_COMPONENTS:,}, got {bias!r}: a device adds "
            "this number of bits 1 to each row."
        )
    return int(number)


def _as_device(device: Any) -> Any:
    """Return the device, in an adapter if it is a lightonml OPU."""
    if hasattr(device, "fit1d") and hasattr(device, "transform"):
        return LightOnDevice(device)
    if isinstance(device, type) or not isinstance(device, OpticalDevice):
        raise TypeError(
            "device must have n_components, calibrate(X) and transform(X), such as "
            "randkern.optics.SimulatedOPU(n_components, random_state=0), got "
            f"{device!r}."
        )
    return device
