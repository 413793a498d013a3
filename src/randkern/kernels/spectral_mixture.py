"""Mixtures of Gaussian spectral densities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from randkern._validation import Rows
from randkern.backend.namespace import ops_of
from randkern.kernels.base import Leaf, Scale, Term
from randkern.kernels.mixture_factors import Envelope, Wave


class SpectralMixture(Leaf):
    """The spectral mixture kernel, a sum of damped waves whose frequencies are learned.

        k(x, y) = Σ_q w_q exp(−2π²‖τ∘σ_q‖²) cos(2π μ_q·τ)

    with τ = x − y. Its frequencies are 2π(μ_q + σ_q∘z), z ~ N(0, I); its components are
    terms of a sum, which share the columns. A Gaussian process learns all three
    (entries of `means` that are 0 stay 0).

    Parameters
    ----------
    weights : array of shape (n_mixtures,)
        w_q > 0.
    means, scales : arrays of shape (n_mixtures, d)
        μ_q and σ_q > 0, in cycles per unit of x.
    columns : None, slice, or list of column numbers or names
        The columns that the kernel reads; None: all.

    References
    ----------
    Wilson & Adams 2013, "Gaussian process kernels for pattern discovery and
    extrapolation", eq. 12.

    Examples
    --------
    >>> import randkern as rk
    >>> kernel = rk.SpectralMixture([1.0, 0.5], [[0.0], [2.0]], [[0.1], [0.05]])
    >>> kernel([[0.0]], [[0.0], [0.5]]).round(3)
    array([[1.5  , 1.445]])
    """

    learnable = ("weights", "means", "scales")

    def __init__(self, weights: Any, means: Any, scales: Any, *, columns: Any = None):
        self.weights = weights
        self.means = means
        self.scales = scales
        self.columns = columns

    def terms(self) -> list[Term]:
        return [
            Term(
                float(weight),
                (Envelope(self, q), Wave(self, q)),
                frozenset([Scale(self, "weights", q)]),
            )
            for q, weight in enumerate(self.weights)
        ]

    def _check_leaf(self, width: int) -> None:
        n_mixtures = np.size(self.weights)
        if not n_mixtures:
            raise ValueError(
                "weights is empty; a mixture needs at least one component."
            )
        for name in ("weights", "means", "scales"):
            values = np.asarray(getattr(self, name), dtype=float)
            shape = (n_mixtures,) if name == "weights" else (n_mixtures, width)
            in_range = np.isfinite(values) & ((values > 0) | (name == "means"))
            if values.shape != shape or not in_range.all():
                raise ValueError(
                    f"{name} must be {'finite' if name == 'means' else 'positive'} "
                    f"numbers in an array of shape {shape}, got {values!r}."
                )

    def _tile(self, X: Rows, Y: Rows, same: bool) -> Any:
        terms = ((term.weight, term.leaves) for term in self.terms())
        return sum(w * math.prod(p._tile(X, Y, same) for p in ps) for w, ps in terms)

    def _diag_selected(self, X: Rows) -> Any:
        total = sum(term.weight for term in self.terms())
        return total * ops_of(X).float64_ones(X.shape[0], X)

    def _gradient(self, X: Rows, Y: Rows, M: np.ndarray) -> dict[str, Any]:
        out = {name: np.zeros(np.shape(getattr(self, name))) for name in self.learnable}
        for q, term in enumerate(self.terms()):
            weighted = term.weight * M
            envelope, wave = term.leaves
            decay, cosine = (part._tile(X, Y, False) for part in term.leaves)
            out["weights"][q] = float((weighted * (decay * cosine)).sum())
            slopes = envelope._gradient(X, Y, weighted * cosine)
            slopes |= wave._gradient(X, Y, weighted * decay)
            for name, value in slopes.items():
                out[name][q] = ops_of(value).to_host(value)
        return out
