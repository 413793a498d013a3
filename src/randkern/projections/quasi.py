"""Rows from a low-discrepancy sequence instead of independent ones."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from scipy.stats import qmc

from randkern.projections._base import Stored

# SciPy's Sobol points are multiples of 2⁻³⁰; half a step keeps them off 0.
_BITS = 30


@dataclass(frozen=True, eq=False)
class QuasiMonteCarlo(Stored):
    """Scrambled Sobol points through the inverse distribution of the rows.

    Each point is uniform, so that the estimate is unbiased; together they
    cover the space evenly, which lowers its variance in few dimensions
    (Avron, Sindhwani, Yang, Mahoney 2016, "Quasi-Monte Carlo feature maps for
    shift-invariant kernels"). A mixing variable takes one dimension more, a
    complex law twice as many. The factors of a product share one sequence:
    each reads its own dimensions, from `first_dimension` on.
    """

    name = "qmc"
    first_dimension: int = 0

    def draw(self) -> tuple[np.ndarray, ...]:
        return self.law.rows_at(self._points())

    def _points(self) -> np.ndarray:
        """Return scrambled Sobol points in the open unit cube."""
        first = self.first_dimension
        sampler = qmc.Sobol(
            first + self.law.dimensions(self.width),
            scramble=True,
            bits=_BITS,
            rng=np.random.default_rng(self.stream.child("sobol").key),
        )
        with warnings.catch_warnings():
            # A number of points that is no power of 2 is less balanced, not biased.
            warnings.filterwarnings("ignore", message="The balance properties")
            points = sampler.random(self.n_draws)
        return points[:, first:] + 2.0 ** -(_BITS + 1)
