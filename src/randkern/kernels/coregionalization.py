"""The covariance of several outputs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from randkern._tables import TableEncoder
from randkern._validation import Array, Rows, densify
from randkern.backend.namespace import ops_of
from randkern.kernels.base import Leaf
from randkern.kernels.factor_draws import DrawSlopes, FactorDraws
from randkern.nonlinearities import Signed
from randkern.projections import InputMap, Projection, SphereDistribution


class Coregionalization(Leaf):
    """The covariance B = WWᵀ + diag(v) of outputs, whose index is one of the columns.

    k(x, y) = B_ts for rows whose entries in that column are t and s. ``k *
    Coregionalization(...)`` is a process with several outputs, one observed per row
    (the intrinsic model of coregionalization); a sum of such products is the linear
    model. A Gaussian process learns W and v. With L = [W, diag(√v)], of C columns, a
    draw of its features is L_t·ω, ω uniform on the sphere of radius √C.

    Parameters
    ----------
    loadings : array of shape (n_outputs, rank)
        W, of any sign: outputs may be correlated negatively. If all entries start at 0,
        they stay 0; from 10⁶ times the size of the targets, learning may fail (use
        ``normalize_y=True`` of regression).
    variances : array of shape (n_outputs,)
        v ≥ 0, the variance specific to each output. Entries that are 0 stay 0.
    columns : None, or the number or name of a column
        The column of output indices 0, ..., n_outputs − 1, or of as many categories,
        in sorted order, all present in the rows of the fit. None if there is no other
        column.

    References
    ----------
    Bonilla, Chai & Williams 2008, "Multi-task Gaussian process prediction", eq. 2;
    Álvarez, Rosasco & Lawrence 2012, "Kernels for vector-valued functions", section 4.

    Examples
    --------
    >>> import randkern as rk
    >>> kernel = rk.Coregionalization([[1.0], [-2.0]], [0.5, 0.0], columns=[1])
    >>> kernel([[9.0, 0.0], [9.0, 1.0]])
    array([[ 1.5, -2. ],
           [-2. ,  4. ]])
    """

    reads_categories = True
    learnable = ("loadings", "variances")
    signed = ("loadings",)
    distribution = SphereDistribution()
    nonlinearity = Signed()

    def __init__(self, loadings: Any, variances: Any, *, columns: Any = None):
        self.loadings = loadings
        self.variances = variances
        self.columns = columns

    def _check_leaf(self, width: int) -> None:
        if width != 1:
            raise ValueError(
                f"Coregionalization reads a single column, the number of the output, "
                f"got {width} columns; select it with columns=[...]."
            )
        loadings, variances = (np.asarray(a) for a in (self.loadings, self.variances))
        if loadings.ndim != 2 or 0 in loadings.shape or not _are_finite(loadings):
            raise ValueError(
                "loadings must be finite numbers of shape (n_outputs, rank), got "
                f"{self.loadings!r}."
            )
        shape = loadings.shape[:1]
        if variances.shape != shape or not _are_finite(variances) or min(variances) < 0:
            raise ValueError(
                f"variances must be {shape[0]} finite numbers ≥ 0, one per row of "
                f"loadings, got {self.variances!r}."
            )

    def _check_categories(self, n_features: int, encoder: TableEncoder) -> None:
        (column,) = self._selected(n_features)
        n_outputs = len(self._factor)
        n_categories = encoder.n_categories(column)
        if n_categories not in (None, n_outputs):
            raise ValueError(
                f"Coregionalization has {n_outputs} outputs, but the column "
                f"{encoder.names[column]!r} has {n_categories} categories; fit on rows "
                f"of every output, or number the outputs 0, ..., {n_outputs - 1}."
            )

    @property
    def _factor(self) -> np.ndarray:
        """L = [W, diag(√v)]."""
        own = np.diag(np.sqrt(np.asarray(self.variances, dtype=float)))
        return np.hstack([np.asarray(self.loadings, dtype=float), own])

    def inputs(self, n_features: int) -> InputMap:
        outputs = np.arange(float(len(self._factor)))
        return replace(super().inputs(n_features), categories=(outputs,))

    def projection(self, draws: FactorDraws, n_draws: int, width: int) -> Loaded:
        L = self._factor
        drawn = draws.project(self.distribution, n_draws, L.shape[1], self)
        return Loaded(
            drawn.stream, n_draws, 1, self.distribution, drawn=drawn, loadings=L
        )

    def projection_like(self, projection: Any) -> Loaded:
        return replace(projection, loadings=self._factor, _cache={})

    def squared_amplitude(self, X: Rows, Y: Rows) -> np.ndarray:
        # As for the linear kernel, of the rows of L.
        C = self._factor.shape[1]
        norms = np.outer(self._diag(X), self._diag(Y))
        return C / (C + 2) * (norms + 2 * self._gram(X, Y) ** 2)

    def _diag_selected(self, X: Rows) -> Any:
        return ops_of(X).float64_squared_norms(self._one_hot(X) @ self._factor_like(X))

    def _tile(self, X: Rows, Y: Rows, same: bool) -> Any:
        L = self._factor_like(X)
        return (self._one_hot(X) @ L) @ (self._one_hot(Y) @ L).T

    def _one_hot(self, X: Rows) -> Any:
        """Return the one-hot encoding of the outputs of rows."""
        ops = ops_of(X)
        one_hot = np.eye(len(self._factor))
        codes = ops.codes(densify(X), (np.arange(float(len(one_hot))),))
        _check_codes(codes, len(one_hot))
        return ops.take(ops.float64_like(one_hot, X), codes[:, 0])

    def _factor_like(self, X: Rows) -> Any:
        return ops_of(X).float64_like(self._factor, X)

    def _gradient(self, X: Rows, Y: Rows, M: np.ndarray) -> dict[str, Any]:
        first = self._one_hot(X)
        second = self._one_hot(Y)
        slopes = first.T @ (M @ second)
        slopes = ops_of(slopes).to_host(slopes)
        return self._chained((slopes + slopes.T) @ self._factor)

    def _feature_gradient(self, factors: Array, slopes: DrawSlopes) -> dict[str, Any]:
        (factor,) = factors
        X, L = slopes.X, self._factor
        drawn = factor.projection.drawn
        ops = ops_of(X)
        omega = drawn.project(ops.float64_like(np.eye(L.shape[1]), X), 0, drawn.n_draws)
        # All rows of an output have the amplitudes L_t·ω, which are 0 by chance alone.
        amplitudes = ops.float64_like(L, X) @ omega
        sums = self._one_hot(self._select(X)).T @ slopes.amplitude
        ratios = sums / (amplitudes + (amplitudes == 0))
        return self._chained(ops.to_host(ratios @ omega.T))

    def _chained(self, slopes: np.ndarray) -> dict[str, Any]:
        """Return the derivatives in θ, given those in L."""
        W, v = (np.asarray(a, dtype=float) for a in (self.loadings, self.variances))
        return {
            "loadings": slopes[:, : W.shape[1]] * np.sqrt(1 + W**2),
            "variances": np.diag(slopes[:, W.shape[1] :]) * np.sqrt(v) / 2,
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class Loaded(Projection):
    """Draws of another projection, applied to the row of L of each row's output."""

    name = "loaded"
    drawn: Projection
    loadings: np.ndarray

    def stored_bytes(self, itemsize: int) -> int:
        return self.drawn.stored_bytes(8)

    def project(self, X: Rows, start: int, stop: int) -> Array:
        ops = ops_of(X)
        _check_codes(X, len(self.loadings))
        rows = ops.take(ops.float64_like(self.loadings, X), X[:, 0])
        return self.drawn.project(rows, start, stop)


def _check_codes(codes: Any, n_outputs: int) -> None:
    if ops_of(codes).largest_code(codes) >= n_outputs:
        raise ValueError(
            f"Coregionalization has {n_outputs} outputs: its column must contain only "
            f"0, ..., {n_outputs - 1}, or {n_outputs} categories that are all present "
            "in the rows of the fit."
        )


def _are_finite(values: np.ndarray) -> bool:
    return values.dtype.kind in "iuf" and bool(np.all(np.isfinite(values)))
