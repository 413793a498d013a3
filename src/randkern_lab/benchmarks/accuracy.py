"""``randkern bench accuracy``: Gram and test error against the number of features."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import randkern
from randkern.study.preparation import PreparedData, prepare
from randkern.study.records import describe_machine, installed_versions

from .contenders import known_projections
from .scores import gram_errors, gram_matrix, ridge_scores
from .summaries import equal_cost, summarise
from .timing import Progress, thread_counts

__all__ = ["DEFAULT_ALPHAS", "DEFAULT_N_COMPONENTS", "run"]

DEFAULT_N_COMPONENTS = (196, 392, 784, 1568, 3136)
DEFAULT_ALPHAS = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
# Of memory: a benchmark says itself what it takes.
_UNLIMITED = 10**15
_WARM_UP_ROWS = 64


def run(
    dataset: Any,
    n_components: Sequence[int] = DEFAULT_N_COMPONENTS,
    *,
    n: int = 2000,
    n_test: int = 5000,
    lengthscale: float | str = 5.0,
    alphas: Sequence[float] = DEFAULT_ALPHAS,
    n_seeds: int = 10,
    projections: Sequence[str] | None = None,
    optical: bool = True,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure how near features come to their kernel, and what a classifier sees.

    Every projection, scikit-learn's ``RBFSampler`` and its ``Nystroem`` have the
    same number of columns, the same rows, and the seeds 0, 1, ..., n_seeds - 1.
    Gram errors are those of the training rows; the classifier is ridge regression
    onto ±1 labels with no intercept, solved in float64; its penalty is chosen for
    each method and number of features by the leave-one-out error of the first seed
    (with one penalty for all, random features suffer most where D is near n). The
    optical kernel, degree 2, is run plain and centred, for its Gram error only.

    Parameters
    ----------
    dataset : randkern.datasets.Dataset
        Classification; prepared by :func:`randkern.study.preparation.prepare`.
    n_components : sequence of int
        Values of D. Nystroem has at most one component a training row: larger
        numbers are skipped, and say so.
    n, n_test : int
        Training and test rows at most, drawn once without replacement.
    lengthscale : float or {"scale", "median"}, default=5
        Of the Gaussian kernel.
    alphas : sequence of float
        Ridge penalties to choose from.
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
        ``machine``, ``exact`` (``test_error`` and ``alpha`` of the exact
        kernel, ``lengthscale``), ``records``, ``summary`` and ``equal_cost``
        (:mod:`.summaries`), ``skipped`` (``family``, ``method``, ``n_components``,
        ``reason``). A record has ``family``, ``method``, ``centered``,
        ``n_components``, ``seed``, ``gram_error`` (off the diagonal) and
        ``gram_error_all`` (:func:`gram_errors`), ``test_error`` (misclassified
        share), ``alpha``, ``fit_seconds``, ``transform_seconds`` (training rows) and
        ``solve_seconds`` (one Cholesky solve, the choice of the penalty not
        included); ``test_error``, ``alpha`` and ``solve_seconds`` are null for the
        optical kernel.

    Raises
    ------
    ValueError
        If an argument is not as described above, or the data cannot be used.

    Examples
    --------
    >>> from randkern_lab.benchmarks import accuracy
    >>> from randkern.datasets import load_dataset
    >>> results = accuracy.run(load_dataset("iris"), [8, 32], lengthscale=2.0,
    ...                        n_seeds=2, projections=["dense"], optical=False)
    >>> sorted({record["method"] for record in results["records"]})
    ['Nystroem', 'RBFSampler', 'dense']
    """
    sizes = _checked_arguments(n_components, n, n_test, alphas, n_seeds)
    names = known_projections(projections)
    task = _Task.of(dataset, n, n_test, lengthscale, alphas)
    exact = task.exact()
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
            "alphas": list(alphas),
            "n_seeds": n_seeds,
            "projections": names,
            "optical": optical,
        },
        "dataset": task.description,
        "versions": installed_versions(),
        "machine": describe_machine() | {"threads": thread_counts()},
        "exact": exact | {"lengthscale": task.lengthscale},
        "records": records,
        "summary": summary,
        "equal_cost": equal_cost(summary),
        "skipped": skipped,
    }


