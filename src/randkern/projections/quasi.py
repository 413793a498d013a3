"""Rows from a low-discrepancy sequence instead of independent ones."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri
from scipy.stats import gamma, qmc

from randkern.projections._base import Law, Stored

__all__ = ["QuasiMonteCarlo"]

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

    @staticmethod
    def dimensions(law: Law, width: int) -> int:
        """Return how many dimensions of the sequence a row uses."""
        return width * (2 if law.is_complex else 1) + (law.mixing is not None)

    def draw(self) -> tuple[np.ndarray, ...]:
        points = self._points()
        law, d = self.law, self.width
        if law.is_complex:
            points = ndtri(points)
            points *= math.sqrt(0.5)
            return points[:, :d], points[:, d:]
        if law.entries == "cauchy":
            return (np.tan(np.pi * (points - 0.5)),)
        if law.entries == "laplace":
            sign = np.where(points < 0.5, 1.0, -1.0)
            return (sign * np.log(2 * np.minimum(points, 1 - points)),)
        rows = ndtri(points[:, :d])
        if law.entries == "sphere":
            rows *= math.sqrt(d) / np.linalg.norm(rows, axis=1, keepdims=True)
        if law.mixing is not None:
            shape = law.mixing.parameter
            rows *= law.mixing.factors(gamma.ppf(points[:, -1], shape))[:, None]
        return (rows,)

    def _points(self) -> np.ndarray:
        """Return scrambled Sobol points in the open unit cube."""
        first = self.first_dimension
        sampler = qmc.Sobol(
            first + self.dimensions(self.law, self.width),
            scramble=True,
            bits=_BITS,
            rng=np.random.default_rng(self.stream.child("sobol").key),
        )
        with warnings.catch_warnings():
            # A number of points that is no power of 2 is less balanced, not biased.
            warnings.filterwarnings("ignore", message="The balance properties")
            points = sampler.random(self.n_draws)
        return points[:, first:] + 2.0 ** -(_BITS + 1)
