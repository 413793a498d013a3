"""The Gaussian process benchmark's results as a table for the terminal."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from .bench_tables import _megabytes, _seconds, _table

__all__ = ["gp_notes", "gp_table"]


def gp_table(results: Mapping[str, Any]) -> Table:
    """Return every contender on every data set: errors, densities, seconds, memory."""
    table = _table(
        "Gaussian processes, standardised targets",
        *(
            "data",
            "method",
            "rows",
            "D",
            "RMSE",
            "NLPD",
            "95 %",
            "seconds",
            "CPU s",
            "peak",
        ),
    )
    previous = None
    for record in results["records"]:
        name, size = record["dataset"], record["n_components"]
        if previous not in (None, name):
            table.add_section()
        table.add_row(
            "" if name == previous else name,
            record["label"],
            f"{record['n_train']:,}",
            "" if size is None else f"{size:,}",
            f"{record['rmse']:.4f}",
            f"{record['nlpd']:.4f}",
            f"{100 * record['coverage']:.1f} %",
            _seconds(record["seconds"]),
            _seconds(record["cpu_seconds"]),
            _megabytes(record["peak_memory_bytes"]),
        )
        previous = name
    table.caption = (
        "NLPD: mean negative log predictive density; 95 %: share of test targets "
        "within intervals; seconds to learn and predict, and those of all processors; "
        "peak of the whole process"
    )
    table.caption_justify = "left"
    return table


def gp_notes(results: Mapping[str, Any]) -> list[str]:
    """Return the error that noise alone makes, and who was skipped."""
    notes = [
        f"{data['name']}: the true function would have RMSE {data['noise_rmse']:.4f}"
        for data in results["datasets"]
        if data["noise_rmse"] is not None
    ]
    return notes + [
        f"skipped {skipped['method']}, {skipped['dataset']}: {skipped['reason']}"
        for skipped in results["skipped"]
    ]
