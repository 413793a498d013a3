"""Any stationary kernel, from a sampler of its frequencies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from randkern._validation import Rows, densify
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks, rows_within
from randkern.kernels.factor_draws import FactorDraws
from randkern.kernels.stationary import Stationary
from randkern.projections import Distribution, Stored

_ESTIMATE_DRAWS = 2**16
_DRAWS_PER_BLOCK = 2**11
_DIFFERENCE_BYTES = 2**26


class Spectral(Stationary):
    """Any stationary kernel, defined by a sampler of its frequencies.

    The kernel is the mean of cos(ω·(x − y)/ℓ) over the frequencies ω.

    Parameters
    ----------
    sampler : callable
        ``sampler(n, d, generator)`` returns n independent frequencies in d dimensions,
        shape (n, d), drawn by a :class:`numpy.random.Generator`. Define it at the top
        level of a module if the model is to be saved.
    value : callable, optional
        ``value(T)`` returns the kernel, of shape (...), at differences T of shape
        (..., d). None: exact values, and hence variances, are means over 65,536
        frequencies with a fixed seed, with an error of about 0.004.
    lengthscale : float, array of shape (d,), "scale" or "median"
        ℓ; a vector divides each column by its own. ``"scale"``: ℓ² = d·Var/2 with Var
        the variance of all entries; ``"median"``: the median distance of a sample.
    columns : None, slice, or list of column numbers or names
        The columns that the kernel reads; None: all.

    References
    ----------
    Bochner's theorem; Rahimi & Recht 2007, "Random features for large-scale kernel
    machines", theorem 1.

    Examples
    --------
    >>> import numpy as np, randkern as rk
    >>> def uniform(n, d, generator):
    ...     return generator.uniform(-1, 1, size=(n, d))
    >>> def sinc(T):
    ...     return np.sinc(T / np.pi).prod(axis=-1)
    >>> rk.Spectral(uniform, sinc)([[0.0]], [[0.0], [2.0]]).round(3)
    array([[1.   , 0.455]])
    """

    learnable = ()  # user-defined functions have no known derivative

    def __init__(
        self,
        sampler: Callable[[int, int, np.random.Generator], Any],
        value: Callable[[np.ndarray], Any] | None = None,
        *,
        lengthscale: Any = 1.0,
        columns: Any = None,
    ):
        self.sampler = sampler
        self.value = value
        self.lengthscale = lengthscale
        self.columns = columns

    def _check_leaf(self, width: int) -> None:
        super()._check_leaf(width)
        for name, optional in (("sampler", False), ("value", True)):
            function = getattr(self, name)
            if not (callable(function) or (optional and function is None)):
                kinds = "callable or None" if optional else "callable"
                raise ValueError(f"{name} must be {kinds}, got {function!r}.")

    def projection(self, draws: FactorDraws, n_draws: int, width: int) -> Sampled:
        stream = draws.stream(width)
        signed = draws.needs_signs()  # the sampler's frequencies may be one-sided
        return Sampled(
            stream, n_draws, width, Distribution(), sampler=self.sampler, signed=signed
        )

    def _tile(self, X: Rows, Y: Rows, same: bool) -> np.ndarray:
        ops = ops_of(X)
        scale = self._inverse_scale(X)
        like = X
        X, Y = (ops.to_host(densify(rows) * scale) for rows in (X, Y))
        if self.value is None:
            generator = np.random.default_rng(0)
            rows = _frequencies(self.sampler, _ESTIMATE_DRAWS, X.shape[1], generator)
            out = np.zeros((len(X), len(Y)))
            for draws in row_blocks(_ESTIMATE_DRAWS, _DRAWS_PER_BLOCK):
                a, b = X @ rows[draws].T, Y @ rows[draws].T
                out += np.cos(a) @ np.cos(b).T + np.sin(a) @ np.sin(b).T
            return ops.float64_like(out / _ESTIMATE_DRAWS, like)
        out = np.empty((len(X), len(Y)))
        for block in row_blocks(len(X), rows_within(_DIFFERENCE_BYTES, 8 * Y.size)):
            differences = X[block, None] - Y
            values = np.asarray(self.value(differences))
            if values.shape != differences.shape[:2]:
                raise ValueError(
                    f"value must return an array of shape {differences.shape[:2]} for "
                    f"differences of shape {differences.shape}, got {values.shape}; "
                    "reduce the last axis."
                )
            out[block] = values
        return ops.float64_like(out, like)


def _frequencies(
    sampler: Any, n: int, d: int, generator: np.random.Generator
) -> np.ndarray:
    """Return what a user's sampler draws, checked."""
    drawn = np.asarray(sampler(n, d, generator))
    if drawn.shape != (n, d) or drawn.dtype.kind not in "iuf":
        raise ValueError(
            f"sampler must return real numbers of shape {(n, d)}, got {drawn.dtype} "
            f"values of shape {drawn.shape}."
        )
    if not np.isfinite(drawn).all():
        raise ValueError("sampler must return finite numbers, got NaN or infinity.")
    return drawn.astype(float)


@dataclass(frozen=True, eq=False, kw_only=True)
class Sampled(Stored):
    """Rows drawn by a user-defined function, all at once; random signs if `signed`."""

    name = "sampled"
    sampler: Any
    signed: bool = False

    def draw(self) -> tuple[np.ndarray, ...]:
        generator = self.stream.child("sampler").generator()
        rows = _frequencies(self.sampler, self.n_draws, self.width, generator)
        if self.signed:
            rows = rows * generator.choice([-1.0, 1.0], (self.n_draws, 1))
        return (rows,)
