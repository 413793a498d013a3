"""The variance of random features, as a function of their number."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Fourier = Literal["pair", "offset"]


@dataclass(frozen=True)
class TermVariance:
    """The variance of a term as Σ_k c_k(D) M_k: only the c_k depend on D."""

    matrices: tuple[np.ndarray, ...]
    factors: Callable[[int], tuple[float, ...]]

    def combine(self, width: int, values: Iterable[Any]) -> Any:
        """Return Σ_k c_k(D) v_k; where c_k is 0, v_k may be infinite."""
        pairs = zip(self.factors(width), values, strict=True)
        return sum(factor * value for factor, value in pairs if factor)

    @classmethod
    def of_amplitudes(cls, moment: Any, square: Any) -> TermVariance:
        """Return that of single columns of second moment E[A(x)²A(y)²]."""
        return cls((moment - square,), lambda width: (1 / width,))

    @classmethod
    def of_phases(
        cls, amplitude: Any, double: Any, square: Any, fourier: Fourier
    ) -> TermVariance:
        """Return that of cosines and sines; `double` is E[cos 2Δ]."""
        offset = amplitude * (1 + double / 2)
        if fourier == "offset":
            return cls.of_amplitudes(offset, square)
        pair = amplitude * (1 + double)  # of two columns, times D

        def factors(width: int) -> tuple[float, ...]:
            odd = width % 2
            return (width - odd) / width**2, odd / width**2

        return cls((pair - 2 * square, offset - square), factors)
