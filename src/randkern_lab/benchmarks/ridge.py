"""``randkern bench ridge``: accuracy against seconds, beside scikit-learn."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean, median, stdev
from typing import Any

from randkern._memory import available_memory, format_bytes, resolve_memory_limit
from randkern.study.records import describe_machine, installed_versions

from .labelled_rows import LabelledRows, checked_counts, resolved_lengthscale
from .ridge_contenders import PEERS, SOLVERS, RidgeContender, known_solvers
from .ridge_process import fit_arrays
from .timing import Progress, thread_counts

__all__ = ["DEFAULT_N_COMPONENTS", "environment", "run", "summarise"]

DEFAULT_N_COMPONENTS = (1000, 3000, 10240)
_SECONDS = (
    *("features_seconds", "fit_seconds", "train_seconds", "predict_seconds"),
    *("total_seconds", "process_seconds"),
)


def run(
    dataset: Any,
    n_components: Sequence[int] = DEFAULT_N_COMPONENTS,
    *,
    kernel: str = "gaussian",
    lengthscale: float | str = 5.0,
    degree: float = 2.0,
    alpha: float = 1e-3,
    fit_intercept: bool = True,
    solvers: Sequence[str] | None = None,
    peers: bool = True,
    nystroem: bool = False,
    n: int | None = None,
    n_test: int | None = None,
    repeats: int = 1,
    memory_limit: int | str | None = None,
    no_peer_above: int | None = None,
    no_cholesky_above: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Fit ridge classifiers on random features, randkern's beside scikit-learn's.

    Every fit has a process of its own, so that its peak memory is honest; all have the
    same float32 rows, kernel, penalty and intercept. Contenders take turns, seed after
    seed. Each fits 64 rows before it is timed, which loads compiled code.

    Parameters
    ----------
    dataset : randkern.datasets.Dataset
        Classification; prepared by :func:`randkern.study.preparation.prepare`.
    n_components : sequence of int
        Values of D.
    kernel : {"gaussian", "optical"}, default="gaussian"
        The Gaussian kernel's peer is scikit-learn's ``RBFSampler``, the optical
        kernel's two dense float32 products in NumPy; ``RidgeClassifier`` with
        ``solver="cholesky"`` follows both.
    lengthscale : float or {"scale", "median"}, default=5
    degree : float, default=2
        m of the optical kernel.
    alpha : float, default=1e-3
    fit_intercept : bool, default=True
        For both libraries.
    solvers : sequence of {"pcg", "cholesky", "auto"}, optional
        Of randkern; default: pcg and cholesky.
    peers : bool, default=True
    nystroem : bool, default=False
        Also ``Nystroem``, for the Gaussian kernel.
    n, n_test : int, optional
        Training and test rows at most, drawn once; default: all.
    repeats : int, default=1
        Seeds 0, 1, ...
    memory_limit : int or str, optional
        `memory_limit` of randkern's models.
    no_peer_above, no_cholesky_above : int, optional
        The largest D of the peers and of solver ``"cholesky"``. Peers that would need
        more than is free are skipped in any case.
    progress : callable, optional
        Called as ``progress(done, total, doing)``.

    Returns
    -------
    results : dict
        JSON-compatible: ``command``, ``arguments``, ``dataset``, ``versions``,
        ``machine``, ``records``, ``summary`` (:func:`summarise`) and ``skipped``
        (``family``, ``method``, ``n_components``, ``reason``). A record has
        ``family``, ``method``, ``label``, ``library``, ``n_components``, ``seed``,
        ``test_accuracy``, and what :func:`.ridge_process.fit_arrays` returns.

    Raises
    ------
    ValueError
        If an argument is not as described above, or everything was skipped.
    """
    _check_arguments(kernel, alpha, degree, repeats)
    sizes = checked_counts("n_components", n_components)
    methods = [*_peers(kernel, peers, nystroem), *known_solvers(solvers)]
    limit = memory_limit and resolve_memory_limit(memory_limit)
    rows = LabelledRows.of(dataset, n, n_test)
    gaussian = kernel == "gaussian"
    ell = resolved_lengthscale(lengthscale, rows.X_train) if gaussian else None
    plan = [
        RidgeContender(
            *(method, kernel, size, alpha, ell or 1.0, degree),
            *(fit_intercept, limit),
        )
        for size in sizes
        for method in methods
    ]
    limits = dict.fromkeys(methods, no_peer_above)
    limits |= {"pcg": None, "auto": None, "cholesky": no_cholesky_above}
    records, skipped = _measure(rows, plan, limits, repeats, progress)
    arguments = {
        "n_components": sizes,
        "kernel": kernel,
        "lengthscale": ell,
        "degree": degree if kernel == "optical" else None,
        "alpha": alpha,
        "fit_intercept": fit_intercept,
        "methods": methods,
        "repeats": repeats,
        "memory_limit": limit,
        "no_peer_above": no_peer_above,
        "no_cholesky_above": no_cholesky_above,
    }
    return {
        **environment(),
        "arguments": arguments,
        "dataset": rows.description,
        "records": records,
        "summary": summarise(records),
        "skipped": skipped,
    }


