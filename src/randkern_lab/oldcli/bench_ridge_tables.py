"""The ridge benchmark's results as tables for the terminal."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from .bench_tables import _megabytes, _number, _percent, _seconds, _table

__all__ = ["ridge_tables", "scaling_notes", "scaling_tables"]

_AXES = {"n_components": "D", "n": "n"}


def ridge_tables(results: Mapping[str, Any]) -> list[Table]:
    """Return contenders by number of features: seconds, accuracy, memory.

    "train" is features and fit; "× faster" is the peer's over its own.
    """
    if not results["records"]:
        return []
    arguments, data = results["arguments"], results["dataset"]
    kernel = (
        f"gaussian, ℓ = {arguments['lengthscale']:.4g}"
        if arguments["kernel"] == "gaussian"
        else f"optical, degree {arguments['degree']:g}"
    )
    table = _table(
        f"{kernel}, alpha = {arguments['alpha']:g}: {data['name']}, "
        f"{data['n_train']:,} rows, {data['n_test']:,} test rows",
        *("D", "method", "features", "fit", "train", "× faster", "predict"),
        *("accuracy", "peak", "iter.", "outcome"),
    )
    previous = None
    for entry in sorted(results["summary"], key=lambda entry: entry["n_components"]):
        size = entry["n_components"]
        if previous not in (None, size):
            table.add_section()
        table.add_row(
            "" if size == previous else f"{size:,}",
            entry["method"],
            _seconds(entry["features_seconds"]),
            _seconds(entry["fit_seconds"]),
            _seconds(entry["train_seconds"]),
            _number(entry["speedup_over_peer"]),
            _seconds(entry["predict_seconds"]),
            _percent(entry["test_accuracy"], entry["test_error_std"]),
            _megabytes(entry["peak_memory_bytes"]),
            _iterations(entry["iterations"]),
            entry["outcome"].replace("_", " "),
        )
        previous = size
    table.caption = (
        "peers: features, then RidgeClassifier; medians over seeds; train is features "
        "and fit; peak is of the whole process, with imports and data"
    )
    table.caption_justify = "left"
    return [table]


def scaling_tables(results: Mapping[str, Any]) -> list[Table]:
    """Return costs against D and against n, if they were measured."""
    scaling = results.get("scaling", {"records": []})
    tables = []
    for axis, heading in _AXES.items():
        own = [record for record in scaling["records"] if record["axis"] == axis]
        if not own:
            continue
        fixed = (
            f"n = {own[0]['n']:,}"
            if axis == "n_components"
            else f"D = {own[0]['n_components']:,}"
        )
        table = _table(
            f"pcg on streamed rows, d = {own[0]['d']:,}, {fixed}",
            *(heading, "fit", "iterations", "an iteration", "peak", "anonymous"),
            *("test error", "outcome"),
        )
        for record in own:
            table.add_row(
                f"{record[axis]:,}",
                _seconds(record["train_seconds"]),
                _iterations(record["iterations"]),
                _seconds(record["seconds_per_iteration"]),
                _megabytes(record["peak_memory_bytes"]),
                _megabytes(record["peak_anonymous_bytes"]),
                _percent(record["test_error"]),
                record["outcome"].replace("_", " "),
            )
        slopes = scaling["exponents"][axis]
        table.caption = "exponents (all points, last two): " + ", ".join(
            f"{name} {_exponent(slopes[cost])}"
            for name, cost in (
                ("fit", "train_seconds"),
                ("an iteration", "seconds_per_iteration"),
                ("peak", "peak_memory_bytes"),
            )
        )
        table.caption_justify = "left"
        tables.append(table)
    return tables


def scaling_notes(results: Mapping[str, Any]) -> list[str]:
    """Return lines about the points of the scaling that were skipped."""
    return [
        f"skipped {note['method']}, D = {note['n_components']:,}, "
        f"n = {note['n']:,}: {note['reason']}"
        for note in results.get("scaling", {}).get("skipped", ())
    ]


def _iterations(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _exponent(slopes: Mapping[str, float | None]) -> str:
    if slopes["all"] is None or slopes["last"] is None:
        return "-"
    return f"{slopes['all']:.2f}, {slopes['last']:.2f}"
