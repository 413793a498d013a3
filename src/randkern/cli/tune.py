"""``randkern tune``: a grid of hyperparameters, on your data."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from randkern.study.metrics import Metric, metric_of

from . import options
from .console import titled_table
from .studies import Source, named_values, run


def command(
    file: options.File = None,
    data: options.Data = None,
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
    kernels: options.Kernels = "gaussian,optical",
    n_components: Annotated[
        str, typer.Option(metavar="N", help="Number of random features, or exact.")
    ] = "1000",
    alphas: Annotated[
        str,
        typer.Option(metavar="LIST", help="Penalties; auto: nine decades, by kernel."),
    ] = "auto",
    scales: Annotated[
        str,
        typer.Option(
            metavar="LIST", help="Factors that the features are multiplied by."
        ),
    ] = "0.01,0.1,1,10",
    lengthscales: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="Lengthscales; auto: 1/8 to 8 times one that suits the data's spread.",
        ),
    ] = "auto",
    biases: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="Biases of the optical kernel; auto: 0 to 16 mean squared norms.",
        ),
    ] = "auto",
    validation: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="loo (leave-one-out, in closed form), holdout (a quarter of the "
            "training rows), or a number of folds.",
        ),
    ] = "loo",
    optuna: Annotated[
        bool,
        typer.Option(
            "--optuna",
            help="Let Optuna propose lengthscales or biases between the ends of their "
            "grid.",
        ),
    ] = False,
    trials: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Proposals of --optuna for each kernel."),
    ] = 20,
    metric: options.Metric = None,
    memory_limit: options.MemoryLimit = None,
    time_limit: options.StudyLimit = 120,
    seed: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Seed of the features, the folds and Optuna."
        ),
    ] = 0,
    save: options.Save = None,
    out: Annotated[
        Path,
        typer.Option(metavar="FOLDER", help="Folder for results.json and tune.png."),
    ] = Path("randkern-tune"),
) -> None:
    """Search for the penalty, and the lengthscale or bias.

    Every setting of a kernel is decomposed once for all penalties and scales. The
    best of each kernel is fitted on all training rows and scored on test rows (a
    quarter, held out, where the data has none). Prints a table; writes results.json
    and tune.png.
    """
    from ..study.kernel_choices import parse_kernels
    from ..study.tune import tune

    measure = partial(
        tune,
        kernels=[choice.label for choice in parse_kernels(kernels)],
        n_components=_parse_size(n_components),
        alphas=_parse_numbers(alphas, "--alphas"),
        scales=_parse_numbers(scales, "--scales", auto=False) or [],
        lengthscales=_parse_numbers(lengthscales, "--lengthscales"),
        biases=_parse_numbers(biases, "--biases"),
        validation=int(validation) if validation.isdecimal() else validation,
        n_trials=trials if optuna else None,
        memory_limit=options.parse_bytes(memory_limit),
        random_state=seed,
        metric=metric,
    )
    form = options.table_format(
        categorical, numeric, drop, decimal, thousands, dayfirst, strip
    )
    source = Source(
        options.table_of(file, data), target, task, data_dir, test, form, groups, time
    )
    run(measure, source, time_limit, save, out, _print)


def _parse_numbers(text: str, option: str, *, auto: bool = True) -> list[float] | None:
    """Read comma-separated numbers, or ``auto`` (None)."""
    if auto and text.strip().lower() == "auto":
        return None
    try:
        return [float(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        kind = "auto or numbers" if auto else "numbers"
        raise ValueError(
            f"{option} takes {kind} separated by commas, got {text!r}; for instance "
            "0.1,1,10"
        ) from error


def _parse_size(text: str) -> int | None:
    """Read a number of features, or ``exact`` (None)."""
    plain = text.strip().lower().replace("_", "")
    if plain == "exact":
        return None
    if not plain.isdecimal() or int(plain) < 1:
        raise ValueError(
            "--n-components takes a positive whole number or exact, got "
            f"{text!r}; for instance 1000"
        )
    return int(plain)


def _settings_table(results: Mapping[str, Any]) -> Table:
    """Return a table with the best cell for each lengthscale or bias."""
    from ..study.tune import preference

    described = results["dataset"]
    metric = _metric(results)
    table = titled_table(
        f"{described['name']}: {metric.title}, "
        f"{described['validation']}, {described['n_train']:,} training rows",
    )
    table.add_column("kernel")
    validated = f"validation {metric.heading}"
    for heading in ("setting", "scale", "alpha", validated, "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    kernel = None
    for setting in results["settings"]:
        if setting["kernel"] != kernel:
            table.add_section()
        kernel, values = setting["kernel"], setting["hyperparameters"]
        best = min(
            (
                record
                for record in results["records"]
                if record["kernel"] == kernel
                and values.items() <= record["hyperparameters"].items()
            ),
            key=preference,
        )
        named = best["hyperparameters"]
        opened = {
            name: named[name] for name in ("lengthscale", "bias") if name in named
        }
        table.add_row(
            kernel,
            named_values(opened),
            f"{named['scale']:.4g}",
            f"{named['alpha']:.4g}",
            metric.of_loss(best["validation_error"]),
            f"{setting['seconds']:.3f}",
        )
    return table


def _metric(results: Mapping[str, Any]) -> Metric:
    """Return the metric that was asked for, or that of the task."""
    named = results["arguments"].get("metric")
    return metric_of(named, results["dataset"]["task"])


def _print(console: Console, results: Mapping[str, Any]) -> None:
    """Print the tables of settings and of the best, which may be at an edge."""
    share = results["dataset"]["task"] == "classification"
    if results["settings"]:
        console.print(_settings_table(results))
    if results["best"]:
        console.print(_scores(results, share))
    for kernel, best in results["best"].items():
        console.print(f"{kernel}: {named_values(best['hyperparameters'])}")
        if best["at_edge"]:
            console.print(
                f"{kernel}: the best {' and '.join(best['at_edge'])} is at the edge of "
                "the grid; a wider one may be better"
            )


def _scores(results: Mapping[str, Any], share: bool) -> Table:
    """Return a table of test scores of the best of each kernel and of baselines."""
    table = titled_table(
        f"the best on {results['dataset']['n_test']:,} test rows "
        "(± one standard error)",
    )
    table.add_column("")
    metric = _metric(results)
    validated = f"validation {metric.heading}"
    # The metric that was asked for comes first.
    others = ("log_loss", "auc") if share else ()
    scores = list(dict.fromkeys([metric.score, "test_error", *others]))
    headings = {"test_error": "test error", "log_loss": "log loss", "auc": "AUC"}
    for heading in (
        validated,
        *(headings.get(name, metric.heading) for name in scores),
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, values in {**results["baselines"], **results["best"]}.items():
        loss = values.get("validation_error")
        table.add_row(
            name,
            "" if loss is None else metric.of_loss(loss),
            *(_score(values, score, share) for score in scores),
        )
    return table


def _score(values: Mapping[str, Any], score: str, share: bool) -> str:
    """Return a score as text, that of the test error with its standard error."""
    value = values.get(score)
    if value is None:
        return ""
    if score != "test_error":
        return f"{value:.4f}"
    if share:
        return f"{100 * value:.2f} ± {100 * values['standard_error']:.2f} %"
    return f"{value:.4f} ± {values['standard_error']:.4f}"
