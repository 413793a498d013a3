"""Selects hyperparameters on validation rows.

Penalties are scored as the models that choose their own do: one eigendecomposition per
kernel setting gives the errors at every penalty (:mod:`randkern.models.alpha_search`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import randkern
from randkern.data.training_data import ArrayRows
from randkern.models.alpha_search import DualSearch, PrimalSearch, squared_error
from randkern.study.kernel_choices import KernelChoice, capped
from randkern.study.splitting import Splitting

# Up to this many training rows, settings are evaluated with the exact kernel; beyond,
# with a number of features whose decomposition takes seconds.
MAX_EXACT_ROWS = 5_000
N_FEATURES = 2_000
# Rows per split: (training, validation).
EXACT_ROWS = (2_000, 2_000)
FEATURE_ROWS = (10_000, 2_000)
# With fewer rows, a single split is too noisy: cross-validate.
MIN_SINGLE_SPLIT_ROWS = 1_000
N_FOLDS = 5
# Losses up to this multiple of the smallest are treated as equal to it.
TOLERANCE = 1.02

_MAX_EXPONENT = 6.0
_BIAS_MULTIPLES = (0.0, 0.25, 1.0, 4.0)
# Relative to the mean of the kernel's diagonal.
_ALPHAS = np.logspace(-6, 2, 17)

Task = Literal["classification", "regression"]
Split = tuple[NDArray[np.intp], NDArray[np.intp]]


@dataclass(frozen=True)
class Selection:
    """The hyperparameters chosen for a kernel, and the trials.

    `value` is the lengthscale or bias, None if the kernel has neither. The loss is the
    mean squared error on the held-out rows, with targets ±1 in classification;
    `n_training_rows` are those of a split, `n_validation_rows` all that were averaged
    over. `evaluator` says how settings were evaluated: by the exact kernel, or a number
    of features. `tried` has the ``value`` of every setting, its best ``alpha`` and the
    ``validation_loss`` there.
    """

    value: float | None
    alpha: float
    validation_loss: float
    n_training_rows: int
    n_validation_rows: int
    evaluator: str
    tried: list[dict[str, float | None]]


def select_hyperparameters(
    choice: KernelChoice,
    X: NDArray[Any],
    y: NDArray[Any],
    *,
    task: Task,
    alpha: float | None = None,
    splitting: Splitting | None = None,
) -> Selection:
    """Choose a kernel's open hyperparameter and the ridge penalty on held-out rows.

    The loss is the squared error on held-out rows, with targets ±1 in classification:
    ridge regression minimises it, and it varies smoothly where the number of mistakes
    jumps. Up to 5,000 rows, kernels are evaluated by exact kernel ridge on at most
    2,000 training and 2,000 validation rows, or, with fewer than 1,000 rows, by 5-fold
    cross-validation on all of them.

    Beyond 5,000 rows, the lengthscale or bias is evaluated with 2,000 random features
    on at most 10,000 and 2,000 rows: a model of many rows is limited by its features,
    for which the lengthscale that suits the exact kernel on few rows is too short. The
    penalty is still chosen by the exact kernel on the smaller split: it represents the
    noise of the data, whereas a penalty chosen for 2,000 features would also compensate
    for missing features.

    Lengthscales are searched at ``lengthscale="scale"`` times ½, 1 and 2, further while
    the best is the last on its side, then at √2 to either side of the best, and finally
    at the vertex of the parabola through the three best (log of the loss against log of
    the lengthscale). The optical bias is 0, ¼, 1 or 4 times the mean squared norm.
    Penalties are 10⁻⁶ to 10² times the mean of the kernel's diagonal.

    The lengthscale with the smallest loss is chosen. Otherwise, losses within 2 % of
    the smallest are treated as equal to it, and among them the smallest bias is chosen
    (a bias adds a constant to the kernel, and proportional noise to the features), then
    the largest penalty: a flat curve ends at the better conditioned system, which also
    needs fewer features.

    The penalty is in the units of ‖Y - f‖² + α‖f‖², not divided by the number of rows,
    and is kept when the model is refitted on more rows: the ratio of noise variance to
    signal variance that it represents does not depend on n.

    `X` are training rows, (n, d), without test rows, and `y` labels or numeric targets;
    with `alpha` only the kernel's hyperparameter is chosen. Rows are held out as
    `splitting` says, at random by default. Raises a ValueError for
    fewer than 4 rows.
    """
    splitting = splitting or Splitting()
    exact = evaluator = _Evaluator(choice, X, y, task, alpha, splitting, None)
    if len(X) > MAX_EXACT_ROWS:
        evaluator = _Evaluator(choice, X, y, task, alpha, splitting, N_FEATURES)
    value: float | None = None
    if choice.opens == "lengthscale":
        value = _search_lengthscale(evaluator.smallest, choice.reference(X))
    elif choice.opens == "bias":
        reference = choice.reference(X)
        biases = [multiple * reference for multiple in _BIAS_MULTIPLES]
        enough = TOLERANCE * min(map(evaluator.smallest, biases))
        value = next(bias for bias in biases if evaluator.smallest(bias) <= enough)
    evaluator.losses(value)
    alphas, losses = exact.losses(value)
    penalty = np.flatnonzero(losses <= TOLERANCE * losses.min())[-1]
    return Selection(
        value=value,
        alpha=float(alphas[penalty]),
        validation_loss=float(losses[penalty]),
        n_training_rows=len(evaluator.splits[0][0]),
        n_validation_rows=evaluator.n_validation_rows,
        evaluator=evaluator.name,
        tried=[
            {
                "value": setting,
                "alpha": float(alphas[losses.argmin()]),
                "validation_loss": float(losses.min()),
            }
            for setting, (alphas, losses) in evaluator.tried.items()
        ],
    )


class _Evaluator:
    """Losses of a kernel on validation rows, by the exact kernel or by features."""

    def __init__(
        self,
        choice: KernelChoice,
        X: NDArray[Any],
        y: NDArray[Any],
        task: Task,
        alpha: float | None,
        splitting: Splitting,
        n_features: int | None,
    ) -> None:
        self.choice = choice
        self.alpha = alpha
        if task == "classification":
            targets = 2.0 * (y[:, None] == np.unique(y)) - 1.0
        else:
            targets = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        exact = n_features is None
        self.name = "the exact kernel" if exact else f"{n_features} random features"
        self.size = n_features and capped(n_features, choice.build(1.0), X.shape[1])
        most = EXACT_ROWS if exact else FEATURE_ROWS
        splits = _validation_splits(y, task, most, splitting)
        self.n_validation_rows = sum(len(held_out) for _, held_out in splits)
        used = np.unique(np.concatenate([part for split in splits for part in split]))
        self.rows = ArrayRows(X[used], targets[used])
        # The rows of splits among those that are used.
        self.splits = [
            (np.searchsorted(used, training), np.searchsorted(used, held_out))
            for training, held_out in splits
        ]
        # Ascending penalties, and the mean loss at each, by the open hyperparameter.
        self.tried: dict[float | None, tuple[NDArray[Any], NDArray[Any]]] = {}

    def smallest(self, value: float | None) -> float:
        """Return the loss at the best penalty."""
        return float(self.losses(value)[1].min())

    def losses(self, value: float | None) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return penalties and the mean squared errors over all splits."""
        if value in self.tried:
            return self.tried[value]
        kernel = self.choice.build(value)
        alphas = np.array([self.alpha])
        if self.alpha is None:
            diagonal = float(np.mean(kernel.diag(self.rows.X[self.splits[0][0]])))
            alphas = _ALPHAS * (diagonal if diagonal > 0 else 1.0)
        total = np.zeros(len(alphas))
        predicted = self._search(kernel, alphas).held_out(self.splits)
        for (_, held_out), predictions in zip(self.splits, predicted, strict=True):
            error = -squared_error(predictions, self.rows.Y[held_out], None)
            total += len(held_out) * error
        self.tried[value] = alphas, total / self.n_validation_rows
        return self.tried[value]

    def _search(
        self, kernel: Any, alphas: NDArray[np.float64]
    ) -> DualSearch | PrimalSearch:
        rows = self.rows
        if self.size is None:
            gram = kernel(rows.X).astype(np.float64)
            return DualSearch(gram, rows, alphas, fit_intercept=True)
        training = rows.X[self.splits[0][0]]
        features = randkern.RandomFeatures(kernel, self.size, random_state=0)
        plan = features.fit(training).plan_
        return PrimalSearch(plan, rows, alphas, fit_intercept=True, spare=0)


