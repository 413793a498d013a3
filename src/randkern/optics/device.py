"""A simulated optical processing unit, with a camera's noise and rounding."""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from randkern._random import root_stream
from randkern._validation import (
    MAX_COMPONENTS,
    Array,
    Rows,
    check_choice,
    check_count,
    check_positive,
)
from randkern.backend.camera import expose
from randkern.backend.counter import random_matrix
from randkern.optics._scattering import (
    LightMeter,
    MirrorLayout,
    ScatteringMedium,
    SharedDevice,
    check_bits,
    count_lit,
)
from randkern.optics.counts import acquire

# Mean 8-bit counts per lit mirror and microsecond: chosen so that rows with at least a
# twentieth of their bits lit stay within the nominal exposure.
_RESPONSIVITY = 8e-7
_EIGHT_BITS = 255
# Mean count by the number of bits, as a share of full scale: few bits get more light,
# because their rounding does more harm than saturation.
_LEVEL = 1 / 16
_LEVELS = {1: 0.5, 2: 0.3, 3: 0.2, 4: 0.15, 5: 0.1}
_READOUT_MICROSECONDS = 100.0
_FRAME_MICROSECONDS = 500.0
_WATTS = 30.0
# Frames of the anchor alone, averaged in linear mode.
_ANCHOR_FRAMES = 16


@runtime_checkable
class OpticalDevice(Protocol):
    """The interface of devices for :class:`OpticalFeatures`.

    A device may also have a writable attribute ``settings`` that calibration changes:
    features then restore the settings they were fitted with.
    """

    @property
    def n_components(self) -> int:
        """Number of outputs, D."""

    def calibrate(self, X: Any) -> Any:
        """Prepare for rows of bits like those of X.

        Parameters
        ----------
        X : array or CSR matrix of 0 and 1, shape (n, n_features)
        """

    def transform(self, X: Any) -> np.ndarray:
        """Return intensities, proportional to |Ux|², for rows of bits.

        Parameters
        ----------
        X : array or CSR matrix of 0 and 1, shape (n, n_features)
        """


@dataclass(frozen=True)
class Settings:
    """The settings that calibration chooses for a device.

    Attributes
    ----------
    n_features : int
        Bits per row; None before the first row.
    exposure : float
        Exposure in microseconds; None before the first row.
    mean_lit : float
        Mean number of lit bits of the calibration rows, without dark rows.
    """

    n_features: int | None = None
    exposure: float | None = None
    mean_lit: float = 1.0


