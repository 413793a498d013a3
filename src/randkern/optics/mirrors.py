"""The micromirrors that turn bits into light."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

# Of the mirrors that the largest macro-pixels light, for one of a better shape.
_LEAST_SHARE = 0.95


@dataclass(frozen=True)
class MirrorLayout:
    """How bits lie on a digital micromirror device.

    A bit is shown by a rectangle of neighbouring mirrors, a macro-pixel, all of
    them on or all of them off; macro-pixels are of one size, and fill the rows of a
    grid. Of the sizes that leave room for all bits, and light at least 95 % of the
    mirrors that the largest does, it is the one closest to a square. Mirrors that
    belong to no bit stay dark.

    The light of a macro-pixel is the sum of that of its mirrors, so that the
    transmission coefficient of a bit is a sum of independent complex Gaussian ones:
    again complex Gaussian, of a variance that the number of mirrors multiplies. This
    is a gain common to all bits, and leaves the law of the transmission matrix as it
    is.

    Parameters
    ----------
    n_bits : int
        Bits of a row, each shown by a macro-pixel.
    height, width : int, default=912, 1140
        Mirrors of the device.

    Attributes
    ----------
    macro_pixel : tuple of int
        Height and width of a macro-pixel in mirrors.
    grid : tuple of int
        Rows and columns of macro-pixels.

    Raises
    ------
    ValueError
        If there are more bits than mirrors.

    Examples
    --------
    >>> from randkern.optics import MirrorLayout
    >>> layout = MirrorLayout(784)
    >>> layout.macro_pixel, layout.mirrors_per_bit, layout.n_dark
    ((35, 36), 1260, 51840)
    """

    n_bits: int
    height: int = 912
    width: int = 1140

    def __post_init__(self) -> None:
        if self.n_bits < 1:
            raise ValueError(f"n_bits must be positive, got {self.n_bits}.")
        if self.n_bits > self.height * self.width:
            raise ValueError(
                f"rows of {self.n_bits:,} bits do not fit on {self.height} x "
                f"{self.width} = {self.height * self.width:,} mirrors; keep fewer "
                "columns or fewer bits per column."
            )

    @property
    def macro_pixel(self) -> tuple[int, int]:
        """Height and width of a macro-pixel in mirrors."""
        heights = np.arange(1, self.height + 1)
        columns = -(-self.n_bits // (self.height // heights))
        widths = self.width // columns  # 0 where the bits do not fit
        areas = heights * widths
        # A size that does not fit, of area 0, is never among the large ones.
        elongation = np.maximum(heights, widths) / np.maximum(
            np.minimum(heights, widths), 1
        )
        large = areas >= _LEAST_SHARE * areas.max()
        best = int(np.argmin(np.where(large, elongation, np.inf)))
        return int(heights[best]), int(widths[best])

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of macro-pixels."""
        height, width = self.macro_pixel
        return self.height // height, self.width // width

    @property
    def mirrors_per_bit(self) -> int:
        """Number of mirrors that show one bit."""
        height, width = self.macro_pixel
        return height * width

    @property
    def n_dark(self) -> int:
        """Number of mirrors that belong to no bit."""
        return self.height * self.width - self.n_bits * self.mirrors_per_bit

    def frame(self, bits: Any) -> np.ndarray:
        """Return the mirrors that are on for one row of bits.

        Parameters
        ----------
        bits : array of shape (n_bits,)

        Returns
        -------
        ndarray of bool, shape (height, width)
        """
        bits = bits.toarray() if sp.issparse(bits) else np.asarray(bits)
        bits = bits.astype(bool).ravel()
        if len(bits) != self.n_bits:
            raise ValueError(
                f"the layout is for {self.n_bits} bits, got {len(bits)} of them."
            )
        cells = np.zeros(self.grid, dtype=bool)
        cells.reshape(-1)[: self.n_bits] = bits
        lit = np.kron(cells, np.ones(self.macro_pixel, dtype=bool))
        out = np.zeros((self.height, self.width), dtype=bool)
        out[: lit.shape[0], : lit.shape[1]] = lit
        return out
