"""``randkern bench gpu``: tensors on a GPU, beside its bounds."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from randkern.cli.console import output, progress_bar, user_messages
from randkern.cli.options import parse_names, parse_sizes

from .bench_tables import _table

__all__ = ["gpu_command", "gpu_tables"]

# The key and the title of a column, beside seconds and joules.
_TITLES: dict[str, tuple[str, str] | None] = {
    "features": ("share_of_write_bound", "of the write bound"),
    "product": ("share_of_matmul", "of torch.matmul"),
    "ridge": ("test_accuracy", "test accuracy"),
    "sweep": None,
}


def gpu_command(
    device: Annotated[str, typer.Option(help="cuda, cuda:1, or cpu.")] = "cuda",
    measurements: Annotated[
        str, typer.Option(help="Of features, product, ridge, sweep.")
    ] = "features,product,ridge,sweep",
    n: Annotated[int, typer.Option("--n", help="Rows of the features.")] = 8192,
    d: Annotated[int, typer.Option("--d", help="Input columns.")] = 784,
    n_components: Annotated[int, typer.Option(help="Features.")] = 16384,
    side: Annotated[int, typer.Option(help="Sides of the product.")] = 16384,
    ridge_rows: Annotated[int, typer.Option(help="Training rows.")] = 60_000,
    ridge_components: Annotated[int, typer.Option(help="Of ridge.")] = 100_000,
    batches: Annotated[
        str, typer.Option(help="Rows at a time, of the sweep.")
    ] = "1,64,1024,8192",
    sizes: Annotated[
        str, typer.Option(help="Features, of the sweep.")
    ] = "1000,10000,100000",
    repeats: Annotated[int, typer.Option(help="Rounds of the timing.")] = 5,
    cpu: Annotated[
        bool, typer.Option("--cpu", help="Also fit ridge on the processor.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    out: Annotated[
        Path, typer.Option(help="Directory for results.json and gpu.png.")
    ] = Path("randkern-bench/gpu"),
) -> None:
    """Features, products and ridge on a GPU: seconds, joules, and shares of its bounds.

    Where there is no GPU nothing is measured, and results.json says why.
    """
    with user_messages():
        from randkern.plots import save_figure
        from randkern.study.records import write_results

        from ..benchmarks import gpu
        from ..benchmarks.gpu_figures import plot_gpu

        out.mkdir(parents=True, exist_ok=True)
        with progress_bar() as progress:
            results = gpu.run(
                device=device,
                measurements=parse_names(measurements) or gpu.MEASUREMENTS,
                n=n,
                d=d,
                n_components=n_components,
                side=side,
                ridge_rows=ridge_rows,
                ridge_components=ridge_components,
                batches=parse_sizes(batches, "--batches"),
                sizes=parse_sizes(sizes, "--sizes"),
                repeats=repeats,
                cpu=cpu,
                seed=seed,
                progress=progress,
            )
        written = [write_results(results, out / "results.json")]
        if {r["measurement"] for r in results["records"]} & {"features", "sweep"}:
            written.append(save_figure(plot_gpu(results), out / "gpu.png"))
    console = output()
    if not results["ran"]:
        reason = escape(results["reason"])
        console.print(f"The GPU benchmark did not run: {reason}.")
    else:
        versions = results["versions"]
        named = ", ".join(f"{name} {versions[name]}" for name in sorted(versions))
        console.print(f"{results['device']['name']}; {named}")
    console.print(f"energy: {results['energy']}")
    for table in gpu_tables(results):
        console.print(table)
    console.print(f"wrote {', '.join(map(str, written))}", soft_wrap=True)


def gpu_tables(results: Mapping[str, Any]) -> list[Table]:
    """Return a table of every measurement that was made."""
    tables = []
    for name, column in _TITLES.items():
        records = [r for r in results["records"] if r["measurement"] == name]
        if not records:
            continue
        columns = [("joules", "joules"), *([] if column is None else [column])]
        labels = [label for _, label in columns]
        table = _table(name, "method", "rows", "d", "D", "ms", *labels)
        for record in records:
            values = [record[key] for key, _ in columns]
            table.add_row(
                record["method"],
                f"{record['n']:,}",
                f"{record['d']:,}",
                f"{record['n_components']:,}",
                f"{1000 * record['seconds']:.3g}",
                *("" if value is None else f"{value:.3g}" for value in values),
            )
        tables.append(table)
    return tables