def _search_lengthscale(smallest: Callable[[float], float], reference: float) -> float:
    """Walk a grid of powers of two to an inner minimum, then refine it twice."""

    def loss(exponent: float) -> float:
        lengthscale = smallest(reference * 2.0**exponent)
        return float(np.log(max(lengthscale, np.finfo(float).tiny)))

    exponents = [-1.0, 0.0, 1.0]
    best = min(exponents, key=loss)
    while best in (exponents[0], exponents[-1]) and abs(best) < _MAX_EXPONENT:
        if best == exponents[0]:
            exponents.insert(0, best - 1.0)
        else:
            exponents.append(best + 1.0)
        best = min(exponents, key=loss)
    best = min((best, best - 0.5, best + 0.5), key=loss)
    left = loss(best - 0.5)
    middle = loss(best)
    right = loss(best + 0.5)
    curvature = left - 2 * middle + right
    if curvature > 0:
        # At most half a step away, as the middle is the lowest of the three.
        vertex = best + np.clip(0.25 * (left - right) / curvature, -0.25, 0.25)
        best = min((best, float(vertex)), key=loss)
    return reference * 2.0**best


def _validation_splits(
    y: NDArray[Any], task: Task, most: tuple[int, int], splitting: Splitting
) -> list[Split]:
    """Return one split of at most `most` rows, or the folds of few rows."""
    n = len(y)
    if n < 4:
        raise ValueError(
            f"{n} training rows are too few to choose hyperparameters on; "
            "expected at least 4"
        )
    if n < MIN_SINGLE_SPLIT_ROWS:
        return splitting.folds(y, task, min(N_FOLDS, n // 2), 0)
    n_held_out = min(n // 4, most[1])
    n_training = min(n - n_held_out, most[0])
    training, held_out, _ = splitting.held_out(y, task, n_held_out, 0, n_training)
    return [(training, held_out)]
