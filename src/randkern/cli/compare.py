"""``randkern compare``: error against the number of features, on your data."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from . import options
from .console import titled_table
from .studies import Source, named_values, run


def command(
    data: options.Data = "digits",
    data_dir: options.DataDir = None,
    target: options.Target = None,
    task: options.Task = None,
    test: options.Test = None,
    groups: options.Groups = None,
    time: options.Time = None,
    categorical: options.Categorical = None,
    numeric: options.Numeric = None,
    drop: options.Drop = None,
    decimal: options.Decimal = ".",
    thousands: options.Thousands = None,
    dayfirst: options.DayFirst = None,
    strip: options.Strip = False,
    kernels: options.Kernels = "gaussian,laplacian,optical",
    n_components: Annotated[
        str, typer.Option(help="Numbers of random features.")
    ] = "30,100,300,1000,3000",
    exact: Annotated[bool, typer.Option(help="Fit the exact kernels too.")] = True,
    features: Annotated[
        str, typer.Option(help="random, nystrom (landmarks), or both.")
    ] = "random,nystrom",
    alpha: Annotated[
        str, typer.Option(help="Ridge penalty; auto chooses one per kernel.")
    ] = "auto",
    seeds: Annotated[
        int, typer.Option(min=1, help="Draws of the random features.")
    ] = 3,
    memory_limit: options.MemoryLimit = None,
    time_limit: Annotated[
        float,
        typer.Option(
            min=1,
            callback=options.finite,
            help="Seconds, after which no fit begins; what is skipped is said.",
        ),
    ] = 120,
    save: options.Save = None,
    out: Annotated[
        Path, typer.Option(help="Directory for results.json and compare.png.")
    ] = Path("randkern-compare"),
) -> None:
    """How does the error fall with the number of random features, and at what cost?

    Hyperparameters are chosen once per kernel on validation rows, then every
    model is fitted on all training rows and scored on test rows (a quarter, held
    out, where the data has none). Prints a table; writes results.json and
    compare.png.
    """
    from ..study.compare import compare
    from ..study.kernel_choices import parse_kernels

    measure = partial(
        compare,
        kernels=[choice.label for choice in parse_kernels(kernels)],
        n_components=options.parse_sizes(n_components),
        exact=exact,
        features=[each.strip() for each in features.split(",")],
        alpha=options.parse_alpha(alpha),
        n_seeds=seeds,
        memory_limit=options.parse_bytes(memory_limit),
        time_limit=time_limit,
    )
    form = options.table_format(
        categorical, numeric, drop, decimal, thousands, dayfirst, strip
    )
    source = Source(data, target, task, data_dir, test, form, groups, time)
    run(measure, source, save, out, _print)


def _results_table(results: Mapping[str, Any]) -> Table:
    """Return the records as a table, one row per kernel and number of features.

    Baselines come first. Errors are means over seeds, ± their standard deviation,
    followed by ± the standard error of the test rows; times are medians, memory the
    maximum.
    """
    described = results["dataset"]
    share = described["task"] == "classification"
    table = titled_table(
        f"{described['name']}: {described['metric']}{' (%)' if share else ''} on "
        f"{described['n_test']:,} test rows, {described['n_train']:,} training rows, "
        f"{described['n_features']:,} columns",
        caption="± after an error: over seeds; ± rows: one standard error of the test "
        "rows; MB: peak memory"
        + ("; AUC: where the test rows have all classes" * share),
        caption_justify="left",
        pad_edge=False,
    )
    table.add_column("kernel", overflow="fold")
    headings = ["features", "test error", "± rows"]
    headings += ["log loss", "AUC"] if share else []
    for heading in (*headings, "fit s", "test s", "MB"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, each in results["baselines"].items():
        table.add_row(name, *_cells([each], 0, share))
    groups: dict[str, dict[int | None, list[Mapping[str, Any]]]] = {}
    for record in results["records"]:
        sizes = groups.setdefault(record["kernel"], {})
        sizes.setdefault(record["n_components"], []).append(record)
    for kernel, sizes in groups.items():
        table.add_section()
        # The exact kernel comes last, as the limit of the others.
        for size in sorted(sizes, key=lambda size: size or float("inf")):
            table.add_row(kernel, *_cells(sizes[size], size, share))
    return table


def _cells(
    records: Sequence[Mapping[str, Any]], size: int | None, share: bool
) -> list[str]:
    """Return the cells for one kernel and number of features, 0 for a baseline."""
    errors = [record["test_error"] for record in records]
    scale, digits = (100, 2) if share else (1, 4)
    error = f"{scale * fmean(errors):.{digits}f}"
    if len(errors) > 1:  # one seed has no deviation
        error += f" ± {scale * pstdev(errors):.{digits}f}"
    of_rows = fmean(record["standard_error"] for record in records)
    cells = [
        "exact" if size is None else f"{size:,}" if size else "",
        error,
        f"{scale * of_rows:.{digits}f}",
    ]
    for name, places in {"log_loss": 4, "auc": 3}.items() if share else ():
        found = [record[name] for record in records if record[name] is not None]
        cells.append(f"{fmean(found):.{places}f}" if found else "")
    return [
        *cells,
        _seconds([record["fit_seconds"] for record in records]),
        _seconds([record["predict_seconds"] for record in records]),
        f"{max(record['peak_memory_bytes'] for record in records) / 1e6:,.0f}",
    ]


def _seconds(values: Sequence[float]) -> str:
    value = median(values)
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def _print(console: Console, results: Mapping[str, Any]) -> None:
    """Print the table and the hyperparameters that were chosen."""
    if results["records"]:
        console.print(_results_table(results))
    chosen = {
        record["kernel"]: record["hyperparameters"] for record in results["records"]
    }
    for kernel, values in chosen.items():
        console.print(f"{kernel}: {named_values(values)}")