def environment() -> dict[str, Any]:
    """Return ``command``, ``versions`` and ``machine`` of the results.

    Examples
    --------
    >>> from randkern_lab.benchmarks import ridge
    >>> ridge.environment()["command"]
    'bench ridge'
    """
    return {
        "command": "bench ridge",
        "versions": installed_versions(),
        "machine": describe_machine() | {"threads": thread_counts()},
    }


def summarise(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one entry a method and number of features.

    Parameters
    ----------
    records : sequence of mapping
        As :func:`run` makes them.

    Returns
    -------
    summary : list of dict
        ``family``, ``method``, ``label``, ``library``, ``n_components``, ``n_seeds``;
        medians of the seconds of a record and of ``iterations``; the means
        ``test_accuracy`` and ``test_error``, ``test_error_std`` (null for one seed);
        the largest ``residual`` and ``peak_memory_bytes``; ``outcome`` (distinct
        ones, separated by commas); beside the family's peer at the same D
        ``speedup_over_peer`` (its median ``train_seconds`` over its own) and
        ``memory_of_peer`` (its own peak over the peer's), null without that peer.

    Examples
    --------
    >>> from randkern_lab.benchmarks.ridge import summarise
    >>> record = {"family": "gaussian", "label": "", "library": "", "n_components": 8,
    ...           "features_seconds": None, "fit_seconds": 1.0, "train_seconds": 1.0,
    ...           "predict_seconds": 0.1, "total_seconds": 1.1, "process_seconds": 3.0,
    ...           "test_error": 0.25, "test_accuracy": 0.75, "iterations": 4,
    ...           "residual": 1e-3, "outcome": "converged", "peak_memory_bytes": 10**8,
    ...           "seed": 0, "method": "pcg"}
    >>> peer = record | {"method": "RBFSampler", "train_seconds": 6.0}
    >>> [entry["speedup_over_peer"] for entry in summarise([record, peer])]
    [6.0, 1.0]
    """
    groups: dict[tuple[str, str, int], list[Mapping[str, Any]]] = {}
    for record in records:
        key = (record["family"], record["method"], record["n_components"])
        groups.setdefault(key, []).append(record)
    summary = []
    for (family, method, size), own in groups.items():
        entry = {
            "family": family,
            "method": method,
            "label": own[0]["label"],
            "library": own[0]["library"],
            "n_components": size,
            "n_seeds": len(own),
            **_moments(own),
            "outcome": ", ".join(sorted({record["outcome"] for record in own})),
        }
        peer = groups.get((family, PEERS[family][0], size))
        beside = None if peer is None else _moments(peer)
        summary.append(entry | _ratios(entry, beside))
    return summary


def _why_not(
    rows: LabelledRows, contender: RidgeContender, largest: int | None
) -> str | None:
    """Say why a contender is not run."""
    if largest is not None and contender.n_components > largest:
        return f"it was asked for up to {largest:,} features only"
    if contender.method in SOLVERS:
        return None  # the models know their memory limit
    n, d = rows.X_train.shape
    if contender.method == "Nystroem" and contender.n_components > n:
        return f"it has at most one component a training row: {n:,}"
    needed, free = contender.peer_bytes(n, d), available_memory()
    if free is not None and needed > free:
        return (
            f"its features, their copies and the Gram matrix take about "
            f"{format_bytes(needed)}; {format_bytes(free)} are free"
        )
    return None


def _measure(
    rows: LabelledRows,
    plan: Sequence[RidgeContender],
    limits: Mapping[str, int | None],
    repeats: int,
    progress: Progress | None,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the records of all contenders and seeds, and who was skipped."""
    if not plan:
        raise ValueError(
            "nothing to run: name a solver of pcg, cholesky and auto, or allow peers"
        )
    records: list[dict[str, Any]] = []
    skipped: dict[tuple[str, int], dict[str, Any]] = {}
    total = len(plan) * repeats
    with tempfile.TemporaryDirectory(prefix="randkern-bench-") as folder:
        rows.save(folder)
        for done, contender in enumerate(_seeded(plan, repeats)):
            key = (contender.method, contender.n_components)
            if key in skipped:
                continue
            if progress is not None:
                doing = f"{contender.label}, {contender.n_components:,} features"
                progress(done, total, doing)
            reason = _why_not(rows, contender, limits.get(contender.method))
            record, reason = _attempt(
                lambda c: fit_arrays(c, folder), contender, reason
            )
            if record is not None:
                records.append(record)
            else:
                skipped[key] = {
                    "family": contender.family,
                    "method": contender.label,
                    "n_components": contender.n_components,
                    "reason": reason,
                }
    if progress is not None:
        progress(total, total, "done")
    if not records:
        reason = next(iter(skipped.values()))["reason"]
        raise ValueError(f"nothing could be run: {reason}")
    return records, list(skipped.values())


def _attempt(
    fit: Callable[[RidgeContender], dict[str, Any]],
    contender: RidgeContender,
    reason: str | None,
) -> tuple[dict[str, Any] | None, str | None]:
    """Return a record, or why there is none."""
    if reason is not None:
        return None, reason
    try:
        measured = fit(contender)
    except ValueError as error:  # too little memory, or a size that it cannot do
        return None, str(error)
    return {
        "family": contender.family,
        "method": contender.method,
        "label": contender.label,
        "library": contender.package,
        "n_components": contender.n_components,
        "seed": contender.seed,
        "test_accuracy": 1.0 - measured["test_error"],
        **measured,
    }, None


def _seeded(plan: Sequence[RidgeContender], repeats: int) -> Iterator[RidgeContender]:
    for seed in range(repeats):
        for contender in plan:
            yield RidgeContender(**contender.to_dict() | {"seed": seed})


def _peers(kernel: str, peers: bool, nystroem: bool) -> list[str]:
    first, *others = PEERS[kernel]
    return ([first] if peers else []) + (others if nystroem else [])


def _moments(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return medians of seconds, mean errors and the largest memory."""
    moments: dict[str, Any] = {}
    for key in (*_SECONDS, "iterations"):
        values = [record[key] for record in records if record[key] is not None]
        moments[key] = median(values) if values else None
    errors = [record["test_error"] for record in records]
    residuals = [r["residual"] for r in records if r["residual"] is not None]
    return moments | {
        "test_accuracy": fmean(record["test_accuracy"] for record in records),
        "test_error": fmean(errors),
        "test_error_std": stdev(errors) if len(errors) > 1 else None,
        "residual": max(residuals, default=None),
        "peak_memory_bytes": max(record["peak_memory_bytes"] for record in records),
    }


def _ratios(
    entry: Mapping[str, Any], peer: Mapping[str, Any] | None
) -> dict[str, float | None]:
    if peer is None:
        return {"speedup_over_peer": None, "memory_of_peer": None}
    return {
        "speedup_over_peer": peer["train_seconds"] / entry["train_seconds"],
        "memory_of_peer": entry["peak_memory_bytes"] / peer["peak_memory_bytes"],
    }


def _check_arguments(kernel: str, alpha: float, degree: float, repeats: int) -> None:
    if kernel not in PEERS:
        raise ValueError(
            f"unknown kernel {kernel!r}; expected one of {', '.join(PEERS)}"
        )
    for name, value in {"alpha": alpha, "degree": degree}.items():
        if not 0 < value < float("inf"):
            raise ValueError(f"{name} must be a positive number, got {value}")
    checked_counts("repeats", [repeats])
