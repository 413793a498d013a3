"""``randkern bench accuracy``: Gram and test error against the number of features."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

import randkern

from ..experiments.preparation import PreparedData, prepare
from ..experiments.records import describe_machine, installed_versions
from .contenders import known_projections
from .summaries import equal_cost, summarise
from .timing import Progress, thread_counts

__all__ = ["DEFAULT_N_COMPONENTS", "gram_errors", "gram_matrix", "ridge_scores", "run"]

DEFAULT_N_COMPONENTS = (196, 392, 784, 1568, 3136)
# float32 products of so many columns are summed in float64.
_COLUMNS = 1024
_WARM_UP_ROWS = 64


def run(
    dataset: Any,
    n_components: Sequence[int] = DEFAULT_N_COMPONENTS,
    *,
    n: int = 2000,
    n_test: int = 5000,
    lengthscale: float | str = 5.0,
    alpha: float = 1e-3,
    n_seeds: int = 10,
    projections: Sequence[str] | None = None,
    optical: bool = True,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure how near features come to their kernel, and what a classifier sees.

    Every projection, scikit-learn's ``RBFSampler`` and its ``Nystroem`` have the
    same number of columns, the same rows, and the seeds 0, 1, ..., n_seeds - 1.
    Gram errors are those of the training rows; the classifier is ridge regression
    onto ±1 labels with no intercept, solved in float64. The optical kernel, degree
    2, is run plain and centred, for its Gram error only.

    Parameters
    ----------
    dataset : randkern.datasets.Dataset
        Classification; prepared by :func:`randkern.experiments.preparation.prepare`.
    n_components : sequence of int
        Values of D. Nystroem has at most one component a training row: larger
        numbers are skipped, and say so.
    n, n_test : int
        Training and test rows at most, drawn once without replacement.
    lengthscale : float or {"scale", "median"}, default=5
        Of the Gaussian kernel.
    alpha : float, default=1e-3
        Ridge penalty.
    n_seeds : int, default=10
    projections : sequence of str, optional
        Default: all that the library has.
    optical : bool, default=True
        Run the optical kernel too.
    progress : callable, optional
        Called as ``progress(done, total, doing)``.

    Returns
    -------
    results : dict
        JSON-compatible: ``command``, ``arguments``, ``dataset``, ``versions``,
        ``machine``, ``exact`` (``test_error`` of the exact kernel,
        ``lengthscale``), ``records``, ``summary`` and ``equal_cost``
        (:mod:`.summaries`), ``skipped`` (``family``, ``method``, ``n_components``,
        ``reason``). A record has ``family``, ``method``, ``centered``,
        ``n_components``, ``seed``, ``gram_error`` (off the diagonal) and
        ``gram_error_all`` (:func:`gram_errors`), ``test_error`` (misclassified
        share; null for optical), ``fit_seconds``, ``transform_seconds`` (training
        rows), ``solve_seconds`` (null for optical).

    Raises
    ------
    ValueError
        If an argument is not as described above, or the data cannot be used.

    Examples
    --------
    >>> from randkern.bench import accuracy
    >>> from randkern.datasets import load_dataset
    >>> results = accuracy.run(load_dataset("iris"), [8, 32], lengthscale=2.0,
    ...                        n_seeds=2, projections=["dense"], optical=False)
    >>> sorted({record["method"] for record in results["records"]})
    ['Nystroem', 'RBFSampler', 'dense']
    """
    sizes = _checked_arguments(n_components, n, n_test, alpha, n_seeds)
    names = known_projections(projections)
    task = _Task.of(dataset, n, n_test, lengthscale, alpha)
    exact_error = task.exact_error()
    methods = list(_methods(names, task, optical))
    records: list[dict[str, Any]] = []
    skipped: list[dict[str, Any]] = []
    total, done = len(methods) * len(sizes) * n_seeds, 0
    for method in methods:
        reference = task.reference(method.family)
        _warm_up(method, task, sizes)
        for size in sizes:
            doing = f"{method.family}, {method.label}, {size:,} features"
            if progress is not None:
                progress(done, total, doing)
            own, reason = _draws(method, task, reference, size, n_seeds)
            records += own
            done += n_seeds
            if reason is not None:
                note = {"family": method.family, "method": method.label}
                skipped.append(note | {"n_components": size, "reason": reason})
    if progress is not None:
        progress(total, total, "done")
    summary = summarise(records)
    return {
        "command": "bench accuracy",
        "arguments": {
            "n_components": sizes,
            "n": n,
            "n_test": n_test,
            "lengthscale": lengthscale,
            "alpha": alpha,
            "n_seeds": n_seeds,
            "projections": names,
            "optical": optical,
        },
        "dataset": task.description,
        "versions": installed_versions(),
        "machine": describe_machine() | {"threads": thread_counts()},
        "exact": {"test_error": exact_error, "lengthscale": task.lengthscale},
        "records": records,
        "summary": summary,
        "equal_cost": equal_cost(summary),
        "skipped": skipped,
    }


