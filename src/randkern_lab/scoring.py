"""How all experiments fit, time, predict and score a model."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import randkern
from randkern.solvers import PCG

from .process import Lap, Stopwatch

TOL = 1e-4  # of conjugate gradients


def misclassified(y: NDArray[Any], predicted: NDArray[Any]) -> float:
    """Return the share of wrong labels."""
    return float(np.mean(predicted != y))


def class_targets(y: NDArray[Any], classes: NDArray[Any]) -> NDArray[Any]:
    """Return a column per class: 1 for its rows, −1 for the others."""
    return np.where(y[:, None] == classes, 1.0, -1.0)


class Trial(NamedTuple):
    """The score of test rows, usually an error, and the times to fit and predict."""

    score: float
    fit: Lap
    predict: Lap

    def record(self) -> dict[str, float]:
        """Return an error and the seconds under their usual names."""
        return {
            "test_error": self.score,
            "fit_seconds": self.fit.seconds,
            "predict_seconds": self.predict.seconds,
        }


def fit_and_score(
    model: Any,
    X: Any,
    y: Any,
    X_test: Any,
    y_test: NDArray[Any],
    score: Callable[[Any, Any], float] = misclassified,
) -> Trial:
    """Fit a model, predict test rows, and compare.

    `X_test` is an array, or an iterable of blocks of rows.
    """
    watch = Stopwatch()
    model.fit(X, y)
    fit = watch.lap()
    blocks: Iterable[Any] = [X_test] if hasattr(X_test, "shape") else X_test
    predicted = np.concatenate([model.predict(block) for block in blocks])
    predict = watch.lap()
    return Trial(score(y_test, predicted), fit, predict)


def iterated_ridge(
    kernel: Any, alpha: float, size: int | None, *rows: Any, limit: Any, seed: int
) -> dict[str, Any]:
    """Fit and score a ridge classifier that is solved by conjugate gradients.

    `rows` are those of :func:`fit_and_score`; `limit` is its memory's.
    """
    model = randkern.KernelRidgeClassifier(
        kernel,
        alpha,
        size,
        solver=PCG(tol=TOL, max_iter=2000),
        memory_limit=limit,
        random_state=seed,
    )
    trial = fit_and_score(model, *rows)
    X, y, *_ = rows
    n = X.n_rows if y is None else len(y)
    return {"n_train": n, **trial.record(), **ended(model.solution_)}


def ended(solution: Any) -> dict[str, Any]:
    """Return how the solve of a linear system ended."""
    return {
        "solver_iterations": int(solution.iterations),
        "residual": float(np.max(solution.residual)),
        "outcome": solution.outcome.name.lower(),
    }


def held_out_error(
    kernel: Any,
    alphas: Sequence[float],
    n_components: int | None,
    X: Any,
    y: Any,
    n_held_out: int,
) -> tuple[float, float]:
    """Return the least error of ridge on the first rows, and its penalty.

    The other rows are fitted.
    """
    held_out, fitted = np.split(np.arange(len(y)), [n_held_out])
    model = randkern.KernelRidgeClassifierCV(
        kernel,
        alphas,
        n_components=n_components,
        scoring="accuracy",
        cv=[(fitted, held_out)],
        fit_intercept=True,
        random_state=0,
    ).fit(X, y)
    return float(1 - model.best_score_), float(model.alpha_)


def random_rows(n: int, max_rows: int, seed: int) -> NDArray[np.intp]:
    """Return the sorted positions of at most `max_rows` of n rows, drawn at random."""
    return np.sort(np.random.default_rng(seed).permutation(n)[:max_rows])
