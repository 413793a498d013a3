"""The benchmarks' results as tables for the terminal."""

from collections.abc import Callable, Mapping
from typing import Any

from rich import box
from rich.table import Table

__all__ = [
    "accuracy_tables",
    "cost_table",
    "features_tables",
    "notes",
    "sweep_tables",
]

_COST_METHODS = ("structured", "dense", "RBFSampler")


def features_tables(results: Mapping[str, Any]) -> list[Table]:
    """Return a table for each family: time, ratios to the peers, memory.

    "in place" writes into an array in use; "×" says how many times faster a method
    is than the peer of that type; "peak" is above the input, with the output.
    """
    sizes = results["arguments"]
    tables = []
    for family in dict.fromkeys(record["family"] for record in results["records"]):
        own = [record for record in results["records"] if record["family"] == family]
        columns = {
            heading: [write(record[key]) for record in own]
            for heading, (key, write) in _FEATURE_COLUMNS.items()
        }
        columns = {name: cells for name, cells in columns.items() if any(cells)}
        table = _table(
            f"{family}: d = {sizes['d']:,}, D = {sizes['n_components']:,}, "
            f"{sizes['n']:,} rows",
            *columns,
        )
        for cells in zip(*columns.values(), strict=True):
            table.add_row(*cells)
        tables.append(table)
    return tables


def sweep_tables(results: Mapping[str, Any]) -> list[Table]:
    """Return the sweep, if there is one: nanoseconds a feature by d and by D."""
    if "sweep" not in results:
        return []
    sweep = results["sweep"]
    fixed = sweep["arguments"]
    titles = {
        "d": f"ns/feature against d, D = {fixed['n_components']:,}, "
        f"{fixed['n']:,} rows",
        "n_components": f"ns/feature against D, d = {fixed['d']:,}, "
        f"{fixed['n']:,} rows",
    }
    tables = []
    for axis, title in titles.items():
        own = [record for record in sweep["records"] if record["axis"] == axis]
        values = sorted({record[axis] for record in own})
        headings = [f"{value:,}" for value in values]
        table = _table(title, "method", *headings, "exponent")
        for method in dict.fromkeys(record["method"] for record in own):
            times = {r[axis]: r["ns_per_feature"] for r in own if r["method"] == method}
            table.add_row(
                method,
                *(_number(times.get(value)) for value in values),
                _number(sweep["exponents"][axis].get(method), digits=2),
            )
        tables.append(table)
    return tables


def accuracy_tables(results: Mapping[str, Any]) -> list[Table]:
    """Return a table for each kernel: errors, the ratio to dense, seconds."""
    data = results["dataset"]
    where = f"{data['name']}, {data['n_train']:,} rows"
    gaussian = _table(
        f"gaussian, ℓ = {results['exact']['lengthscale']:.4g}: {where}",
        *("D", "method", "Gram error", "ratio to dense", "test error"),
        *("alpha", "features", "with solve"),
    )
    optical = _table(
        f"optical, degree 2: {where}",
        *("D", "method", "Gram error", "ratio to dense", "centred / plain"),
    )
    summary = sorted(results["summary"], key=lambda entry: entry["n_components"])
    previous: dict[str, int] = {}
    for entry in summary:
        family, size = entry["family"], entry["n_components"]
        table = gaussian if family == "gaussian" else optical
        if previous.get(family, size) != size:
            table.add_section()
        shared = [
            f"{size:,}" if previous.get(family) != size else "",
            entry["method"] + (", centred" if entry["centered"] else ""),
            _percent(entry["gram_error"]),
            _with_error(entry["ratio_to_dense"], entry["ratio_se"]),
        ]
        previous[family] = size
        if family == "gaussian":
            error = _percent(entry["test_error"], entry["test_error_std"])
            times = (entry["features_seconds"], entry["total_seconds"])
            table.add_row(*shared, error, f"{entry['alpha']:g}", *map(_seconds, times))
        else:
            ratio = (entry["ratio_to_plain"], entry["ratio_to_plain_se"])
            table.add_row(*shared, _with_error(*ratio))
    gaussian.caption = (
        f"exact kernel: test error {_percent(results['exact']['test_error'])}, alpha "
        f"{results['exact']['alpha']:g}; ± is "
        "the standard error of a ratio, the standard deviation over seeds of an error"
    )
    gaussian.caption_justify = optical.caption_justify = "left"
    return [table for table in (gaussian, optical) if table.row_count]


