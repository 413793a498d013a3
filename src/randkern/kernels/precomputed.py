"""A kernel whose values are passed in place of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from randkern._validation import Rows, densify
from randkern.backend.namespace import ops_of
from randkern.kernels.base import Kernel, Leaf, Term


class Precomputed(Leaf):
    """The kernel is the matrix that is passed in place of rows.

    As with ``kernel="precomputed"`` of scikit-learn, `X` is k(X, X) of shape (n, n) in
    `fit`, and k(X_new, X) of shape (m, n) in `predict`. Only exact models accept it
    (``n_components=None``). Sums and multiples of it are such kernels, too.

    Cross-validation of scikit-learn takes the same rows and columns of the matrix.
    Values k(x, x) of new rows are not passed, so that processes have no standard
    deviations.

    Examples
    --------
    >>> import numpy as np, randkern as rk
    >>> X, y = np.linspace(0, 6, 40)[:, None], np.sin(np.linspace(0, 6, 40))
    >>> kernel = rk.Gaussian(1.0)
    >>> model = rk.KernelRidgeRegressor(rk.Precomputed(), 1e-3, n_components=None)
    >>> model = model.fit(kernel(X), y)
    >>> bool(abs(model.predict(kernel([[1.0]], X))[0] - np.sin(1.0)) < 1e-2)
    True
    """

    columns = None
    # Of the rows of a fit, which are then columns of their numbers, (n, 1).
    matrix_: Any = None

    def terms(self) -> list[Term]:
        raise ValueError(
            "Precomputed() has no features; use an exact model, with n_components=None."
        )

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("matrix_", None)  # predictions do not need it
        return state

    def _gram(self, X: Rows, Y: Rows | None, *, precise: bool = True) -> Any:
        ops = ops_of(X)
        if self.matrix_ is None and Y is None:
            values = densify(X)  # of a call
        else:
            values = self._values(X)[:, _numbers(X if Y is None else Y)]
        return ops.copy(ops.as_float64(values) if precise else values)

    def _diag(self, X: Rows) -> Any:
        if self.matrix_ is None or X.shape[1] != 1:
            if X.shape[0] == X.shape[1]:
                return ops_of(X).as_float64(densify(X).diagonal())
            raise ValueError(
                "Precomputed() has no values k(x, x) of new rows, which standard "
                "deviations and probabilities of processes need; use the kernel itself."
            )
        return ops_of(X).as_float64(self.matrix_.diagonal()[_numbers(X)])

    def _values(self, X: Rows) -> Any:
        """Return the rows of the matrix for numbers of rows, or new rows of it."""
        if self.matrix_ is not None and X.shape[1] == 1:
            return self.matrix_[_numbers(X)]
        return densify(X)


def _numbers(X: Rows) -> Any:
    return ops_of(X).to_host(X[:, 0]).astype(np.int64)


def is_precomputed(kernel: Any) -> bool:
    """Return whether a kernel reads values of a kernel in place of rows."""
    if not isinstance(kernel, Kernel):
        return False
    own = [isinstance(leaf, Precomputed) for leaf in kernel.leaves()]
    if any(own) and not all(own):
        raise ValueError(
            f"Precomputed() cannot be combined with a kernel of columns, got {kernel}; "
            "pass the matrix of the whole kernel."
        )
    return any(own)


def numbered_rows(kernel: Kernel, K: Rows) -> Any:
    """Let a resolved kernel hold the matrix of a fit; return numbers of its rows."""
    n = K.shape[0]
    if K.shape[1] != n or n < 2:
        raise ValueError(
            "Precomputed() expects the matrix k(X, X) in fit, of shape (n_samples, "
            f"n_samples) with at least 2 rows, got shape {tuple(K.shape)}."
        )
    for leaf in kernel.leaves():
        assert isinstance(leaf, Precomputed)
        leaf.matrix_ = densify(K)
    return ops_of(K).asarray(np.arange(n, dtype=float)[:, None], K)