class SimulatedOPU(SharedDevice):
    """A simulated optical processing unit: binary rows in, camera counts out.

    Bits light up macro-pixels of a micromirror device, a scattering medium mixes
    the light, and a camera counts |Ux|² with U complex Gaussian:

        counts = clip(round(g|Ux|² + noise), 0, full scale).

    It behaves like hardware, not like an estimator: `clone` returns it unchanged, it
    has one transmission matrix for its lifetime, and it counts the frames it has shown.
    Every frame has its own noise at every pixel, so reading the same rows again gives
    different counts; showing the same frames again (`frame`, `reset`) gives the same
    counts.

    Parameters
    ----------
    n_components : int
        D, the number of outputs.
    bits : int, default=8
        Bits per count, 1 to 16: uint8 up to 8, uint16 beyond.
    exposure : "auto" or float, default="auto"
        Microseconds. With "auto", :meth:`calibrate` or the first acquisition sets it
        so that the mean count of rows with lit bits is `level` times full scale; the
        more bits are lit, the shorter it is.
    level : float or None, default=None
        None: 1/16 from 6 bits on, that is 16 of 255 counts. Intensities are
        exponentially distributed: at mean brightness one count in e^(1/level), nine
        million, saturates. Fewer bits would round most of that light to 0 or 1; levels
        for 1 to 5 bits are 0.5, 0.3, 0.2, 0.15 and 0.1, close to the smallest error of
        the kernel (docs/optics.md has the table).
    read_noise : float, default=0.2
        Standard deviation without light, in units of 1/255 of full scale.
    shot_noise : float, default=0.024
        Variance per unit of light, in the same units; the default is 42 electrons per
        unit. At 10 of 255 counts the defaults give a standard deviation of 0.53, or 0.6
        with rounding, as in published raw outputs.
    projection : {"auto", "structured", "streamed", "dense", "orthogonal"}
        How the matrix is simulated. "structured": by fast Walsh-Hadamard transforms;
        "streamed": independent entries, recomputed whenever needed; "dense": the
        same, stored; "orthogonal": in orthogonal blocks, stored. "auto": structured
        from 64 bits per row on, and below that streamed; neither stores the matrix.
    random_state : int, generator or None, default=None
        Determines the device: its matrix and its noise.

    Attributes
    ----------
    settings : Settings
        The settings chosen by :meth:`calibrate`; may be assigned.
    frame : int
        Number of frames shown, which is the index of the next one.
    lock : re-entrant lock
        Held while frames are shown. Threads that share a device and change its settings
        must hold it over both, as :class:`OpticalFeatures` does.

    Notes
    -----
    A macro-pixel of k mirrors gives k times the light of one mirror: a gain common
    to all bits, which changes the exposure but not the distribution of U
    (:class:`MirrorLayout`).

    Counts of structured projections do not depend on blocks and threads; the other
    projections use matrix products, so that about one count in 10⁵ may differ by one.

    References
    ----------
    Ohana et al. 2020, "Kernel computations from large-scale random features obtained
    by optical processing units", section 2; Saade et al. 2016, "Random projections
    through multiple optical scattering".

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.optics import SimulatedOPU
    >>> X = np.random.default_rng(0).random((5, 100)) < 0.5
    >>> device = SimulatedOPU(1000, random_state=0)
    >>> counts = device.transform(X)
    >>> counts.shape, counts.dtype, round(float(counts.mean()))
    ((5, 1000), dtype('uint8'), 16)
    >>> bool((device.transform(X) == counts).all())
    False
    >>> bool((device.transform(X, frame=0) == counts).all())
    True
    """

    def __init__(
        self,
        n_components: int,
        *,
        bits: int = 8,
        exposure: Any = "auto",
        level: float | None = None,
        read_noise: float = 0.2,
        shot_noise: float = 0.024,
        projection: str = "auto",
        random_state: Any = None,
    ):
        super().__init__()
        self.n_components = check_count(
            "n_components", n_components, at_most=MAX_COMPONENTS
        )
        self.bits = check_count("bits", bits)
        if bits > 16:
            raise ValueError(f"bits must be at most 16, got {bits}.")
        if not (isinstance(exposure, str) and exposure == "auto"):
            exposure = check_positive("exposure", exposure)
        self.exposure = exposure
        level = _LEVELS.get(self.bits, _LEVEL) if level is None else level
        self.level = check_positive("level", level)
        if self.level > 1:
            raise ValueError(
                "level, the mean count as a fraction of full scale, must be between 0 "
                f"and 1, got {level!r}; use for instance 1/16."
            )
        self.read_noise = check_positive("read_noise", read_noise, zero=True)
        self.shot_noise = check_positive("shot_noise", shot_noise, zero=True)
        known = "auto", "structured", "streamed", "dense", "orthogonal"
        self.projection = check_choice("projection", projection, known)
        self._stream = root_stream(random_state)
        self._medium = ScatteringMedium(
            self.n_components, self.projection, self._stream.child("matrix")
        )
        self.settings = Settings()
        self.frame = 0

    def __repr__(self) -> str:
        return (
            f"SimulatedOPU({self.n_components}, bits={self.bits}, "
            f"projection={self.projection!r})"
        )

    @property
    def full_scale(self) -> int:
        """The largest count."""
        return 2**self.bits - 1

    @property
    def layout(self) -> MirrorLayout:
        """Layout of the bits on the mirrors, for the rows of the setup."""
        return MirrorLayout(self._ready().n_features or 1)

    @property
    def gain(self) -> float:
        """Mean count per lit bit of a row, g."""
        exposure = self._ready().exposure or 0.0
        return _RESPONSIVITY * self.layout.mirrors_per_bit * exposure * self._unit

    @property
    def _unit(self) -> float:
        """The unit of the noise, 1/255 of full scale, in counts."""
        return self.full_scale / _EIGHT_BITS

    def _ready(self) -> Settings:
        if self.settings.n_features is None:
            raise ValueError(
                "the number of bits of a row is not known yet; call calibrate(X) or "
                "transform(X) first."
            )
        return self.settings

    def calibrate(self, X: Any) -> SimulatedOPU:
        """Lay out the mirrors for rows like those of X, and set the exposure.

        Parameters
        ----------
        X : array or CSR matrix of 0 and 1, shape (n, n_features)

        Returns
        -------
        SimulatedOPU
            The device.
        """
        X = check_bits(X)
        with self.lock:
            self.settings = self._settings_for(X)
        return self

    def _settings_for(self, X: Rows) -> Settings:
        layout = MirrorLayout(X.shape[1])
        lit = count_lit(X)
        # Dark rows need no exposure; many of them would overexpose the others.
        mean_lit = float(lit[lit > 0].mean()) if lit.any() else 1.0
        exposure = self.exposure
        if exposure == "auto":
            light = _RESPONSIVITY * layout.mirrors_per_bit * mean_lit
            exposure = self.level * _EIGHT_BITS / light
        return Settings(X.shape[1], float(exposure), mean_lit)

    def reset(self, frame: int = 0) -> None:
        """Continue with frame `frame`, so that the noise from there on repeats.

        Parameters
        ----------
        frame : int, default=0
            Index of the next frame.
        """
        with self.lock:
            self.frame = _checked_frame(frame)

    def _take_frames(self, n_frames: int, frame: int | None) -> int:
        """Return the first of `n_frames` frames, by default the next ones."""
        if frame is None:
            frame = self.frame
            self.frame = self.frame + n_frames
        return _checked_frame(frame)

    def transform(self, X: Any, *, frame: int | None = None) -> np.ndarray:
        """Return the camera's counts for rows of bits.

        Parameters
        ----------
        X : array or CSR matrix of 0 and 1 (of any dtype), shape (n, n_features)
        frame : int, optional
            Number of the frame that shows the first row, for its noise. By default
            the next one, and the device goes on counting from there.

        Returns
        -------
        ndarray of uint8 (uint16 for more than 8 bits), shape (n, n_components)

        Raises
        ------
        ValueError
            If X has entries other than 0 and 1, a width other than that of the setup,
            or more columns than there are mirrors.
        """
        with self.lock:
            X = self._bits(X)
            first = self._take_frames(X.shape[0], frame)
            dtype = np.uint8 if self.bits <= 8 else np.uint16
            out = np.empty((X.shape[0], self.n_components), dtype=dtype)
            gain = self.gain
            for rows, columns, light in self._medium.intensities(X):
                start = first + rows.start
                self._count(light, gain, start, columns, out[rows, columns])
        return out

    def _bits(self, X: Any) -> Rows:
        """Return checked rows, for which a device that is not set up is calibrated."""
        X = check_bits(X, self.settings.n_features)
        if self.settings.n_features is None:
            self.settings = self._settings_for(X)
        return X

    def _count(
        self, light: np.ndarray, gain: float, frame: int, columns: slice, out: Array
    ) -> None:
        """Write the counts of a few pixels in the frames from `frame` on."""
        expose(
            light,
            gain=gain,
            read_noise=self.read_noise * self._unit,
            shot_noise=self.shot_noise * self._unit,
            full_scale=self.full_scale,
            key=self._stream.child("noise").key,
            frame=frame,
            pixel=columns.start,
            out=out,
        )

    def linear_transform(self, X: Any, *, frame: int | None = None) -> np.ndarray:
        """Return a linear projection, by interference with an anchor.

        An anchor r, on separate mirrors, gives

            |U(x + r)|² − |Ux|² − |Ur|² = 2 Re(conj(Ur)·Ux);

        divided by the measured √2·|Ur|, this is Wx where W has independent N(0, 1)
        entries, up to the camera's noise. (Without the division, the entries of W
        would have a Laplace distribution.)

        Parameters
        ----------
        X : array or CSR matrix of 0 and 1, shape (n, n_features)
        frame : int, optional
            Number of the frame that shows the first row, for its noise. By default
            the next one, and the device goes on counting from there.

        Returns
        -------
        ndarray of float32, shape (n, n_components)

        Notes
        -----
        It takes two frames per row, and 16 of the anchor alone, which has as many lit
        bits as the mean calibration row; the exposure is half that of
        :meth:`transform`, since there is twice the light. A UserWarning is issued if
        the anchor's counts are mostly saturated, or below one.
        """
        anchor_light = LightMeter(self.full_scale)
        with self.lock:
            X = self._bits(X)
            n = X.shape[0]
            first = self._take_frames(2 * n + _ANCHOR_FRAMES, frame)
            gain = self.gain / 2
            out = np.empty((n, self.n_components), dtype=np.float32)
            for rows, columns, real, imag in self._medium.fields(X):
                anchor = self._anchor(columns)
                alone = np.tile(np.abs(anchor) ** 2, (_ANCHOR_FRAMES, 1))
                counts = self._counts(alone, gain, first, columns)
                anchor_light.add(counts)
                reference = counts.mean(axis=0)
                start = first + _ANCHOR_FRAMES + rows.start
                apart = self._counts(real * real + imag * imag, gain, start, columns)
                real += anchor.real
                imag += anchor.imag
                both = real * real + imag * imag
                joint = self._counts(both, gain, start + n, columns)
                # A pixel that the anchor leaves dark has no information to amplify.
                size = np.sqrt(2 * gain * np.maximum(reference, 0.25))
                out[rows, columns] = (joint - apart - reference) / size
            anchor_light.warn("the anchor")
        return out

    def _anchor(self, columns: slice) -> np.ndarray:
        """Return Ur for an anchor with as many lit bits as the mean row."""
        n_lit = max(1, round(self.settings.mean_lit))
        key = self._stream.child("anchor").key
        parts = random_matrix(key, "normal", 0, 2, columns.start, columns.stop)
        return np.float32(math.sqrt(n_lit / 2)) * (parts[0] + 1j * parts[1])

    def _counts(
        self, light: np.ndarray, gain: float, frame: int, columns: slice
    ) -> np.ndarray:
        """Return the counts of a few pixels in float32."""
        counts = np.empty(light.shape, dtype=np.uint16)
        self._count(light.astype(np.float32, copy=False), gain, frame, columns, counts)
        return counts.astype(np.float32)

    def acquire(
        self,
        X: Any,
        path: str | os.PathLike[str],
        *,
        progress: Callable[[int, int | None], Any] | None = None,
    ) -> np.ndarray:
        """Write the counts of many rows to a file and return them as a memory map.

        The counts, including the exposure, are those of :meth:`transform` on all rows
        at once: a device that is not set up is calibrated on all rows of an array. Of a
        stream it only sees the first block; calibrate it before if others are brighter.

        Parameters
        ----------
        X : array, CSR matrix, list of rows, RowBlocks, or iterable of arrays
            Rows of 0 and 1; only X of a :class:`randkern.RowBlocks` is read.
        path : path
            The file, in NumPy's format.
        progress : callable, optional
            Called after every block with the number of rows written and the total
            number (None if unknown).
        """
        return acquire(self, X, path, progress=progress)

    def matrix(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Return rows `start` to `stop` - 1 of U, for tests at small sizes.

        Parameters
        ----------
        start, stop : int
            The first row, and the one after the last: all by default.

        Returns
        -------
        ndarray of complex128, shape (stop - start, n_features)
        """
        stop = self.n_components if stop is None else stop
        with self.lock:
            n_features = self._ready().n_features or 1
            return self._medium.matrix(n_features, start, stop)

    @property
    def frame_seconds(self) -> float:
        """Seconds per frame: 500 µs, more if the exposure and 100 µs take longer."""
        exposure = self.settings.exposure or 0.0
        return 1e-6 * max(_FRAME_MICROSECONDS, exposure + _READOUT_MICROSECONDS)

    def time_seconds(self, n_frames: int) -> float:
        """Return the time that the real device takes for a number of rows.

        It does not depend on the number of outputs.

        Parameters
        ----------
        n_frames : int
            Rows shown.

        Examples
        --------
        >>> from randkern.optics import SimulatedOPU
        >>> device = SimulatedOPU(100_000)
        >>> device.time_seconds(3000), device.energy_joules(3000)
        (1.5, 45.0)
        """
        return check_positive("n_frames", n_frames, zero=True) * self.frame_seconds

    def energy_joules(self, n_frames: int) -> float:
        """Return the energy that the real device takes, at a constant 30 W.

        Parameters
        ----------
        n_frames : int
            Rows shown.
        """
        return _WATTS * self.time_seconds(n_frames)


def _checked_frame(frame: Any) -> int:
    """Return the index of a frame, checked to be at least 0."""
    if not isinstance(frame, numbers.Integral) or frame < 0:
        raise ValueError(f"frame must be a non-negative integer, got {frame!r}.")
    return int(frame)
