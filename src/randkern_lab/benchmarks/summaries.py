"""What the accuracy benchmark's records come to: paired ratios, equal cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median, stdev
from typing import Any

import numpy as np

__all__ = ["equal_cost", "paired_ratio", "summarise"]

# What the others' Gram error is divided by.
_REFERENCE = ("dense", False)


def paired_ratio(
    errors: Sequence[float], reference: Sequence[float]
) -> tuple[float, float | None]:
    """Return the ratio of two means over the same seeds, and its standard error.

    With r = ā/b̄ the standard error is that of the mean of (a_s − r b_s)/b̄ over
    the seeds s (the delta method; it counts what the pairs have in common).

    Parameters
    ----------
    errors, reference : sequence of float
        a_s and b_s.

    Returns
    -------
    ratio : float
    standard_error : float or None
        None for a single seed.

    Examples
    --------
    >>> from randkern_lab.benchmarks.summaries import paired_ratio
    >>> paired_ratio([0.8, 1.0], [1.0, 1.0])
    (0.9, 0.1)
    >>> paired_ratio([0.9, 1.8], [1.0, 2.0])  # the same ratio in every pair
    (0.9, 0.0)
    """
    a, b = np.asarray(errors, dtype=float), np.asarray(reference, dtype=float)
    ratio = float(a.mean() / b.mean())
    if len(a) < 2:
        return ratio, None
    residual = (a - ratio * b) / b.mean()
    return ratio, float(residual.std(ddof=1) / math.sqrt(len(a)))


def summarise(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one entry a family, method and number of features.

    Parameters
    ----------
    records : sequence of mapping
        As :func:`randkern_lab.benchmarks.accuracy.run` makes them.

    Returns
    -------
    summary : list of dict
        ``family``, ``method``, ``centered``, ``n_components``, ``n_seeds``, ``alpha``;
        ``gram_error``, ``gram_error_all``, ``test_error`` (means over seeds) and
        ``gram_error_std``, ``test_error_std``; ``ratio_to_dense`` of the
        off-diagonal Gram errors (:func:`paired_ratio`) and ``ratio_se``, null where
        dense was not run; for optical, ``ratio_to_plain`` and ``ratio_to_plain_se``:
        centred over plain of the same projection; ``features_seconds`` (fit and
        transform) and ``total_seconds`` (solve included): medians.

    Examples
    --------
    >>> from randkern_lab.benchmarks.summaries import summarise
    >>> record = {"family": "gaussian", "method": "dense", "centered": False,
    ...           "n_components": 8, "seed": 0, "gram_error": 0.2,
    ...           "gram_error_all": 0.1, "test_error": 0.5, "alpha": 1e-3,
    ...           "fit_seconds": 1.0, "transform_seconds": 2.0, "solve_seconds": 0.5}
    >>> entry, = summarise([record])
    >>> entry["ratio_to_dense"], entry["total_seconds"]
    (1.0, 3.5)
    """
    groups: dict[tuple[str, str, bool, int], list[Mapping[str, Any]]] = {}
    for record in records:
        key = (record["family"], record["method"], record["centered"])
        groups.setdefault((*key, record["n_components"]), []).append(record)
    summary = []
    for (family, method, centered, size), own in groups.items():
        dense = groups.get((family, *_REFERENCE, size), [])
        plain = groups.get((family, method, False, size), []) if centered else []
        summary.append(
            {
                "family": family,
                "method": method,
                "centered": centered,
                "n_components": size,
                "n_seeds": len(own),
                "alpha": own[0]["alpha"],
                **_moments(own),
                **_ratio(own, dense, "ratio_to_dense", "ratio_se"),
                **_ratio(own, plain, "ratio_to_plain", "ratio_to_plain_se"),
                **_costs(own),
            }
        )
    return summary


def equal_cost(summary: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Set each Nystroem point beside the random features that its time affords.

    Parameters
    ----------
    summary : sequence of dict
        From :func:`summarise`.

    Returns
    -------
    rows : list of dict
        For every number of components of Nystroem and every projection:
        ``n_components``, ``seconds`` (of features and solve), ``gram_error``,
        ``test_error`` of Nystroem, and as ``method``, ``method_n_components``,
        ``method_seconds``, ``method_gram_error``, ``method_test_error`` the
        projection's largest measured number of features that took no longer. The
        latter four are null where even its smallest took longer.
        ``largest_measured`` says that more features might still have fitted.

    Examples
    --------
    >>> from randkern_lab.benchmarks.summaries import equal_cost
    >>> base = {"family": "gaussian", "centered": False, "gram_error": 0.1,
    ...         "test_error": 0.2}
    >>> rows = equal_cost([
    ...     base | {"method": "Nystroem", "n_components": 10, "total_seconds": 2.0},
    ...     base | {"method": "dense", "n_components": 10, "total_seconds": 1.0},
    ...     base | {"method": "dense", "n_components": 20, "total_seconds": 1.5},
    ...     base | {"method": "dense", "n_components": 40, "total_seconds": 3.0},
    ... ])
    >>> [(row["method"], row["method_n_components"]) for row in rows]
    [('dense', 20)]
    """
    gaussian = [entry for entry in summary if entry["family"] == "gaussian"]
    rows = []
    for peer in (each for each in gaussian if each["method"] == "Nystroem"):
        methods = dict.fromkeys(entry["method"] for entry in gaussian)
        for method in (name for name in methods if name != "Nystroem"):
            own = [entry for entry in gaussian if entry["method"] == method]
            cheap = [e for e in own if e["total_seconds"] <= peer["total_seconds"]]
            best = max(cheap, key=lambda entry: entry["n_components"], default=None)
            largest = max(entry["n_components"] for entry in own)
            row = {
                "n_components": peer["n_components"],
                "seconds": peer["total_seconds"],
                "gram_error": peer["gram_error"],
                "test_error": peer["test_error"],
                "method": method,
            }
            for key in ("n_components", "gram_error", "test_error"):
                row[f"method_{key}"] = None if best is None else best[key]
            row["method_seconds"] = None if best is None else best["total_seconds"]
            row["largest_measured"] = row["method_n_components"] == largest
            rows.append(row)
    return rows


def _moments(records: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Return means, and standard deviations of the two main errors."""
    moments: dict[str, float | None] = {}
    for key in ("gram_error", "gram_error_all", "test_error"):
        values = [record[key] for record in records if record[key] is not None]
        moments[key] = fmean(values) if values else None
        if key != "gram_error_all":
            moments[f"{key}_std"] = stdev(values) if len(values) > 1 else None
    return moments


def _ratio(
    records: Sequence[Mapping[str, Any]],
    reference: Sequence[Mapping[str, Any]],
    name: str,
    error_name: str,
) -> dict[str, float | None]:
    """Return the ratio of Gram errors over the seeds that both have."""
    base = {record["seed"]: record["gram_error"] for record in reference}
    pairs = [
        (record["gram_error"], base[record["seed"]])
        for record in records
        if record["seed"] in base
    ]
    if not pairs:
        return {name: None, error_name: None}
    ratio, standard_error = paired_ratio(*zip(*pairs, strict=True))
    return {name: ratio, error_name: standard_error}


def _costs(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return median seconds."""
    features = [r["fit_seconds"] + r["transform_seconds"] for r in records]
    solves = [record["solve_seconds"] or 0.0 for record in records]
    totals = [a + b for a, b in zip(features, solves, strict=True)]
    return {"features_seconds": median(features), "total_seconds": median(totals)}
