"""Hyperparameters by validation: one eigendecomposition, every penalty.

For the Gram matrix K = U diag(λ) Uᵀ of a kernel on the training rows, the
exact kernel ridge predictions at *all* penalties α are
K* U diag(1/(λ + α)) Uᵀ Y: one decomposition for each setting of the kernel, and
one thin product for each penalty.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh
from sklearn.model_selection import KFold, StratifiedKFold, train_test_split
from threadpoolctl import threadpool_limits

from .kernel_choices import KernelChoice

__all__ = ["Selection", "relative_alphas", "ridge_path", "select_hyperparameters"]

# A decomposition of 2,000 rows takes seconds; more rows move the choice little.
MAX_TRAINING_ROWS = 2_000
MAX_VALIDATION_ROWS = 2_000
# With fewer rows than this a single split is too noisy: cross-validate.
MIN_SINGLE_SPLIT_ROWS = 1_000
N_FOLDS = 5

# Losses up to this multiple of the smallest count as equal to it.
TOLERANCE = 1.05

_LENGTHSCALE_EXPONENTS = (-2.0, -1.0, 0.0, 1.0)
_MAX_EXPONENT = 6.0
_BIAS_MULTIPLES = (0.0, 0.25, 1.0, 4.0)

Task = Literal["classification", "regression"]
Split = tuple[NDArray[np.intp], NDArray[np.intp]]


@dataclass(frozen=True)
class Selection:
    """What was chosen for one kernel, and what it was chosen from.

    Attributes
    ----------
    value : float or None
        Lengthscale or bias; None where the kernel has neither.
    alpha : float
        Ridge penalty.
    validation_loss : float
        Mean squared error on the held-out rows, in classification of the targets ±1.
    n_training_rows, n_validation_rows : int
        Rows of a split, and rows on which the loss was averaged.
    tried : list of dict
        For every setting of the kernel: its ``value``, its best ``alpha`` and
        the ``validation_loss`` there.
    """

    value: float | None
    alpha: float
    validation_loss: float
    n_training_rows: int
    n_validation_rows: int
    tried: list[dict[str, float | None]]


def relative_alphas() -> NDArray[np.float64]:
    """Return the grid of penalties, as multiples of the mean kernel diagonal.

    Returns
    -------
    multiples : ndarray of shape (17,), float64
        10⁻⁶ to 10², two a decade.

    Examples
    --------
    >>> from randkern.experiments.selection import relative_alphas
    >>> float(relative_alphas()[0]), float(relative_alphas()[-1])
    (1e-06, 100.0)
    """
    return np.logspace(-6, 2, 17)


def ridge_path(
    K: ArrayLike,
    Y: ArrayLike,
    K_new: ArrayLike,
    alphas: ArrayLike,
) -> NDArray[np.float64]:
    """Predict by exact kernel ridge with an intercept, at every penalty at once.

    With H = I - 11ᵀ/n, HKH = U diag(λ) Uᵀ and Ỹ = HY, the prediction is
    ȳ + K̃* U diag(1/(λ + α)) Uᵀ Ỹ, where K̃* is `K_new` centred by the training
    rows. This is the minimiser of ‖Y - f(X) - b‖² + α‖f‖², b not penalised.

    Parameters
    ----------
    K : array-like of shape (n, n)
        Gram matrix of the training rows.
    Y : array-like of shape (n, n_outputs)
        Targets.
    K_new : array-like of shape (n_new, n)
        Kernel of new rows with the training rows.
    alphas : array-like of shape (n_alphas,)
        Positive penalties.

    Returns
    -------
    predictions : ndarray of shape (n_alphas, n_new, n_outputs), float64

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.experiments.selection import ridge_path
    >>> x = np.linspace(-1, 1, 9)[:, None]
    >>> path = ridge_path(x @ x.T, 2 * x + 1, x @ x.T, [1e-9, 1e9])
    >>> bool(np.allclose(path[0], 2 * x + 1)), bool(np.allclose(path[1], 1))
    (True, True)
    """
    gram = np.array(K, dtype=np.float64)
    new = np.array(K_new, dtype=np.float64)
    targets = np.asarray(Y, dtype=np.float64)
    column_means, mean = gram.mean(axis=0), gram.mean()
    new += mean - column_means - new.mean(axis=1, keepdims=True)
    gram += mean - column_means - column_means[:, None]
    eigenvalues, U = eigh(gram, overwrite_a=True, check_finite=False, driver="evd")
    # Centring leaves one zero eigenvalue, which rounding may make negative.
    eigenvalues = np.maximum(eigenvalues, 0.0)
    target_means = targets.mean(axis=0)
    rotated_targets = U.T @ (targets - target_means)
    rotated_new = new @ U
    penalties = np.asarray(alphas, dtype=np.float64)
    return np.stack(
        [
            target_means
            + rotated_new @ (rotated_targets / (eigenvalues + penalty)[:, None])
            for penalty in penalties
        ]
    )


def select_hyperparameters(
    choice: KernelChoice,
    X: NDArray[Any],
    y: NDArray[Any],
    *,
    task: Task,
    alpha: float | None = None,
    random_state: int = 0,
) -> Selection:
    """Choose a kernel's open hyperparameter and the ridge penalty on held-out rows.

    Every setting is judged by exact kernel ridge (:func:`ridge_path`) on at most
    2,000 training and 2,000 validation rows drawn from `X`; with fewer than
    1,000 rows, by 5-fold cross-validation on all of them. The loss is the squared
    error, in classification that of targets ±1: it is what ridge regression
    minimises, and it varies smoothly where the number of mistakes jumps.

    Lengthscales are searched among the data's own scale
    (``lengthscale="scale"``) times ¼, ½, 1 and 2, further while the best is the
    last one on its side, then at √2 to either side of the best. The optical
    bias is 0, ¼, 1 or 4 times the mean squared norm. Penalties are
    :func:`relative_alphas` times the mean of the kernel's diagonal.

    Losses within 5 % of the smallest count as equal to it. Of those the longest
    lengthscale or the smallest bias is taken, and then the largest penalty: such
    kernels need fewer random features (a bias adds a constant to the kernel, and
    noise in proportion to it to the features), and a flat curve ends at the better
    conditioned system.

    The penalty is in the units of ‖Y - f‖² + α‖f‖², not divided by the number of
    rows, and is kept when the model is refitted on more rows: the prior that it
    stands for, noise variance over signal variance, does not change with n.

    Parameters
    ----------
    choice : KernelChoice
    X : ndarray of shape (n, d)
        Training rows; test rows must not be among them.
    y : ndarray of shape (n,) or (n, n_outputs)
        Labels or numeric targets.
    task : {"classification", "regression"}
    alpha : float, optional
        Keep this penalty and choose only the kernel's hyperparameter.
    random_state : int, default=0
        Seed of the choice of rows.

    Returns
    -------
    selection : Selection

    Raises
    ------
    ValueError
        If `X` has fewer than 4 rows.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.experiments.kernel_choices import parse_kernel
    >>> from randkern.experiments.selection import select_hyperparameters
    >>> X = np.linspace(-3, 3, 60)[:, None]
    >>> found = select_hyperparameters(
    ...     parse_kernel("gaussian"), X, np.sin(X[:, 0]), task="regression")
    >>> found.validation_loss < 1e-3
    True
    """
    # Decompositions are bound by memory: a second thread gains little, and on a busy
    # machine it costs several times what it gains.
    with threadpool_limits(limits=1, user_api="blas"):
        return _select(choice, X, y, task, alpha, random_state)


def _select(
    choice: KernelChoice,
    X: NDArray[Any],
    y: NDArray[Any],
    task: Task,
    alpha: float | None,
    random_state: int,
) -> Selection:
    """Evaluate settings of the kernel until the best is known."""
    splits = _validation_splits(X, y, task, random_state)
    targets = _one_hot(y) if task == "classification" else _columns(y)
    evaluated: dict[float | None, _Evaluation] = {}

    def evaluate(value: float | None) -> _Evaluation:
        if value not in evaluated:
            kernel = choice.build(value)
            alphas = (
                relative_alphas() * _mean_diagonal(kernel, X[splits[0][0]])
                if alpha is None
                else np.array([alpha])
            )
            loss = _validation_losses(kernel, alphas, X, targets, splits)
            evaluated[value] = _Evaluation(alphas, loss)
        return evaluated[value]

    if choice.opens == "lengthscale":
        _search_lengthscale(evaluate, choice.reference(X))
    elif choice.opens == "bias":
        reference = choice.reference(X)
        for multiple in _BIAS_MULTIPLES:
            evaluate(multiple * reference)
    else:
        evaluate(None)
    value, penalty = _simplest(evaluated, descending=choice.opens == "lengthscale")
    return Selection(
        value=value,
        alpha=float(evaluated[value].alphas[penalty]),
        validation_loss=float(evaluated[value].loss[penalty]),
        n_training_rows=len(splits[0][0]),
        n_validation_rows=sum(len(held_out) for _, held_out in splits),
        tried=[
            {
                "value": setting,
                "alpha": float(evaluation.alphas[evaluation.loss.argmin()]),
                "validation_loss": evaluation.smallest,
            }
            for setting, evaluation in evaluated.items()
        ],
    )


@dataclass(frozen=True)
class _Evaluation:
    """One setting of the kernel: its mean loss at each of its rising penalties."""

    alphas: NDArray[np.float64]
    loss: NDArray[np.float64]

    @property
    def smallest(self) -> float:
        return float(self.loss.min())


def _simplest(
    evaluated: Mapping[float | None, _Evaluation], *, descending: bool
) -> tuple[float | None, int]:
    """Return the first setting as good as the best, and its largest such penalty.

    Settings are looked through by their value; the penalty is an index.
    """
    enough = TOLERANCE * min(evaluation.smallest for evaluation in evaluated.values())
    equal = [v for v, evaluation in evaluated.items() if evaluation.smallest <= enough]
    # None, the setting of a kernel without hyperparameters, is always alone.
    value = sorted(equal, key=lambda v: v or 0.0, reverse=descending)[0]
    return value, int(np.flatnonzero(evaluated[value].loss <= enough)[-1])


def _search_lengthscale(
    evaluate: Callable[[float | None], _Evaluation], reference: float
) -> None:
    """Walk a grid of powers of two to an inner minimum, then refine it once."""

    def loss(exponent: float) -> float:
        return evaluate(reference * 2.0**exponent).smallest

    exponents = list(_LENGTHSCALE_EXPONENTS)
    best = min(exponents, key=loss)
    while best in (exponents[0], exponents[-1]) and abs(best) < _MAX_EXPONENT:
        if best == exponents[0]:
            exponents.insert(0, best - 1.0)
        else:
            exponents.append(best + 1.0)
        best = min(exponents, key=loss)
    for exponent in (best - 0.5, best + 0.5):
        loss(exponent)


def _validation_losses(
    kernel: Any,
    alphas: NDArray[np.float64],
    X: NDArray[Any],
    targets: NDArray[np.float64],
    splits: Sequence[Split],
) -> NDArray[np.float64]:
    """Return the mean squared error at every penalty, over the rows of all splits."""
    total = np.zeros(len(alphas))
    for training, held_out in splits:
        predictions = ridge_path(
            kernel(X[training]),
            targets[training],
            kernel(X[held_out], X[training]),
            alphas,
        )
        total += np.mean((predictions - targets[held_out]) ** 2, axis=2).sum(axis=1)
    return total / sum(len(held_out) for _, held_out in splits)


def _validation_splits(
    X: NDArray[Any], y: NDArray[Any], task: Task, random_state: int
) -> list[Split]:
    """Return one split of a subsample, or the folds of few rows."""
    n = len(X)
    if n < 4:
        raise ValueError(
            f"{n} training rows are too few to choose hyperparameters on; "
            "expected at least 4"
        )
    smallest = int(np.unique(y, return_counts=True)[1].min())
    stratified = task == "classification" and smallest >= 2
    if n >= MIN_SINGLE_SPLIT_ROWS:
        n_held_out = min(n // 4, MAX_VALIDATION_ROWS)
        training, held_out = train_test_split(
            np.arange(n),
            train_size=min(n - n_held_out, MAX_TRAINING_ROWS),
            test_size=n_held_out,
            stratify=y if stratified else None,
            random_state=random_state,
        )
        return [(training, held_out)]
    n_folds = min(N_FOLDS, n // 2)
    folds = (StratifiedKFold if stratified and smallest >= n_folds else KFold)(
        n_folds, shuffle=True, random_state=random_state
    )
    return list(folds.split(X, y))


def _mean_diagonal(kernel: Any, X: NDArray[Any]) -> float:
    mean = float(np.mean(kernel.diag(X)))
    return mean if mean > 0 else 1.0


def _one_hot(y: NDArray[Any]) -> NDArray[np.float64]:
    """Return labels as ±1 columns, one a class."""
    classes, indices = np.unique(y, return_inverse=True)
    return 2.0 * np.eye(len(classes))[indices] - 1.0


def _columns(y: NDArray[Any]) -> NDArray[np.float64]:
    values = np.asarray(y, dtype=np.float64)
    return values[:, None] if values.ndim == 1 else values
