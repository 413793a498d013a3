"""Tabular models: their members, predictions and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from randkern._sklearn import num_samples, safe_indexing
from randkern._validation import is_table
from randkern._warnings import ignoring
from randkern.data import row_blocks, rows_within
from randkern.exceptions import IllConditionedWarning
from randkern.kernels import Kernel, Product, Scaled, Sum
from randkern.models import KernelRidgeClassifier, KernelRidgeRegressor
from randkern.models.dual import exact_gram, factorise_dual, solve_dual
from randkern.solvers import Solution
from randkern.tabular.category_scores import CategoryScores
from randkern.tabular.encoder import TabularEncoder
from randkern.tabular.folds import Folds, fold_codes, predicted_rows
from randkern.tabular.leave_one_out import (
    Loss,
    inverse_of_factor,
    leave_one_out,
    log_squares,
)
from randkern.tabular.search import turned
from randkern.tabular.target_transforms import TRANSFORMS
from randkern.tabular.texts import TextEncoder
from randkern.tabular.work import (
    RATE,
    Stage,
    evaluation_seconds,
    exact_seconds,
    factorising_seconds,
    landmark_seconds,
    largest,
)

_BLOCK_BYTES = 64 * 10**6
# Up to so many rows, all are left out in folds; beyond, only some, one at a time.
MAX_FOLDED = 3000
_FOLDS = 20
# The most rows that are left out in dependent folds.
_MAX_LEFT_OUT = 6000
VALIDATION_ROWS = 1500
# Largest number of rows whose Gram matrix is factorised, and multiplied by: beyond, it
# does not fit in MEMORY_LIMIT in 16 bits, and every product would recompute it.
MAX_FACTORISED = 16_000
MAX_ITERATED = 38_000
_ALWAYS_FACTORISED = 2000
# Operations of conjugate gradients per n²: the Gram matrix and the preconditioner, and
# each iteration.
_PREPARING, _ITERATION = 600.0, 10.0
# The solution of a linear system must leave at most this share of the targets: 2⁻²⁶
# of the matrix may have been added to it, and so of well predicted targets.
_LARGEST_RESIDUAL = 1e-6
MEMORY_LIMIT = "3GB"
# The most iterations, and the fewest for which the exact kernel is worth its matrix.
MAX_ITER, _MIN_ITER = 60, 10
_FEATURES = (500, 8000)
# Factors of lengthscales and penalties for more rows than those of the search.
_SHORTER, _SMALLER = 0.7, 0.4
_MIN_GAIN = 1e-3
# If more than this share of the distinct rows differ only in their targets, equal rows
# are not treated as copies.
_MAX_MIXED = 0.1


@dataclass(frozen=True)
class Table:
    """Rows, with targets (n, k) or codes of labels, and weights.

    Also the labels, if any, and the folds of rows that depend on each other.
    """

    X: Any
    Y: np.ndarray
    weight: np.ndarray
    labels: Any = None
    folds: Folds | None = None

    def __len__(self) -> int:
        return len(self.Y)

    def take(self, rows: np.ndarray) -> Table:
        """Return some of the rows."""
        labels = None if self.labels is None else self.labels[rows]
        folds = None if self.folds is None else self.folds.take(rows)
        X = safe_indexing(self.X, rows)
        return Table(X, self.Y[rows], self.weight[rows], labels, folds)


@dataclass
class ExactRidge:
    """Σ_i a_i k(x, x_i) + c, with leave-one-out residuals and fits without folds.

    `residuals`, (m, k), belong to the rows `judged`. Up to 3,000 rows, `folds` (n,) are
    the folds of rows, at most 20, and `fold_dual` (n, 20, k) and `fold_intercept`
    (20, k) the fits without each fold.
    """

    kernel: Kernel
    alpha: float
    X: np.ndarray
    dual: np.ndarray
    intercept: np.ndarray
    judged: np.ndarray
    residuals: np.ndarray
    folds: np.ndarray | None = None
    fold_dual: np.ndarray | None = None
    fold_intercept: np.ndarray | None = None

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self._products(X, self.dual) + self.intercept

    def predict_folds(self, X: np.ndarray) -> np.ndarray:
        """Return the predictions of the fits without each fold, (n, 20, k)."""
        assert self.fold_dual is not None
        return self._products(X, self.fold_dual) + self.fold_intercept

    def _products(self, X: np.ndarray, dual: np.ndarray) -> np.ndarray:
        out = np.empty((len(X), *dual.shape[1:]))
        for rows in row_blocks(len(X), rows_within(_BLOCK_BYTES, 8 * len(self.X))):
            gram = self.kernel._gram(X[rows], self.X)
            out[rows] = np.tensordot(gram, dual, axes=1)
        return out


@dataclass
class Member:
    """A fit to encoded rows, and its weight in the prediction.

    With a full metric it is fitted to rows times the matrix `turn`.
    """

    weight: float
    encoder: TabularEncoder
    fit: Any
    turn: np.ndarray | None = None

    def rows_of(self, X: Any) -> np.ndarray:
        """Return encoded rows for the fit."""
        return turned(self.encoder.transform(X), self.turn)

    @property
    def kernel(self) -> Kernel:
        return getattr(self.fit, "kernel_", None) or self.fit.kernel

    @property
    def alpha(self) -> float:
        """The penalty of a least-squares fit."""
        searched = hasattr(self.fit, "alpha_")
        return float(self.fit.alpha_ if searched else self.fit.alpha)

    @property
    def n_targets(self) -> int:
        """The number of targets of a regression."""
        exact = isinstance(self.fit, ExactRidge)
        return np.size(self.fit.intercept if exact else self.fit.intercept_)

    def predict(self, X: Any) -> np.ndarray:
        """Return predictions, or class probabilities, (n, k)."""
        rows = self.encoder.transform(X)
        # Large weights of opposite signs leave float32 features an accuracy of 1e-4.
        rows = turned(rows.astype(np.float64, copy=False), self.turn)
        if hasattr(self.fit, "predict_proba"):
            return np.asarray(self.fit.predict_proba(rows))
        return np.asarray(self.fit.predict(rows)).reshape(len(rows), -1)


def normalised(members: list[Member]) -> list[Member]:
    """Return members with weights normalised to sum 1."""
    total = sum(member.weight for member in members)
    return [replace(member, weight=member.weight / total) for member in members]


def fit_ridge(
    kernel: Kernel, alpha: float, encoded: Table, order: np.ndarray
) -> ExactRidge:
    """Fit the exact kernel to encoded rows, and evaluate it on the last in `order`.

    Weights have mean 1. The penalty is increased until the linear system is solved: the
    Gram matrix may be singular to working precision.
    """
    encoded = encoded.take(order)
    fit = fit_tail
    if encoded.folds is not None and (
        encoded.folds.is_forward or len(encoded) > MAX_FOLDED
    ):
        fit = _fit_and_leave_out
    elif len(encoded) <= MAX_FOLDED:
        fit = _fit_folds
    mean = np.average(encoded.Y, axis=0, weights=encoded.weight)
    # A large mean would cost accuracy.
    centred = replace(encoded, Y=encoded.Y - mean)
    with ignoring(IllConditionedWarning):
        while True:
            try:
                found = fit(kernel, alpha, centred)
            except np.linalg.LinAlgError:
                alpha *= 10.0
                continue
            found.intercept = found.intercept + mean
            if found.fold_intercept is not None:
                found.fold_intercept = found.fold_intercept + mean
            return found


def _check_solved(solution: Solution) -> None:
    """Raise if a measured residual is too large."""
    if not solution.residual <= _LARGEST_RESIDUAL:
        raise np.linalg.LinAlgError(f"the residual is {solution.residual:.2g}.")


def fit_tail(kernel: Kernel, alpha: float, encoded: Table) -> ExactRidge:
    """Fit, and leave out the last rows one at a time, at most two thirds of all."""
    n = len(encoded)
    judged = np.arange(max(n - VALIDATION_ROWS, n // 3), n)
    solution, intercept, residuals = solve_dual(
        exact_gram(kernel, encoded.X), encoded.Y, encoded.weight, alpha, True, judged
    )
    _check_solved(solution)
    return ExactRidge(
        kernel, alpha, encoded.X, solution.value, intercept, judged, residuals
    )


def _fit_and_leave_out(kernel: Kernel, alpha: float, encoded: Table) -> ExactRidge:
    """Fit, and leave out folds of the last rows, at most 6,000."""
    fit, n = fit_tail(kernel, alpha, encoded), len(encoded)
    last = np.arange(max(n - _MAX_LEFT_OUT, 0), n)
    some = encoded.take(last)
    found = leave_one_out(kernel, alpha, some.X, some.Y, some.weight, some.folds)
    if found is None:
        raise np.linalg.LinAlgError("the Gram matrix plus its penalty is not positive.")
    judged = last[predicted_rows(some.folds, len(some))]
    return replace(fit, judged=judged, residuals=found)


def _fit_folds(kernel: Kernel, alpha: float, encoded: Table) -> ExactRidge:
    """Also fit without each fold, with P as in `leave_one_out`.

    A fit without the rows S equals the fit to all rows with the residuals
    r = P_SS⁻¹ (PY)_S of that fit subtracted from the targets on S.
    """
    X, Y, weight = encoded.X, encoded.Y, encoded.weight
    n, k = Y.shape
    system, state, solution = factorise_dual(
        exact_gram(kernel, X), Y, weight, alpha, True
    )
    _check_solved(solution)
    dual, intercept = system.weights_of(solution.value)
    intercept = intercept + system.target_mean
    shift = alpha + state.jitter
    P = inverse_of_factor(state.lower_factor())
    # √s is an eigenvector of the matrix, with eigenvalue α.
    half = np.sqrt(system.share / shift)
    P -= np.outer(half, half)
    P *= system.root[:, None] * system.root
    folds = fold_codes(encoded.folds, n, _FOLDS)
    residuals, n_folds = np.empty((n, k)), int(folds.max()) + 1
    fold_dual, fold_intercept = np.empty((n, n_folds, k)), np.empty((n_folds, k))
    for fold in range(n_folds):
        S = np.flatnonzero(folds == fold)
        residuals[S] = r = np.linalg.solve(P[np.ix_(S, S)], dual[S])
        change = P[:, S] @ r
        fold_dual[:, fold] = dual - change
        fold_dual[S, fold] = 0.0
        fold_intercept[fold] = intercept - system.share[S] @ r + system.means @ change
    return ExactRidge(
        kernel,
        alpha,
        X,
        dual,
        intercept,
        judged=np.arange(n),
        residuals=residuals,
        folds=folds,
        fold_dual=fold_dual,
        fold_intercept=fold_intercept,
    )


def adapted(
    kernel: Kernel,
    alpha: float,
    encoded: Table,
    stage: Stage,
    loss: Loss = log_squares,
) -> tuple[Kernel, float]:
    """Return a kernel and its penalty for more rows than it was learned from.

    More rows resolve more detail: all lengthscales are multiplied by one factor and the
    penalty by another, as long as the leave-one-out loss of the last rows decreases and
    the stage is not over.
    """
    seconds = exact_seconds(*encoded.X.shape)
    if encoded.folds is not None:
        n, n_columns = encoded.X.shape
        seconds += evaluation_seconds(n, n_columns, encoded.Y.shape[1])
    fit_some = fit_tail if encoded.folds is None else _fit_and_leave_out

    def error(at: tuple[int, int]) -> float:
        stage.work.charge(seconds)
        fit = fit_some(*_stepped(kernel, alpha, at), encoded)
        judged = encoded.Y[fit.judged]
        weight = encoded.weight[fit.judged]
        return loss(judged - fit.residuals, judged, weight)[0]

    best, done = (0, 0), set()
    with suppress(np.linalg.LinAlgError), ignoring(IllConditionedWarning):
        # An error: the penalty is too small for these rows.
        least = error(best)
        tried = {best}
        while best not in done:
            done.add(best)
            for step in ((1, 0), (0, 1), (-1, 0), (0, -1)):
                at = (best[0] + step[0], best[1] + step[1])
                if at in tried or not stage.fits(seconds):
                    continue
                tried.add(at)
                found = error(at)
                if found < least - _MIN_GAIN:
                    best, least = at, found
    return _stepped(kernel, alpha, best)


def _stepped(kernel: Kernel, alpha: float, at: tuple[int, int]) -> tuple[Kernel, float]:
    """Return a kernel with shorter lengthscales, and a smaller penalty."""
    shorter = clone(kernel)
    for leaf in shorter.leaves():
        if "lengthscale" in leaf.get_params():
            leaf.set_params(lengthscale=leaf.lengthscale * _SHORTER ** at[0])
    return shorter, alpha * _SMALLER ** at[1]


def plan_of(n: int, seconds: float) -> tuple[str, int]:
    """Choose how to fit n rows in about `seconds`, and the number of features.

    The method is ``"factorise"`` or ``"iterate"`` with the exact kernel, or
    ``"features"``.
    """
    if n <= _ALWAYS_FACTORISED:
        return "factorise", 0
    if n <= MAX_FACTORISED and factorising_seconds(n) < seconds:
        return "factorise", 0
    if n <= MAX_ITERATED and iterating_seconds(n, _MIN_ITER) < seconds:
        return "iterate", 0
    return "features", largest(lambda D: landmark_seconds(n, D), seconds, *_FEATURES)


def iterations_within(n: int, seconds: float) -> int:
    """Return the number of iterations of conjugate gradients in about `seconds`."""
    return largest(lambda n_iter: iterating_seconds(n, n_iter), seconds, 1, MAX_ITER)


def iterating_seconds(n: int, n_iter: int) -> float:
    """Return the work of iterations of conjugate gradients with the exact kernel."""
    return (_PREPARING + _ITERATION * n_iter) * n**2 / RATE


def different_rows(
    U: np.ndarray, Y: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the first copy of each row, and the sums of the copies' weights.

    They are sorted, so that neither the order nor the repetition of rows matters; by
    their numbers, because rounding errors of these change the order of bytes. If many
    equal rows of `U` have different targets, and so are not copies, return None.
    """
    both = np.column_stack([U, Y])
    _, rows, copies = np.unique(_bytes_of(both), return_index=True, return_inverse=True)
    _, place, counts = np.unique(
        _bytes_of(U[rows]), return_inverse=True, return_counts=True
    )
    if (counts[place] > 1).mean() > _MAX_MIXED or len(rows) < 2:
        return None
    total = np.bincount(copies.ravel(), weight)  # NumPy 2.0 returns a column
    order = np.lexsort(both[rows].T[::-1])
    return rows[order], total[order]