def cost_table(results: Mapping[str, Any]) -> list[Table]:
    """Return Nystroem beside the random features that its time affords."""
    rows = results["equal_cost"]
    # The table of all would be long: results.json has it.
    rows = [row for row in rows if row["method"] in _COST_METHODS] or rows
    if not rows:
        return []
    table = _table(
        "at equal cost: the most features measured within Nystroem's time",
        *("Nystroem D", "time", "Gram error", "test error", "method"),
        *("D", "time", "Gram error", "test error"),
    )
    previous = None
    for row in rows:
        new = row["n_components"] != previous
        if new and previous is not None:
            table.add_section()
        previous = row["n_components"]
        peer = (
            f"{previous:,}",
            _seconds(row["seconds"]),
            _percent(row["gram_error"]),
            _percent(row["test_error"]),
        )
        size = row["method_n_components"]
        mark = " (all)" if row["largest_measured"] else ""
        table.add_row(
            *(peer if new else ("",) * len(peer)),
            row["method"],
            "none" if size is None else f"{size:,}{mark}",
            _seconds(row["method_seconds"]),
            _percent(row["method_gram_error"]),
            _percent(row["method_test_error"]),
        )
    return [table]


def notes(results: Mapping[str, Any]) -> list[str]:
    """Return lines about the machine's bounds and about what was skipped."""
    lines = []
    if "roofline" in results:
        bounds = results["roofline"]
        lines.append(
            f"bounds: writing {bounds['write_ns']:.3f} ns an element, "
            f"{bounds['write_new_ns']:.3f} into new memory; float32 product "
            f"{bounds['product_gflops']:.0f} GFLOP/s"
        )
    skipped = [*results["skipped"], *results.get("sweep", {}).get("skipped", ())]
    for note in skipped:
        where = [f"{note['family']}, {note['method']}"]
        where += [
            f"{key} = {note[key]:,}" for key in ("d", "n_components") if key in note
        ]
        lines.append(f"skipped {', '.join(where)}: {note['reason']}")
    return lines


def _table(title: str, *headings: str) -> Table:
    """Return an empty table; all its columns but the names of methods are numbers."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="",
        box=box.ASCII2,
        padding=(0, 0),
    )
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "method" else "right")
    return table


def _number(value: float | None, digits: int = 3) -> str:
    if value is None:
        return ""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}" if value >= 1 else f"{value:.{digits}f}"


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    return f"{1e3 * value:.0f} ms" if value < 1 else f"{value:.2f} s"


def _megabytes(value: int | None) -> str:
    return "" if value is None else f"{value / 1e6:,.0f} MB"


def _percent(value: float | None, spread: float | None = None) -> str:
    if value is None:
        return ""
    error = "" if spread is None else f" ± {100 * spread:.2f}"
    digits = 2 if value >= 1e-3 else 3
    return f"{100 * value:.{digits}f}{error} %"


def _with_error(value: float | None, error: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if error is None else f"{value:.3f} ± {error:.3f}"


_FEATURE_COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "method": ("method", str),
    "ns/feature": ("ns_per_feature", _number),
    "in place": ("ns_per_feature_in_place", _number),
    "bound": ("bound_ns", _number),
    "× float32": ("speedup_over_float32", _number),
    "× float64": ("speedup_over_float64", _number),
    "peak": ("peak_memory_bytes", _megabytes),
    "output": ("output_bytes", _megabytes),
    "first call": ("first_call_seconds", _seconds),
    "cold": ("cold_call_seconds", _seconds),
}
