"""Rows in orthogonal blocks, with the norms of independent rows."""

from __future__ import annotations

import numpy as np

from randkern.backend.blas_threads import one_thread_if_short
from randkern.data import row_blocks
from randkern.projections._base import Stored

# Blocks are decomposed together up to so many entries.
_ENTRIES = 2**16


class Orthogonal(Stored):
    """Blocks of `width` rows of a Haar orthogonal (or unitary) matrix.

    Rows are rescaled by independent norms, χ_d for a normal law and
    √Gamma(d, 1) for a complex normal one, so that every row has exactly the
    law of an independent one. Rows within a block are dependent, which lowers
    the variance of the estimated kernel (Yu, Suresh, Choromanski,
    Holtmann-Rice, Kumar 2016, "Orthogonal random features").
    """

    name = "orthogonal"

    def draw(self) -> tuple[np.ndarray, ...]:
        n, d = self.n_draws, self.width
        whole, rest = divmod(n, d)
        matrix = np.empty((n, d), complex if self.law.is_complex else float)
        with one_thread_if_short(d**3):
            for part in row_blocks(whole, max(1, _ENTRIES // d**2)):
                blocks = range(part.start, part.stop)
                rows = slice(part.start * d, part.stop * d)
                matrix[rows] = self._haar_rows(blocks, d).reshape(-1, d)
            if rest:
                matrix[whole * d :] = self._haar_rows(range(whole, whole + 1), rest)[0]
        matrix *= (self._norms() * self.mixing_factors)[:, None]
        if self.law.is_complex:
            return matrix.real.copy(), matrix.imag.copy()
        return (matrix,)

    def _haar_rows(self, blocks: range, n_rows: int) -> np.ndarray:
        """Return the first rows of each block, orthonormal, Haar distributed."""
        draws = 2 if self.law.is_complex else 1
        entries = np.empty((len(blocks), draws, n_rows, self.width))
        for index, out in zip(blocks, entries, strict=True):
            rng = self.stream.child("block", index).generator()
            rng.standard_normal(out=out)
        parts = entries.swapaxes(2, 3)
        made = parts[:, 0] + 1j * parts[:, 1] if draws == 2 else parts[:, 0]
        q, r = np.linalg.qr(made)
        # Mezzadri 2007, "How to generate random matrices from the classical
        # compact groups": without these phases Q is not Haar distributed.
        diagonal = np.diagonal(r, axis1=1, axis2=2)
        return (q * (diagonal / np.abs(diagonal))[:, None, :]).swapaxes(1, 2)

    def _norms(self) -> np.ndarray:
        generator = self.stream.child("norms").generator()
        return self.law.norms(generator, self.width, self.n_draws)
