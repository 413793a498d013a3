"""``randkern compare``: error against the number of features, on your data."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from randkern.study.metrics import METRICS, Metric, by_setting, metric_of

from . import options
from .console import output, phase, progress_bar, started, titled_table
from .tables import described, load

_MAX_WIDTH = 1000
_COSTS = ("fit s", "test s", "MB")
# Scores beside the metric that was asked for.
_OTHERS = [METRICS[name] for name in ("error", "logloss", "auc", "nrmse")]


@options.reads_files(without=["text"])
def command(
    file: options.File = None,
    data: options.Data = None,
    data_dir: options.DataDir = None,
    target: options.Target = None,
    task: options.Task = None,
    test: options.Test = None,
    groups: options.Groups = None,
    time: options.Time = None,
    *,
    form: Any,
    kernels: options.Kernels = "gaussian,laplacian,optical",
    n_components: Annotated[
        str, typer.Option(metavar="N,N,...", help="Numbers of random features.")
    ] = "30,100,300,1000,3000",
    exact: Annotated[bool, typer.Option(help="Fit the exact kernels too.")] = True,
    features: Annotated[
        str,
        typer.Option(metavar="NAMES", help="random, nystrom (landmarks), or both."),
    ] = "random,nystrom",
    alpha: Annotated[
        str,
        typer.Option(
            metavar="ALPHA", help="Ridge penalty; auto chooses one per kernel."
        ),
    ] = "auto",
    seeds: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Draws of the random features."),
    ] = 3,
    metric: options.Metric = None,
    memory_limit: options.MemoryLimit = None,
    time_limit: options.StudyLimit = 120,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File for the best model, fitted to the training rows; randkern "
            "predict reads it.",
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(metavar="FOLDER", help="Folder for results.json and compare.png."),
    ] = Path("randkern-compare"),
) -> None:
    """Measure how the error falls with the number of features.

    Hyperparameters are chosen once per kernel on validation rows, then every
    model is fitted on all training rows and scored on test rows (a quarter, held
    out, where the data has none). Prints a table; writes results.json and
    compare.png.
    """
    import randkern

    from .._files import check_writable
    from ..study.compare import compare
    from ..study.fits import fitted_to_training_rows
    from ..study.kernel_choices import parse_kernels
    from ..study.records import write_results

    measured = partial(
        compare,
        kernels=[choice.label for choice in parse_kernels(kernels)],
        n_components=options.parse_sizes(n_components),
        exact=exact,
        features=[name.strip() for name in features.split(",")],
        alpha=options.parse_alpha(alpha),
        n_seeds=seeds,
        memory_limit=options.parse_bytes(memory_limit),
        metric=metric,
    )
    name = options.table_of(file, data)
    console = output()
    deadline = started(time_limit)
    with phase(deadline, f"reading {name}"):
        dataset = load(name, target, task, data_dir, test, form, groups, time)
    if target is not None:
        console.print(described(dataset, task), soft_wrap=True)
    out.mkdir(parents=True, exist_ok=True)
    check_writable(out)
    if save is not None:
        check_writable(save.parent)
    with progress_bar(deadline) as progress:
        results = measured(
            dataset, time_limit=deadline.limit, began=deadline.began, progress=progress
        )
    results["arguments"] |= {
        "data": name,
        "target": target,
        "task": task,
        "data_dir": None if data_dir is None else str(data_dir),
        "test": None if test is None else str(test),
        "groups": groups,
        "time": time,
        "format": asdict(form),
    }
    if test is not None:
        results["dataset"]["split"] = f"the rows of {test.name}"
    # A figure of an earlier run is not of these results.
    figure = out / "compare.png"
    written = [write_results(results, out / "results.json", outdated=[figure])]
    written += _figure(results, figure)
    about = results["dataset"]
    prepared = f"test rows: {about['split']}; {about['preprocessing']}"
    console.print(prepared, soft_wrap=True)
    _print(console, results)
    if results["skipped"]:
        console.print(_skipped(results), soft_wrap=True)
    for note in results["warnings"]:
        console.print(f"warning, {note['kernel']}, {_setting(note)}: {note['message']}")
    if save is not None:
        if not results["records"]:
            raise ValueError(
                "all models were skipped, so none can be saved; allow more time or "
                "memory"
            )
        best = _best_records(results, metric_of(metric, about["task"]))[0]
        model = fitted_to_training_rows(dataset, best, results["arguments"])
        model.table_schema_ = dataset.schema
        randkern.save(model, save)
        written.append(save)
    console.print(f"wrote {', '.join(map(str, written))}", soft_wrap=True)


def _results_table(results: Mapping[str, Any], costs: Sequence[str]) -> Table:
    """Return the records as a table, one row per kernel and number of features.

    `costs` are the columns of times and memory.

    Baselines come first, then kernels, the best one first, each with its numbers of
    features in ascending order. Scores are means over seeds, ± their standard
    deviation; ± rows is the standard error of the test rows; times are medians, memory
    the maximum.
    """
    described = results["dataset"]
    task = described["task"]
    metric = metric_of(results["arguments"].get("metric"), task)
    has_error = metric.score == "test_error"  # whose standard error is known
    others = [other for other in _OTHERS if other.task == task and other != metric]
    table = titled_table(
        f"{described['name']}: {metric.title} on {described['n_test']:,} test rows, "
        f"{described['n_train']:,} training rows, {described['n_features']:,} columns",
        caption="; ".join(
            [f"± after {metric.heading}: over seeds"]
            * (results["arguments"]["n_seeds"] > 1)
            + ["± rows: one standard error of the test rows"] * has_error
            + ["MB: peak memory"] * ("MB" in costs)
            + ["!: see the warning"] * bool(results["warnings"])
            + ["AUC: where the test rows have all classes"]
            * (described.get("n_classes", 0) > 2)
        ),
        caption_justify="left",
    )
    table.add_column("kernel", overflow="fold")
    headings = ["features", metric.heading, *["± rows"] * has_error]
    headings += [other.heading for other in others]
    for heading in (*headings, *costs):
        table.add_column(heading, justify="right", no_wrap=True)

    warned = {(note["kernel"], note["n_components"]) for note in results["warnings"]}
    cells = partial(_cells, metric=metric, others=others, costs=costs)
    for name, record in results["baselines"].items():
        table.add_row(name, *cells([record], 0))
    settings = by_setting(results["records"])
    best: dict[str, float] = {}
    for (kernel, _), records in settings.items():
        loss = metric.loss(_mean(records, metric.score))
        best[kernel] = min(loss, best.get(kernel, loss))
    for kernel in sorted(best, key=best.__getitem__):
        table.add_section()
        sizes = [size for name, size in settings if name == kernel]
        # The exact kernel comes last, as the limit of the others.
        for size in sorted(sizes, key=lambda size: size or float("inf")):
            named, *others_of_row = cells(settings[kernel, size], size)
            mark = "! " * ((kernel, size) in warned)
            table.add_row(kernel, f"{mark}{named}", *others_of_row)
    return table


def _cells(
    records: Sequence[Mapping[str, Any]],
    size: int | None,
    metric: Metric,
    others: Sequence[Metric],
    costs: Sequence[str],
) -> list[str]:
    """Return the cells for one kernel and number of features, 0 for a baseline."""
    mean = partial(_mean, records)
    score = metric.text(mean(metric.score))
    values = [record[metric.score] for record in records]
    if len(values) > 1 and None not in values:  # one seed has no deviation
        score += f" ± {metric.text(pstdev(values))}"
    errors = [metric.text(mean("standard_error"))] * (metric.score == "test_error")
    memory = max(record["peak_memory_bytes"] for record in records) / 1e6
    known_costs = {
        "fit s": _seconds([record["fit_seconds"] for record in records]),
        "test s": _seconds([record["predict_seconds"] for record in records]),
        "MB": f"{memory:,.0f}",
    }
    return [
        "exact" if size is None else f"{size:,}" if size else "",
        score,
        *errors,
        *(other.text(mean(other.score)) for other in others),
        *(known_costs[name] for name in costs),
    ]


def _best_records(
    results: Mapping[str, Any], metric: Any
) -> Sequence[Mapping[str, Any]]:
    """Return the records of the kernel and size with the best mean of a metric."""
    return min(
        by_setting(results["records"]).values(),
        key=lambda own: float(metric.loss(_mean(own, metric.score))),
    )


def _best(results: Mapping[str, Any]) -> str:
    """Return a line with the best kernel, and the linear model beside it."""
    metric = metric_of(results["arguments"].get("metric"), results["dataset"]["task"])
    own = _best_records(results, metric)
    size = own[0]["n_components"]
    named = "exact" if size is None else f"{size:,} features"
    text = f"best: {own[0]['kernel']}, {named}, {metric.heading} "
    text += metric.text(_mean(own, metric.score))
    linear = results["baselines"].get("linear model", {}).get(metric.score)
    return text if linear is None else f"{text}; linear model {metric.text(linear)}"


def _mean(records: Sequence[Mapping[str, Any]], score: str) -> float | None:
    """Return the mean of the values of a score that are defined."""
    values = [record[score] for record in records if record.get(score) is not None]
    return fmean(values) if values else None


def _seconds(values: Sequence[float]) -> str:
    value = median(values)
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def _print(console: Console, results: Mapping[str, Any]) -> None:
    """Print the table and the hyperparameters that were chosen."""
    if results["records"]:
        wide = console.options.update(width=_MAX_WIDTH)
        for n in range(len(_COSTS), -1, -1):  # as many columns as fit
            table = _results_table(results, _COSTS[:n])
            if Measurement.get(console, wide, table).maximum <= console.width:
                break
        console.print(table)
        console.print(_best(results), soft_wrap=True)
    # Features and landmarks of a kernel have the same ones.
    chosen = {
        record["kernel"].partition(",")[0]: record["hyperparameters"]
        for record in results["records"]
    }
    for kernel, values in chosen.items():
        console.print(f"{kernel}: {_named_values(values)}")


def _named_values(values: Mapping[str, float]) -> str:
    """Return hyperparameters as text, such as ``lengthscale 2, alpha 0.1``."""
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items())


def _skipped(results: Mapping[str, Any]) -> str:
    """Return a line about all that was skipped, with the reason of the first."""
    known = {(each["kernel"], each["n_components"]) for each in results["records"]}
    kernels: dict[str, dict[str, None]] = {}
    for note in results["skipped"]:
        if (note["kernel"], note["n_components"]) not in known:
            kernels.setdefault(_setting(note), {})[note["kernel"]] = None
    texts = [f"{name} ({'; '.join(own)})" for name, own in kernels.items()]
    if any((n["kernel"], n["n_components"]) in known for n in results["skipped"]):
        texts.append("some seeds")
    reasons = list(dict.fromkeys(note["reason"] for note in results["skipped"]))
    others = " (results.json has the reason of each)" * (len(reasons) > 1)
    return f"skipped {', '.join(texts)}: {reasons[0]}{others}"


def _setting(note: Mapping[str, Any]) -> str:
    """Describe the model that a note is about."""
    size = note["n_components"]
    return "exact" if size is None else f"{size:,} features"


def _figure(results: Mapping[str, Any], path: Path) -> list[Path]:
    """Write the figure; return no path if matplotlib or records are missing."""
    from ..plots.records import plot_compare, save_figure
    from ..study.metrics import metric_of

    records, about = results["records"], results["dataset"]
    if not records:
        return []
    named = metric_of(results["arguments"].get("metric"), about["task"])
    try:
        figure = plot_compare(
            records,
            dataset=about["name"],
            score=named.score,
            metric=f"{named.title.removesuffix(' (%)')} on test rows",
            percent=named.scale == 100,
            baseline=results["baselines"].get("linear model"),
        )
    except ModuleNotFoundError:
        typer.echo(
            'no figure: matplotlib is not installed; run: pip install "randkern[plot]"',
            err=True,
        )
        return []
    return [save_figure(figure, path)]
