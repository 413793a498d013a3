"""The model that a search has chosen: its parts, what they predict, and how sure."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from randkern.data import row_blocks, rows_within
from randkern.kernels import Kernel, Product, Scaled, Sum
from randkern.models import KernelRidgeRegressor
from randkern.models.dual import exact_gram
from randkern.solvers import PCG
from randkern.tabular.encoder import TabularEncoder
from randkern.tabular.search import inverse

__all__ = ["ExactRidge", "Member", "TabularModel", "code_of", "fit_ridge", "plan_of"]

_BLOCK_BYTES = 64 * 10**6
# Rows up to which all are left out, in folds; beyond, so many one at a time.
MOST_FOLDED = 3000
_FOLDS = 20
# Rows that an intercept is the mean of.
_INTERCEPT_ROWS = 500
JUDGED_ROWS = 1500
# Rows whose Gram matrix is factorised, and rows up to which its products are taken.
MOST_FACTORISED = 16_000
MOST_ITERATED = 60_000
_ALWAYS_FACTORISED = 2000
_TIMED_ROWS = 1500
# Operations per n³, per n² and, for features, the share of those of a product.
_FACTORISING = 0.4
_ITERATING = 1200.0
_FEATURES_SHARE = 0.3
MEMORY_LIMIT = "3GB"
SOLVER = PCG(max_iter=60)
_FEATURES = (500, 8000)


@dataclass
class ExactRidge:
    """Σ_i a_i k(x, x_i) + c, the residuals of rows left out, and the fits without them.

    `residuals` are of the rows `judged`. Up to 3,000 rows `fold_dual` (n, 20) and
    `fold_intercept` (20,) are the fits without a fold each.
    """

    kernel: Kernel
    alpha: float
    X: np.ndarray
    dual: np.ndarray
    intercept: np.ndarray
    judged: np.ndarray
    residuals: np.ndarray
    fold_dual: np.ndarray | None = None
    fold_intercept: np.ndarray | None = None

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self._products(X, self.dual) + self.intercept

    def predict_folds(self, X: np.ndarray) -> np.ndarray:
        """Return the predictions of the fits without a fold, (n, 20)."""
        assert self.fold_dual is not None
        return self._products(X, self.fold_dual) + self.fold_intercept

    def _products(self, X: np.ndarray, dual: np.ndarray) -> np.ndarray:
        out = np.empty((len(X), dual.shape[1]))
        for rows in row_blocks(len(X), rows_within(_BLOCK_BYTES, 8 * len(self.X))):
            out[rows] = self.kernel._gram(X[rows], self.X) @ dual
        return out


@dataclass
class Member:
    """A fit to encoded rows, and its share of the prediction."""

    weight: float
    encoder: TabularEncoder
    fit: Any

    @property
    def kernel(self) -> Kernel:
        return getattr(self.fit, "kernel_", None) or self.fit.kernel

    def predict(self, X: Any) -> np.ndarray:
        """Return predictions, or the probabilities of classes, (n, k)."""
        return self.predict_encoded(self.encoder.transform(X))

    def predict_encoded(self, rows: np.ndarray) -> np.ndarray:
        """Return what `predict` does, of encoded rows."""
        if hasattr(self.fit, "predict_proba"):
            return np.asarray(self.fit.predict_proba(rows))
        return np.asarray(self.fit.predict(rows)).reshape(len(rows), -1)


def folds_of(n: int) -> np.ndarray:
    """Return which fold each of n rows is in; rows are taken to be in random order."""
    return np.arange(n) % min(_FOLDS, n)


def fit_ridge(
    kernel: Kernel, alpha: float, X: np.ndarray, y: np.ndarray, order: np.ndarray
) -> ExactRidge:
    """Fit the exact kernel to all rows, and judge it by some, the last in `order`.

    The penalty grows until the matrix is positive to rounding.
    """
    fit = _fit_folds if len(X) <= MOST_FOLDED else _fit_tail
    while True:
        try:
            return fit(kernel, alpha, X, y, order)
        except np.linalg.LinAlgError:
            alpha *= 10.0


def _fit_tail(
    kernel: Kernel, alpha: float, X: np.ndarray, y: np.ndarray, order: np.ndarray
) -> ExactRidge:
    """Leave out the last rows one at a time."""
    X, y = X[order], y[order]
    n, first = len(X), len(X) - JUDGED_ROWS
    gram = exact_gram(kernel, X)
    gram.flat[:: n + 1] += alpha
    factor = scipy.linalg.cholesky(
        gram.T, lower=True, overwrite_a=True, check_finite=False
    )
    right = np.stack([y, np.ones(n)], axis=1)
    dual, sums = scipy.linalg.cho_solve((factor, True), right, check_finite=False).T
    intercept = dual.sum() / sums.sum()
    dual = (dual - intercept * sums)[:, None]
    intercept = _intercepts(kernel, alpha, X, y, dual, np.zeros((n, 1), bool))
    # The last block of the factor is that of the Schur complement, whose inverse is a
    # block of the inverse.
    tail = scipy.linalg.cho_solve((factor[first:, first:], True), np.eye(n - first))
    diagonal = tail.diagonal() - sums[first:] ** 2 / sums.sum()
    return ExactRidge(
        *(kernel, alpha, X, dual, intercept),
        judged=order[first:],
        residuals=dual[first:, 0] / diagonal,
    )


def _intercepts(
    kernel: Kernel,
    alpha: float,
    X: np.ndarray,
    y: np.ndarray,
    dual: np.ndarray,
    left_out: np.ndarray,
) -> np.ndarray:
    """Return the intercept of each column of `dual`, (m,).

    In a fit, y_i − (Ka)_i − αa_i is the intercept for each of its rows i. This loses
    less to rounding than what solving gives where α is small.
    """
    sample = slice(None, None, max(len(X) // _INTERCEPT_ROWS, 1))
    fitted = kernel._gram(X[sample], X) @ dual + alpha * dual[sample]
    left = y[sample, None] - fitted
    return np.ma.masked_array(left, left_out[sample]).mean(axis=0).filled(0.0)


def _fit_folds(
    kernel: Kernel, alpha: float, X: np.ndarray, y: np.ndarray, order: np.ndarray
) -> ExactRidge:
    """Also make the fits without a fold each: with P as in `search`.

    A fit without the rows S is that to targets from which on S the residuals r of this
    fit are subtracted, r = P_SS⁻¹ (Py)_S.
    """
    n = len(X)
    P = inverse(np.array(kernel._gram(X, None)), alpha)
    if P is None:
        raise np.linalg.LinAlgError(f"the Gram matrix plus {alpha} is not positive.")
    dual = P @ y
    folds = np.empty(n, dtype=int)
    folds[order] = folds_of(n)
    residuals = np.empty(n)
    n_folds = int(folds.max()) + 1
    fold_dual = np.empty((n, n_folds))
    for fold in range(n_folds):
        S = np.flatnonzero(folds == fold)
        r = np.linalg.solve(P[np.ix_(S, S)], dual[S])
        residuals[S] = r
        fold_dual[:, fold] = dual - P[:, S] @ r
        fold_dual[S, fold] = 0.0
    duals = np.column_stack([dual, fold_dual])
    left_out = folds[:, None] == np.arange(-1, n_folds)
    intercepts = _intercepts(kernel, alpha, X, y, duals, left_out)
    return ExactRidge(
        *(kernel, alpha, X, dual[:, None], intercepts[:1]),
        judged=np.arange(n),
        residuals=residuals,
        fold_dual=fold_dual,
        fold_intercept=intercepts[1:],
    )


def plan_of(n: int, seconds: float) -> tuple[str, int]:
    """Return how to fit n rows in about some seconds, and with how many features.

    ``"factorise"`` or ``"iterate"`` with the exact kernel, or ``"features"``.
    """
    if n <= _ALWAYS_FACTORISED:
        return "factorise", 0
    if n <= MOST_FACTORISED and factorising_seconds(n) < 2 * seconds:
        return "factorise", 0
    rate = _operations_per_second()
    if n <= MOST_ITERATED and _ITERATING * n**2 / rate < 3 * seconds:
        return "iterate", 0
    least, most = _FEATURES
    D = math.sqrt(_FEATURES_SHARE * seconds * rate / n)
    return "features", int(min(max(D, least), most))


def factorising_seconds(n: int) -> float:
    """Return about how long the exact fit to n rows takes."""
    return _FACTORISING * n**3 / _operations_per_second()


def factorised_rows(seconds: float) -> int:
    """Return how many rows can be fitted exactly in about some seconds."""
    n = int((seconds * _operations_per_second() / _FACTORISING) ** (1 / 3))
    return min(max(n, _ALWAYS_FACTORISED), MOST_FACTORISED)


def _operations_per_second() -> float:
    """Return how fast a matrix is factorised."""
    n, seconds = _TIMED_ROWS, math.inf
    for _ in range(3):
        matrix = np.eye(n) + 1e-6
        began = time.perf_counter()
        scipy.linalg.cholesky(matrix, overwrite_a=True, check_finite=False)
        seconds = min(seconds, time.perf_counter() - began)
    return n**3 / 3 / max(seconds, 1e-6)


# -- code -------------------------------------------------------------------------


def code_of(kernel: Kernel) -> str:
    """Return an expression that makes an equal kernel."""
    if isinstance(kernel, Scaled):
        return f"{float(kernel.scale)!r} * {_factor(kernel.kernel)}"
    if isinstance(kernel, Sum):
        return f"{code_of(kernel.k1)} + {code_of(kernel.k2)}"
    if isinstance(kernel, Product):
        return f"{_factor(kernel.k1)} * {_factor(kernel.k2)}"
    changed = []
    defaults = type(kernel)().get_params(deep=False)
    for name, value in kernel.get_params(deep=False).items():
        plain = value.tolist() if isinstance(value, np.ndarray) else value
        if isinstance(plain, np.generic):
            plain = plain.item()
        if name == "lengthscale" or plain != defaults[name]:
            changed.append(f"{name}={plain!r}")
    return f"rk.{type(kernel).__name__}({', '.join(changed)})"


def _factor(kernel: Kernel) -> str:
    code = code_of(kernel)
    return f"({code})" if isinstance(kernel, Sum) else code


class TabularModel:
    """The weighted mean of some fits, for rows as they come.

    Attributes
    ----------
    members : list of Member
    estimator : str
        The class of the library that fits one of them.
    held_out : tuple of (int, int, int) or None
        The seed that draws rows which judge the fit, how many they are, and how many
        of the others are fitted.
    """

    def __init__(
        self,
        members: Sequence[Member],
        estimator: str,
        held_out: tuple[int, int, int] | None = None,
    ):
        self.members = list(members)
        self.estimator = estimator
        self.held_out = held_out

    def predict(self, X: Any) -> np.ndarray:
        """Return the weighted mean of predictions, (n, k)."""
        parts = [member.weight * member.predict(X) for member in self.members]
        return np.sum(parts, axis=0)

    def explain(self) -> str:
        """Return lines of code of public parts that make this model from X and y.

        They leave it in the variable ``model``.
        """
        lines = [
            "import randkern as rk",
            "from sklearn.pipeline import make_pipeline",
        ]
        if self.held_out is not None:
            lines += self._split_lines(*self.held_out)
        voting = "VotingClassifier" if "Log" in self.estimator else "VotingRegressor"
        if len(self.members) > 1:
            lines.append(f"from sklearn.ensemble import {voting}")
        names = []
        for at, member in enumerate(self.members, start=1):
            names.append("model" if len(self.members) == 1 else f"model_{at}")
            lines += self._member_lines(member, names[-1])
        if len(self.members) > 1:
            pairs = ", ".join(f"({name!r}, {name})" for name in names)
            weights = [float(member.weight) for member in self.members]
            how = ", voting='soft'" if voting == "VotingClassifier" else ""
            lines.append(f"model = {voting}([{pairs}], weights={weights}{how})")
        lines.append("model.fit(X, y)")
        return "\n".join(lines)

    def _split_lines(self, seed: int, n_apart: int, n: int) -> Iterator[str]:
        yield "from sklearn.model_selection import train_test_split"
        split = "X, _, y, _ = train_test_split(X, y, "
        yield f"{split}test_size={n_apart}, random_state={seed})"
        if isinstance(self.members[0].fit, ExactRidge):
            # The columns are encoded by more rows than are fitted.
            yield "from sklearn.frozen import FrozenEstimator"
            yield f"encoder = {self._encoder_code(self.members[0])}.fit(X)"
            yield f"X, y = X[:{n}], y[:{n}]"

    @staticmethod
    def _encoder_code(member: Member) -> str:
        encoder = member.encoder
        changed = {"numbers": encoder.numbers, "dtype": encoder.dtype}
        usual = {"numbers": "standard", "dtype": "float64"}
        options = [f"{k}={v!r}" for k, v in changed.items() if v != usual[k]]
        return f"rk.TabularEncoder({', '.join(options)})"

    def _member_lines(self, member: Member, name: str) -> Iterator[str]:
        fit = member.fit
        yield f"kernel = {code_of(member.kernel)}"
        options: dict[str, Any] = {}
        if isinstance(fit, (ExactRidge, KernelRidgeRegressor)):
            options["alpha"] = float(fit.alpha)
            options["fit_intercept"] = True
        else:
            options |= {"C": float(fit.C), "tol": fit.tol}
        options["n_components"] = getattr(fit, "n_components", None)
        if not isinstance(fit, ExactRidge):
            options["random_state"] = fit.random_state
            options["memory_limit"] = MEMORY_LIMIT
        elif len(fit.X) > _ALWAYS_FACTORISED:
            options |= {"solver": "cholesky", "memory_limit": "6GB"}
        if isinstance(getattr(fit, "solver", None), PCG):
            options["solver"] = fit.solver
        text = ", ".join(f"{key}={value!r}" for key, value in options.items())
        text = text.replace("solver=PCG", "solver=rk.solvers.PCG")
        encoder = self._encoder_code(member)
        if self.held_out is not None and isinstance(fit, ExactRidge):
            encoder = "FrozenEstimator(encoder)"
        yield (
            f"{name} = make_pipeline({encoder}, rk.{self.estimator}(kernel, {text}))"
        )

    def importances(self, n_columns: int, samples: dict[str, np.ndarray]) -> np.ndarray:
        """Return the total-effect index of each column, as shares of their sum.

        It is E[(f(x) − f(x'))²]/2, where x' is x but for the column, which is another
        row's (Jansen 1999, "Analysis of variance designs for model output").

        Parameters
        ----------
        n_columns : int
        samples : dict of arrays
            Encoded rows in a random order, by how encoders scale numbers.
        """
        changes: Any = 0.0
        for member in self.members:
            rows = samples[member.encoder.numbers].astype(member.encoder.dtype)
            others = np.roll(rows, len(rows) // 2, axis=0)
            moved = [
                member.predict_encoded(
                    np.where(member.encoder.columns_ == j, others, rows)
                )
                for j in range(n_columns)
            ]
            changes += member.weight * (np.stack(moved) - member.predict_encoded(rows))
        total = (changes**2).sum(axis=(1, 2))
        if total.sum() > 0:
            return total / total.sum()
        return np.full(n_columns, 1 / n_columns)