def are_different(X: Any) -> bool:
    """Return whether no two rows of an array or pandas dataframe are equal.

    That of rows of other tables is not known before they are encoded.
    """
    if not is_table(X):
        return len(np.unique(_bytes_of(X))) == len(X)
    if not hasattr(X, "iloc"):
        return False
    import pandas as pd

    with suppress(TypeError):  # values of several types
        return bool(pd.util.hash_pandas_object(X, index=False).is_unique)
    return False


def _bytes_of(rows: np.ndarray) -> np.ndarray:
    """Return the bytes of each row, which are compared much faster than its numbers."""
    rows = np.ascontiguousarray(rows, dtype=np.float64) + 0.0  # -0.0 equals 0.0
    return rows.view(np.dtype((np.void, 8 * rows.shape[1]))).ravel()


def stopping(stage: Stage) -> Callable[[Any], bool]:
    """Return a callback that stops iterations at the deadline."""
    return lambda _: stage.over


def fit_quietly(model: Any, X: Any, y: Any, weight: Any) -> None:
    """Fit a model without warnings of what is expected of its data."""
    with ignoring(ConvergenceWarning, IllConditionedWarning):
        model.fit(X, y, weight)


# -- code -------------------------------------------------------------------------


def code_of(kernel: Kernel) -> str:
    """Return a Python expression that builds the kernel."""
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
        if name == "lengthscale":
            changed.append(f"{name}={_code_of_numbers(plain)}")
        elif plain != defaults[name]:
            changed.append(f"{name}={plain!r}")
    return f"rk.{type(kernel).__name__}({', '.join(changed)})"


