"""What the accuracy benchmark's records come to: paired ratios, equal cost."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..tables import of

__all__ = ["equal_cost", "paired_ratio", "summarise"]

Records = Sequence[Mapping[str, Any]]


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


def summarise(records: Records) -> list[dict[str, Any]]:
    """Return one entry per family, method and number of features.

    Parameters
    ----------
    records : sequence of mapping
        Of :class:`.accuracy.Accuracy`.

    Returns
    -------
    summary : list of dict
        ``family``, ``method``, ``centered``, ``n_components``, ``n_seeds``, ``alpha``;
        ``gram_error``, ``gram_error_all``, ``test_error`` (means over seeds) and
        ``gram_error_std``, ``test_error_std``; ``ratio_to_dense`` of the
        off-diagonal Gram errors (:func:`paired_ratio`) and ``ratio_se``, None where
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
    import pandas as pd

    keys = ("family", "method", "centered", "n_components")
    summary = []
    for place in dict.fromkeys(tuple(r[key] for key in keys) for r in records):
        named = dict(zip(keys, place, strict=True))
        own = of(records, **named)
        table = pd.DataFrame(own).astype({"test_error": float})
        means, spreads = (
            {
                key: None if pd.isna(value) else float(value)
                for key, value in found.items()
            }
            for found in (
                table[["gram_error", "gram_error_all", "test_error"]].mean(),
                table[["gram_error", "test_error"]].std().add_suffix("_std"),
            )
        )
        dense = of(records, **named | {"method": "dense", "centered": False})
        plain = of(records, **named | {"centered": False}) if named["centered"] else []
        features = table.fit_seconds + table.transform_seconds
        solves = table.solve_seconds.astype(float).fillna(0.0)
        summary.append(
            named
            | {"n_seeds": len(own), "alpha": own[0]["alpha"]}
            | means
            | {
                f"{key}_std": spreads[f"{key}_std"]
                for key in ("gram_error", "test_error")
            }
            | _ratio(own, dense, "ratio_to_dense", "ratio_se")
            | _ratio(own, plain, "ratio_to_plain", "ratio_to_plain_se")
            | {"features_seconds": float(features.median())}
            | {"total_seconds": float((features + solves).median())}
        )
    return summary


def equal_cost(summary: Records) -> list[dict[str, Any]]:
    """Set each Nystroem point beside the random features that its time affords.

    Parameters
    ----------
    summary : sequence of dict
        From :func:`summarise`.

    Returns
    -------
    rows : list of dict
        For every number of components of Nystroem and every other method:
        ``n_components``, ``seconds`` (of features and solve), ``gram_error``,
        ``test_error`` of Nystroem; ``method``, and of the method's largest measured
        number of features that took no longer ``method_n_components``,
        ``method_seconds``, ``method_gram_error`` and ``method_test_error``, None where
        even its smallest took longer. ``largest_measured`` says that more features
        might still have fitted.

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
    gaussian = of(summary, family="gaussian")
    errors = ("n_components", "gram_error", "test_error")
    rows = []
    for peer in of(gaussian, method="Nystroem"):
        for method in dict.fromkeys(entry["method"] for entry in gaussian):
            if method == "Nystroem":
                continue
            own = of(gaussian, method=method)
            cheap = [e for e in own if e["total_seconds"] <= peer["total_seconds"]]
            best = max(cheap, key=lambda entry: entry["n_components"], default=None)
            size = None if best is None else best["n_components"]
            rows.append(
                {"seconds": peer["total_seconds"], "method": method}
                | {key: peer[key] for key in errors}
                | {f"method_{key}": best and best[key] for key in errors}
                | {"method_seconds": best and best["total_seconds"]}
                | {"largest_measured": size == max(e["n_components"] for e in own)}
            )
    return rows


def _ratio(
    records: Records, reference: Records, name: str, error_name: str
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