@dataclass(frozen=True)
class _Task:
    """The rows, labels and kernels that every method shares."""

    data: PreparedData
    kernels: dict[str, Any]
    lengthscale: float
    alphas: Sequence[float]
    classes: NDArray[Any]
    description: dict[str, Any]

    @classmethod
    def of(
        cls,
        dataset: Any,
        n: int,
        n_test: int,
        lengthscale: float | str,
        alphas: Sequence[float],
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
            alphas,
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

    def exact(self) -> dict[str, float]:
        """Return the test error of ridge with the exact Gaussian kernel, and its α."""
        model = randkern.KernelRidgeRegressorCV(
            self.kernels["gaussian"], self.alphas, None, memory_limit=_UNLIMITED
        )
        model.fit(self.data.X_train.astype(np.float64), self.targets())
        scores = model.predict(self.data.X_test.astype(np.float64))
        return {"test_error": self.error(scores), "alpha": model.alpha_}


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


def _best_alpha(Z: NDArray[Any], Y: NDArray[Any], alphas: Sequence[float]) -> float:
    """Return the penalty with the least squared leave-one-out error of ridge on Z."""
    if len(alphas) == 1:
        return float(alphas[0])
    model = randkern.KernelRidgeRegressorCV(
        randkern.Linear(), alphas, Z.shape[1], memory_limit=_UNLIMITED
    )
    return float(model.fit(Z, Y).alpha_)


def _warm_up(method: _Method, task: _Task, sizes: Sequence[int]) -> None:
    """Compile what will be timed."""
    few = task.data.X_train[:_WARM_UP_ROWS]
    size = min(sizes[0], len(few))
    try:
        Z = method.build(size, 0).fit(few).transform(few)
    except ValueError:
        return  # it will say so again when it is measured
    ridge_scores(Z, task.targets()[: len(few)], Z, task.alphas[-1])


def _draws(
    method: _Method, task: _Task, K: NDArray[Any], size: int, n_seeds: int
) -> tuple[list[dict[str, Any]], str | None]:
    """Return the records of all seeds, or why there are none."""
    reason = method.why_not(size, len(task.data.X_train))
    if reason is not None:
        return [], reason
    records: list[dict[str, Any]] = []
    alphas = task.alphas
    try:
        for seed in range(n_seeds):
            records.append(_measure(method, task, K, size, seed, alphas))
            if records[0]["alpha"] is not None:
                alphas = [records[0]["alpha"]]
    except ValueError as error:  # a law or a width that it cannot draw
        return [], str(error)
    return records, None


def _measure(
    method: _Method,
    task: _Task,
    K: NDArray[Any],
    size: int,
    seed: int,
    alphas: Sequence[float],
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
        "alpha": None,
        "fit_seconds": fitted - start,
        "transform_seconds": transformed - fitted,
        "solve_seconds": None,
    }
    if method.family == "gaussian":
        Z_test = feature_map.transform(data.X_test)
        record["alpha"] = _best_alpha(Z, task.targets(), alphas)
        start = time.perf_counter()
        scores = ridge_scores(Z, task.targets(), Z_test, record["alpha"])
        record["solve_seconds"] = time.perf_counter() - start
        record["test_error"] = task.error(scores)
    return record


def _checked_arguments(
    n_components: Sequence[int],
    n: int,
    n_test: int,
    alphas: Sequence[float],
    n_seeds: int,
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
    if not alphas or not all(0 < alpha < float("inf") for alpha in alphas):
        raise ValueError(f"alphas must be positive numbers, got {list(alphas)}")
    if n_seeds < 1:
        raise ValueError(f"at least 1 seed is needed, got {n_seeds}")
    return sorted({int(size) for size in n_components})