def gram_matrix(Z: NDArray[Any]) -> NDArray[np.float64]:
    """Return ZZᵀ in float64, from products of at most 1,024 columns in Z's own type.

    Parameters
    ----------
    Z : ndarray of shape (n, D)

    Returns
    -------
    G : ndarray of shape (n, n), float64

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.bench.accuracy import gram_matrix
    >>> gram_matrix(np.array([[1.0, 2.0], [0.0, 1.0]], dtype=np.float32))
    array([[5., 2.],
           [2., 1.]])
    """
    total = np.zeros((len(Z), len(Z)))
    for start in range(0, Z.shape[1], _COLUMNS):
        block = Z[:, start : start + _COLUMNS]
        total += block @ block.T
    return total


def gram_errors(G: NDArray[Any], K: NDArray[Any]) -> tuple[float, float]:
    """Return the relative Frobenius error of G, off the diagonal and overall.

    Parameters
    ----------
    G, K : ndarray of shape (n, n)
        Estimated and exact Gram matrix.

    Returns
    -------
    off_diagonal : float
        √Σ_{i≠j} (G_ij − K_ij)² / √Σ_{i≠j} K_ij². The diagonal is left out since
        some maps have it exactly: a pair of cosine and sine is of norm 1.
    overall : float
        ‖G − K‖_F / ‖K‖_F.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.bench.accuracy import gram_errors
    >>> K = np.array([[1.0, 0.5], [0.5, 1.0]])
    >>> gram_errors(K + np.array([[0.0, 0.1], [0.1, 0.0]]), K)
    (0.2, 0.0894)
    """
    squares = np.square(G - K)
    reference = np.square(K)
    overall = squares.sum() / reference.sum()
    np.fill_diagonal(squares, 0.0)
    np.fill_diagonal(reference, 0.0)
    off_diagonal = squares.sum() / reference.sum()
    return float(np.sqrt(off_diagonal)), float(np.sqrt(overall))


def ridge_scores(
    Z: NDArray[Any], Y: NDArray[Any], Z_test: NDArray[Any], alpha: float
) -> NDArray[np.float64]:
    """Return test scores of ridge regression on features, from the smaller system.

    (ZᵀZ + αI)W = ZᵀY where D ≤ n, otherwise (ZZᵀ + αI)A = Y and W = ZᵀA; sums and
    solve in float64.

    Parameters
    ----------
    Z : ndarray of shape (n, D)
    Y : ndarray of shape (n, n_targets)
    Z_test : ndarray of shape (n_test, D)
    alpha : float

    Returns
    -------
    scores : ndarray of shape (n_test, n_targets)

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.bench.accuracy import ridge_scores
    >>> Z = np.array([[1.0], [2.0]])
    >>> ridge_scores(Z, np.array([[2.0], [4.0]]), np.array([[3.0]]), 1e-12)
    array([[6.]])
    """
    primal = Z.shape[1] <= len(Z)
    system = gram_matrix(Z.T if primal else Z)
    system[np.diag_indices_from(system)] += alpha
    factor = scipy.linalg.cho_factor(system, lower=True, overwrite_a=True)
    if primal:
        weights = scipy.linalg.cho_solve(factor, Z.T.astype(np.float64) @ Y)
    else:
        weights = Z.T.astype(np.float64) @ scipy.linalg.cho_solve(factor, Y)
    return np.asarray(Z_test @ weights)


