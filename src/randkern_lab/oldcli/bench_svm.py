"""``randkern bench svm``: support vector machines, beside scikit-learn's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from randkern.cli.console import output, progress_bar, user_messages
from randkern.cli.options import (
    Data,
    DataDir,
    Target,
    parse_lengthscale,
    parse_names,
    parse_sizes,
)

from .bench_tables import _megabytes, _seconds, _table

__all__ = ["svm_command", "svm_table"]


def svm_command(
    data: Data = "digits",
    data_dir: DataDir = None,
    target: Target = None,
    n: Annotated[
        int | None, typer.Option("--n", help="Training rows at most; default: all.")
    ] = None,
    n_test: Annotated[
        int | None, typer.Option(help="Test rows at most; default: all.")
    ] = None,
    lengthscale: Annotated[
        str, typer.Option(help="A number, scale or median.")
    ] = "scale",
    penalty: Annotated[
        float, typer.Option(help="C: what a unit of the hinge loss costs.")
    ] = 10.0,
    n_components: Annotated[
        str, typer.Option(help="Numbers of features.")
    ] = "300,1000,3000",
    methods: Annotated[
        str | None,
        typer.Option(help="Of features, linear-svc, exact, svc; default: all."),
    ] = None,
    exact_rows: Annotated[
        int, typer.Option(help="Training rows of the exact kernels at most.")
    ] = 5000,
    no_peer_above: Annotated[
        int, typer.Option(help="Largest number of features of LinearSVC.")
    ] = 1000,
    memory_limit: Annotated[
        str | None, typer.Option(help='Of randkern\'s models, such as "2GB".')
    ] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    out: Annotated[
        Path, typer.Option(help="Directory for results.json and svm.png.")
    ] = Path("randkern-bench/svm"),
) -> None:
    """Accuracy of support vector machines against seconds, beside scikit-learn.

    KernelSVC on random features beside RBFSampler and LinearSVC, and with the exact
    kernel beside SVC; the same rows, kernel and penalty, each in a process of its own.
    """
    with user_messages():
        from randkern.datasets import load_dataset
        from randkern.plots import save_figure
        from randkern.study.records import write_results

        from ..benchmarks import svm
        from ..benchmarks.svm_figures import plot_svm

        sizes, scale = parse_sizes(n_components), parse_lengthscale(lengthscale)
        if not 0 < penalty < float("inf"):
            raise ValueError(f"--penalty takes a positive number, got {penalty:g}")
        dataset = load_dataset(data, data_dir=data_dir, target=target)
        out.mkdir(parents=True, exist_ok=True)
        with progress_bar() as progress:
            results = svm.run(
                *(dataset, sizes),
                lengthscale=scale,
                C=penalty,
                methods=parse_names(methods),
                n=n,
                n_test=n_test,
                exact_rows=exact_rows,
                no_peer_above=no_peer_above,
                memory_limit=memory_limit,
                seed=seed,
                progress=progress,
            )
        results["arguments"]["data"] = data
        written = write_results(results, out / "results.json")
        figure = save_figure(plot_svm(results), out / "svm.png")
    console = output()
    console.print(svm_table(results))
    for entry in results["skipped"]:
        size = entry["n_components"]
        features = "" if size is None else f", {size:,} features"
        line = f"skipped {svm.METHODS[entry['method']]}{features}: {entry['reason']}"
        console.print(line, soft_wrap=True)
    console.print(f"wrote {written}, {figure}", soft_wrap=True)


def svm_table(results: Mapping[str, Any]) -> Table:
    """Return every contender: accuracy, seconds, support, gap, memory."""
    arguments, data = results["arguments"], results["dataset"]
    table = _table(
        f"gaussian, ℓ = {arguments['lengthscale']:.4g}, C = {arguments['C']:g}: "
        f"{data['name']}, {data['n_test']:,} test rows",
        *("method", "rows", "D", "accuracy", "train", "CPU s", "predict"),
        *("support", "gap", "peak"),
    )
    for record in results["records"]:
        size, support = record["n_components"], record["n_support"]
        gap = record["duality_gap"]
        table.add_row(
            record["label"],
            f"{record['n_train']:,}",
            "" if size is None else f"{size:,}",
            f"{100 * record['test_accuracy']:.2f} %",
            _seconds(record["train_seconds"]),
            _seconds(record["train_cpu_seconds"]),
            _seconds(record["predict_seconds"]),
            "" if support is None else f"{support:,}",
            "" if gap is None else f"{gap:.0e}",
            _megabytes(record["peak_memory_bytes"]),
        )
    table.caption = (
        "train: features and fit, in seconds of the clock and of all processors; "
        "support: rows with weight; gap: the relative duality gap; peak of the whole "
        "process, with imports and data"
    )
    table.caption_justify = "left"
    return table
