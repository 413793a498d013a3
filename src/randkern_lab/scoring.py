"""How all experiments fit, time, predict and score a model."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import randkern

from .process import Lap, Stopwatch


def misclassified(y: NDArray[Any], predicted: NDArray[Any]) -> float:
    """Return the share of wrong labels."""
    return float(np.mean(predicted != y))


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
    held_out: NDArray[np.intp],
    seed: int = 0,
) -> tuple[float, float]:
    """Return the least error of ridge on held-out rows, and its penalty.

    `held_out` are positions of rows; the other rows are fitted.
    """
    fitted = np.setdiff1d(np.arange(len(y)), held_out)
    model = randkern.KernelRidgeClassifierCV(
        kernel,
        alphas,
        n_components=n_components,
        scoring="accuracy",
        cv=[(fitted, held_out)],
        fit_intercept=True,
        random_state=seed,
    ).fit(X, y)
    return float(1 - model.best_score_), float(model.alpha_)


def random_rows(n: int, max_rows: int, seed: int) -> NDArray[np.intp]:
    """Return the sorted positions of at most `max_rows` of n rows, drawn at random."""
    return np.sort(np.random.default_rng(seed).permutation(n)[:max_rows])