@dataclass(frozen=True)
class _Task:
    """The rows, labels and kernels that every method shares."""

    data: PreparedData
    kernels: dict[str, Any]
    lengthscale: float
    alpha: float
    classes: NDArray[Any]
    description: dict[str, Any]

    @classmethod
    def of(
        cls, dataset: Any, n: int, n_test: int, lengthscale: float | str, alpha: float
    ) -> _Task:
        if dataset.task != "classification":
            raise ValueError(
                f"the accuracy benchmark classifies, but {dataset.name} is a "
                f"{dataset.task}; use randkern compare for it"
            )
        whole = prepare(dataset)
        rng = np.random.default_rng(0)
        train = rng.permutation(len(whole.X_train))[:n]
        test = rng.permutation(len(whole.X_test))[:n_test]
        # float32: what images are loaded as, and what both libraries keep.
        data = PreparedData(
            np.ascontiguousarray(whole.X_train[train], dtype=np.float32),
            whole.y_train[train],
            np.ascontiguousarray(whole.X_test[test], dtype=np.float32),
            whole.y_test[test],
            *(whole.task, whole.split, whole.preprocessing),
        )
        gaussian = randkern.Gaussian(lengthscale).resolve(data.X_train, random_state=0)
        description = {
            "name": dataset.name,
            "n_train": len(train),
            "n_test": len(test),
            "n_features": int(data.X_train.shape[1]),
            "preprocessing": data.preprocessing,
        }
        return cls(
            data,
            {"gaussian": gaussian, "optical": randkern.Optical(degree=2)},
            float(gaussian.lengthscale),
            alpha,
            np.unique(data.y_train),
            description,
        )

    def reference(self, family: str) -> NDArray[np.float64]:
        """Return the exact Gram matrix of the training rows."""
        return np.asarray(self.kernels[family](self.data.X_train.astype(np.float64)))

    def targets(self) -> NDArray[np.float64]:
        """Return the training labels, one column of ±1 a class."""
        return np.where(self.data.y_train[:, None] == self.classes, 1.0, -1.0)

    def error(self, scores: NDArray[Any]) -> float:
        """Return the misclassified share of the test rows."""
        predicted = self.classes[scores.argmax(axis=1)]
        return float(np.mean(predicted != self.data.y_test))

    def exact_error(self) -> float:
        """Return the test error of ridge with the exact Gaussian kernel."""
        kernel = self.kernels["gaussian"]
        system = self.reference("gaussian")
        system[np.diag_indices_from(system)] += self.alpha
        dual = scipy.linalg.solve(system, self.targets(), assume_a="pos")
        train, test = (
            X.astype(np.float64) for X in (self.data.X_train, self.data.X_test)
        )
        return self.error(kernel(test, train) @ dual)


@dataclass(frozen=True)
class _Method:
    """A way of making features: a projection of ours, or a peer."""

    family: str
    label: str
    centered: bool
    build: Callable[[int, int], Any]
    limited_by_rows: bool = False

    def why_not(self, n_components: int, n: int) -> str | None:
        if self.limited_by_rows and n_components > n:
            return f"it has at most one component a training row: {n:,}"
        return None


