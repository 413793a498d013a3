"""Chooses the hyperparameters of a kernel on training rows."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import randkern
from randkern.study.kernel_choices import KernelChoice
from randkern.study.splitting import Splitting

# The most training rows that score settings.
MAX_ROWS = 1_000
N_FOLDS = 5
# Losses up to this multiple of the smallest are treated as equal to it.
TOLERANCE = 1.02

_MAX_EXPONENT = 6.0
_BIAS_MULTIPLES = (0.0, 0.25, 1.0, 4.0)
# Relative to the mean of the kernel's diagonal.
_ALPHAS = np.logspace(-6, 2, 17)

Task = Literal["classification", "regression"]
Folds = list[tuple[NDArray[np.intp], NDArray[np.intp]]]


@dataclass(frozen=True)
class Selection:
    """The hyperparameters chosen for a kernel, and the trials.

    `value` is the lengthscale or bias, None if the kernel has neither. The loss is the
    mean squared error of `n_rows` rows that were left out, with targets ±1 in
    classification. `tried` has the ``value`` of every setting, its best
    ``alpha`` and the ``validation_loss`` there.
    """

    value: float | None
    alpha: float
    validation_loss: float
    n_rows: int
    tried: list[dict[str, float | None]]


def select_hyperparameters(
    choice: KernelChoice,
    X: NDArray[Any],
    y: NDArray[Any],
    *,
    task: Task,
    alpha: float | None = None,
    splitting: Splitting | None = None,
    max_rows: int = MAX_ROWS,
    report: Callable[[int], None] = lambda n: None,
) -> Selection:
    """Choose a kernel's open hyperparameter and the ridge penalty.

    The loss is the squared error of rows that are left out, one by one, with targets ±1
    in classification: ridge regression minimises it, and it varies smoothly where the
    number of mistakes jumps. One fit of :class:`randkern.KernelRidgeRegressorCV` scores
    all penalties at a setting. Rows of one group are left out together in 5 folds, and
    rows in time are predicted from earlier ones.

    Settings are scored by the exact kernel on at most `max_rows` rows: 1,000 take a
    second or two, whatever the size of the data.

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
    with `alpha` only the kernel's hyperparameter is chosen. Fewer than 4 rows raise a
    ValueError.
    """
    if len(X) < 4:
        raise ValueError(
            f"{len(X)} training rows are too few to choose hyperparameters on; "
            "expected at least 4"
        )
    splitting = splitting or Splitting()
    rows = splitting.sample(y, task, max_rows)
    targets = np.asarray(y[rows])
    folds: Folds | None = None
    if not splitting.is_random:
        folds = splitting.take(rows).folds(targets, task, N_FOLDS, 0)
    if task == "classification":
        targets = 2.0 * (targets[:, None] == np.unique(targets)) - 1.0
    # Penalties, and the loss at each, by the open hyperparameter.
    tried: dict[float | None, tuple[NDArray[Any], NDArray[Any]]] = {}

    def smallest(value: float | None) -> float:
        """Return the loss at the best penalty."""
        if value not in tried:
            report(len(tried) + 1)
            tried[value] = _losses(choice.build(value), X[rows], targets, alpha, folds)
        return float(tried[value][1].min())

    value: float | None = None
    if choice.opens == "lengthscale":
        value = _search_lengthscale(smallest, choice.reference(X))
    elif choice.opens == "bias":
        reference = choice.reference(X)
        biases = [multiple * reference for multiple in _BIAS_MULTIPLES]
        enough = TOLERANCE * min(map(smallest, biases))
        value = next(bias for bias in biases if smallest(bias) <= enough)
    enough = TOLERANCE * smallest(value)
    alphas, losses = tried[value]
    penalty = np.flatnonzero(losses <= enough)[-1]
    return Selection(
        value=value,
        alpha=float(alphas[penalty]),
        validation_loss=float(losses[penalty]),
        n_rows=len(rows),
        tried=[
            {
                "value": setting,
                "alpha": float(alphas[losses.argmin()]),
                "validation_loss": float(losses.min()),
            }
            for setting, (alphas, losses) in tried.items()
        ],
    )


def _losses(
    kernel: Any,
    X: NDArray[Any],
    Y: NDArray[Any],
    alpha: float | None,
    folds: Folds | None,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return penalties, ascending, and the mean squared errors of rows left out."""
    if alpha is None:
        diagonal = float(np.mean(kernel.diag(X)))
        alphas = list(_ALPHAS * (diagonal if diagonal > 0 else 1.0))
    else:
        alphas = [alpha]
    model = randkern.KernelRidgeRegressorCV(
        kernel,
        alphas=alphas,
        n_components=None,
        scoring=None if folds is None else "neg_mean_squared_error",
        cv=folds,
        fit_intercept=True,
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, Y)
    return model.cv_results_["param_alpha"], -model.cv_results_["mean_test_score"]


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