def _code_of_numbers(plain: Any) -> str:
    """Return an expression of a value, in which runs of equal numbers are repeated."""
    if isinstance(plain, list):
        runs = [(value, len(list(equal))) for value, equal in groupby(plain)]
        if 2 * len(runs) <= len(plain):
            values, counts = (list(part) for part in zip(*runs, strict=True))
            return f"np.repeat({values}, {counts})"
    return repr(plain)


def _factor(kernel: Kernel) -> str:
    code = code_of(kernel)
    return f"({code})" if isinstance(kernel, Sum) else code


class TabularModel:
    """The weighted mean of several fits, for rows before encoding.

    `held_out` is the seed of the rows that are not fitted, their number, and how many
    are. `unit` is the divisor of the weights, if rows have any,
    and `temperature` that of the logarithms of a classifier's probabilities. The
    targets of the members are those of the fit, if it has any, after
    `target_transform`; `note` is a comment on them that the code needs, in place of how
    they are held out. Members take rows in which scores replace `texts` and
    stand beside categories.
    """

    # Files of earlier versions do not have these.
    target_transform: str | None = None
    note = ""
    texts: TextEncoder | None = None
    scores: CategoryScores | None = None

    def __init__(
        self,
        members: Sequence[Member],
        held_out: tuple[int, int, int] | None = None,
        *,
        weighted: bool = False,
        unit: float = 1.0,
        temperature: float | None = None,
        target_transform: str | None = None,
        note: str = "",
        texts: TextEncoder | None = None,
        scores: CategoryScores | None = None,
    ):
        self.note, self.texts, self.scores = note, texts, scores
        self.target_transform = target_transform
        self.weighted, self.unit, self.temperature = weighted, unit, temperature
        self.members = list(members)
        self.held_out = held_out

    def with_scores(self, X: Any) -> Any:
        """Return a table with the scores that the members take."""
        if self.texts is not None:
            X = self.texts.transform(X)
        return X if self.scores is None else self.scores.transform(X)

    def predict(self, X: Any) -> np.ndarray:
        """Return the weighted mean of predictions, (n, k)."""
        return np.concatenate([self._predicted(rows) for rows in self.blocks_of(X)])

    def blocks_of(self, X: Any) -> Iterator[Any]:
        """Yield blocks of rows that are small when encoded."""
        width = max(len(member.encoder.columns_) for member in self.members)
        n = max(num_samples(X), 1)  # a table without rows is refused by the encoder
        for rows in row_blocks(n, rows_within(_BLOCK_BYTES, 8 * width)):
            yield safe_indexing(X, rows)

    def _predicted(self, X: Any) -> np.ndarray:
        parts = [member.weight * member.predict(X) for member in self.members]
        return np.sum(parts, axis=0)

    def explain(self) -> str:
        """Return code that fits this model to X and y with public classes.

        The code assigns it to ``model`` and reads weights from ``sample_weight``. That
        of a classifier ends with its calibrated probabilities.
        """
        lines = [
            "import randkern as rk",
            "from sklearn.pipeline import make_pipeline",
        ]
        if self.weighted:
            lines += [
                "import sklearn",
                "sklearn.set_config(enable_metadata_routing=True)",
            ]
        lines += self._score_lines()
        if self.note:
            lines.append(f"# {self.note}")
        elif self.held_out is not None:
            lines += self._split_lines(*self.held_out)
        labels = hasattr(self.members[0].fit, "predict_proba")
        several = len(self.members) > 1
        many = several and not labels and self.members[0].n_targets > 1
        voting = "VotingClassifier" if labels else "VotingRegressor"
        if several:
            lines.append(f"from sklearn.ensemble import {voting}")
        if many:
            lines.append("from sklearn.multioutput import MultiOutputRegressor")
        names = []
        for at, member in enumerate(self.members, start=1):
            names.append(f"model_{at}" if several else "model")
            lines += self._member_lines(member, names[-1])
        if several:
            pairs = ", ".join(f"({name!r}, {name})" for name in names)
            weights = [float(member.weight) for member in self.members]
            how = ", voting='soft'" if labels else ""
            code = f"{voting}([{pairs}], weights={weights}{how})"
            lines.append(f"model = {f'MultiOutputRegressor({code})' if many else code}")
        if self.target_transform is not None:
            transform = TRANSFORMS[self.target_transform]
            function, inverse = transform.function, transform.inverse
            lines += [
                "import numpy as np",
                "from sklearn.compose import TransformedTargetRegressor",
                "model = TransformedTargetRegressor("
                f"model, func=np.{function.__name__}, "
                f"inverse_func=np.{inverse.__name__})",
            ]
        weight_code = ", sample_weight=sample_weight" if self.weighted else ""
        lines.append(f"model.fit(X, y{weight_code})")
        lines += [*self._precision_lines(many), *self._temperature_lines()]
        if self.temperature is not None:
            divisor = float(self.temperature)
            lines += [
                "import numpy as np",
                "from scipy.special import softmax",
                "logits = np.log(np.clip(model.predict_proba(X), 1e-15, None))",
                f"probabilities = softmax(logits / {divisor!r}, axis=1)",
            ]
        return "\n".join(lines)

    def _score_lines(self) -> Iterator[str]:
        """Yield lines that add the columns of scores to X."""
        encoders = {"texts": self.texts, "scores": self.scores}
        if any(encoder is not None for encoder in encoders.values()):
            yield "import numpy as np"
        for name, encoder in encoders.items():
            if encoder is not None:
                kind, labels = type(encoder), ", classes=True" * encoder.classes
                yield f"from {kind.__module__} import {kind.__name__}"
                yield f"{name} = {kind.__name__}({list(encoder.columns)}{labels})"
                yield f"X = {name}.fit_transform(X, {self._fitted_targets()})"
                yield f"# For predictions: {name}.transform(X)"

    def _fitted_targets(self) -> str:
        """Return the code of the targets of members, and of their weights."""
        y = "y"
        if self.target_transform is not None:
            y = f"np.{TRANSFORMS[self.target_transform].function.__name__}(y)"
        return f"{y}, sample_weight" if self.weighted else y

    def _precision_lines(self, many: bool) -> Iterator[str]:
        """Yield lines that make a single-precision fit predict in double precision."""
        if all(member.encoder.dtype == "float64" for member in self.members):
            return
        change = "[0].set_params(dtype='float64')  # for predictions"
        model = "model" if self.target_transform is None else "model.regressor_"
        if len(self.members) == 1:
            yield f"{model}{change}"
            return
        fitted = f"{model}.estimators_"
        if many:
            fitted = f"[each for part in {fitted} for each in part.estimators_]"
        yield f"for fitted in {fitted}:"
        yield f"    fitted{change}"

    def _temperature_lines(self) -> Iterator[str]:
        """Yield lines that set temperatures of least squares, from rows left out."""
        for at, member in enumerate(self.members):
            offset = getattr(member.fit, "calibration_offset_", None)
            if offset is None or np.any(offset) or hasattr(member.fit, "cells_"):
                continue
            place = (
                f"model.estimators_[{at}][-1]" if len(self.members) > 1 else "model[-1]"
            )
            yield f"{place}.temperature_ = {float(member.fit.temperature_)!r}"
            yield f"{place}.calibration_offset_ *= 0.0"

    def _split_lines(self, seed: int, n_apart: int, _: int) -> Iterator[str]:
        yield "from sklearn.model_selection import train_test_split"
        names = ["X", "y", *["sample_weight"] * self.weighted]
        parts = ", _, ".join(names) + ", _"
        yield (
            f"{parts} = train_test_split({', '.join(names)}, test_size={n_apart}, "
            f"random_state={seed})"
        )

    @staticmethod
    def _encoder_code(member: Member) -> str:
        encoder = member.encoder
        changed = {"numbers": encoder.numbers, "dtype": encoder.dtype}
        usual = {"numbers": "standard", "dtype": "float64"}
        options = [f"{k}={v!r}" for k, v in changed.items() if v != usual[k]]
        return f"rk.TabularEncoder({', '.join(options)})"

    def _member_lines(self, member: Member, name: str) -> Iterator[str]:
        fit, kernel = member.fit, code_of(member.kernel)
        if "np." in kernel:
            yield "import numpy as np"
        yield f"kernel = {kernel}"
        options: dict[str, Any] = {}
        searched = hasattr(fit, "alphas")
        if searched:
            # The penalty of landmarks only: with a small one, other solvers differ.
            alphas = [float(member.alpha * self.unit)]
            options |= {"alphas": alphas, "fit_intercept": True}
        elif hasattr(fit, "alpha"):
            options |= {"alpha": member.alpha * self.unit, "fit_intercept": True}
        else:
            options |= {
                "C": float(fit.C / self.unit),
                "tol": fit.tol,
                "max_iter": fit.max_iter,
                "fit_intercept": fit.fit_intercept,
            }
        options["n_components"] = getattr(fit, "n_components", None)
        if not isinstance(fit, ExactRidge):
            options["random_state"] = fit.random_state
            options["memory_limit"] = MEMORY_LIMIT
        elif len(fit.X) > _ALWAYS_FACTORISED:
            options |= {"solver": "cholesky", "memory_limit": "6GB"}
        if not searched and isinstance(
            fit, (KernelRidgeRegressor, KernelRidgeClassifier)
        ):
            options["solver"] = fit.solver
        if getattr(fit, "features", "random") != "random":
            options["features"] = fit.features
        text = ", ".join(f"{key}={value!r}" for key, value in options.items())
        text = text.replace("solver=PCG", "solver=rk.solvers.PCG")
        encoder = self._encoder_code(member)
        is_exact = isinstance(fit, ExactRidge)
        name_of_class = "KernelRidgeRegressor" if is_exact else type(fit).__name__
        model = f"rk.{name_of_class}(kernel, {text})"
        if self.weighted:
            request = ".set_fit_request(sample_weight=True)"
            model += request
            encoder += request
        if member.turn is not None:
            yield "import numpy as np"
            yield "from sklearn.preprocessing import FunctionTransformer"
            turn = f"{member.turn.tolist()}, dtype={member.encoder.dtype!r}"
            yield f"turn = np.array({turn})"
            encoder += ", FunctionTransformer(np.dot, kw_args={'b': turn})"
        yield f"{name} = make_pipeline({encoder}, {model})"