def _methods(names: Sequence[str], task: _Task, optical: bool) -> Iterator[_Method]:
    """Yield the methods, the one that ratios refer to first in its family."""
    from sklearn.kernel_approximation import Nystroem, RBFSampler

    def features(family: str, name: str, centered: bool) -> _Method:
        def build(size: int, seed: int) -> Any:
            return randkern.RandomFeatures(
                task.kernels[family],
                size,
                projection=name,
                centered=centered,
                random_state=seed,
            )

        return _Method(family, name, centered, build)

    gamma = 1 / (2 * task.lengthscale**2)
    for name in names:
        yield features("gaussian", name, False)
    yield _Method(
        *("gaussian", "RBFSampler", False),
        lambda size, seed: RBFSampler(
            gamma=gamma, n_components=size, random_state=seed
        ),
    )
    yield _Method(
        *("gaussian", "Nystroem", False),
        lambda size, seed: Nystroem(gamma=gamma, n_components=size, random_state=seed),
        limited_by_rows=True,
    )
    for name in names if optical else ():
        for centered in (False, True):
            yield features("optical", name, centered)


def _warm_up(method: _Method, task: _Task, sizes: Sequence[int]) -> None:
    """Compile what will be timed."""
    few = task.data.X_train[:_WARM_UP_ROWS]
    size = min(sizes[0], len(few))
    try:
        Z = method.build(size, 0).fit(few).transform(few)
    except ValueError:
        return  # it will say so again when it is measured
    ridge_scores(Z, task.targets()[: len(few)], Z, task.alpha)


def _draws(
    method: _Method, task: _Task, K: NDArray[Any], size: int, n_seeds: int
) -> tuple[list[dict[str, Any]], str | None]:
    """Return the records of all seeds, or why there are none."""
    reason = method.why_not(size, len(task.data.X_train))
    if reason is not None:
        return [], reason
    try:
        return [_measure(method, task, K, size, seed) for seed in range(n_seeds)], None
    except ValueError as error:  # a law or a width that it cannot draw
        return [], str(error)


def _measure(
    method: _Method, task: _Task, K: NDArray[Any], size: int, seed: int
) -> dict[str, Any]:
    """Return the record of one draw."""
    data = task.data
    start = time.perf_counter()
    with warnings.catch_warnings():
        # Nystroem's float32 and the rank of its sample are its own affair.
        warnings.simplefilter("ignore", RuntimeWarning)
        feature_map = method.build(size, seed).fit(data.X_train)
    fitted = time.perf_counter()
    Z = feature_map.transform(data.X_train)
    transformed = time.perf_counter()
    off_diagonal, overall = gram_errors(gram_matrix(Z), K)
    record: dict[str, Any] = {
        "family": method.family,
        "method": method.label,
        "centered": method.centered,
        "n_components": size,
        "seed": seed,
        "gram_error": off_diagonal,
        "gram_error_all": overall,
        "test_error": None,
        "fit_seconds": fitted - start,
        "transform_seconds": transformed - fitted,
        "solve_seconds": None,
    }
    if method.family == "gaussian":
        Z_test = feature_map.transform(data.X_test)
        start = time.perf_counter()
        scores = ridge_scores(Z, task.targets(), Z_test, task.alpha)
        record["solve_seconds"] = time.perf_counter() - start
        record["test_error"] = task.error(scores)
    return record


def _checked_arguments(
    n_components: Sequence[int], n: int, n_test: int, alpha: float, n_seeds: int
) -> list[int]:
    """Return the distinct numbers of features in increasing order."""
    if not n_components or any(size < 1 for size in n_components):
        raise ValueError(
            f"n_components must be positive whole numbers, got {list(n_components)}; "
            "for instance 100,1000"
        )
    for name, value in {"n": n, "n_test": n_test}.items():
        if value < 2:
            raise ValueError(f"{name} must be 2 or more, got {value}")
    if not 0 < alpha < float("inf"):
        raise ValueError(f"alpha must be a positive number, got {alpha!r}")
    if n_seeds < 1:
        raise ValueError(f"at least 1 seed is needed, got {n_seeds}")
    return sorted({int(size) for size in n_components})
