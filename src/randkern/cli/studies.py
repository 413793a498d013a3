"""What ``randkern compare`` and ``randkern tune`` share: a study from data to files."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import typer
from rich.console import Console

from .console import output, phase, progress_bar, started
from .tables import described, load


class Source(NamedTuple):
    """The arguments of :func:`.tables.load`."""

    data: str
    target: str | None
    task: str | None
    data_dir: Path | None
    test: Path | None
    form: Any
    groups: str | None
    time: str | None


def run(
    measure: Callable[..., dict[str, Any]],
    source: Source,
    time_limit: float,
    save: Path | None,
    out: Path,
    show: Callable[[Console, Mapping[str, Any]], None],
) -> None:
    """Run a study on a data set; write results, figure and best model; print them.

    `measure` returns results from a data set and the keywords `time_limit`, `began` and
    `progress`; `show` prints their tables.
    """
    from .._files import check_writable
    from ..study.records import write_results

    console = output()
    deadline = started(time_limit)
    with phase(deadline, f"reading {source.data}"):
        dataset = load(*source)
    if source.target is not None:
        console.print(described(dataset, source.task), soft_wrap=True)
    out.mkdir(parents=True, exist_ok=True)
    check_writable(out)
    if save is not None:
        check_writable(save.parent)
    with progress_bar(deadline) as progress:
        results = measure(
            dataset, time_limit=deadline.limit, began=deadline.began, progress=progress
        )
    results["arguments"].update(
        (name, str(value) if isinstance(value, Path) else value)
        for name, value in source._asdict().items()
        if name != "form"
    )
    results["arguments"]["format"] = asdict(source.form)
    if source.test is not None:
        results["dataset"]["split"] = f"the rows of {source.test.name}"
    # A figure of an earlier run is not of these results.
    figure = out / f"{results['command']}.png"
    saved = "" if save is None else _save_winner(dataset, results, save)
    written = [write_results(results, out / "results.json", outdated=[figure])]
    written += _figure(results, figure)
    about = results["dataset"]
    prepared = f"test rows: {about['split']}; {about['preprocessing']}"
    console.print(prepared, soft_wrap=True)
    show(console, results)
    if results["skipped"]:
        console.print(_skipped(results["skipped"]), soft_wrap=True)
    for note in results["warnings"]:
        console.print(f"warning, {note['kernel']}, {_setting(note)}: {note['message']}")
    if save is not None:
        console.print(saved, soft_wrap=True)
        written.append(save)
    console.print(f"wrote {', '.join(map(str, written))}", soft_wrap=True)


def named_values(values: Mapping[str, float]) -> str:
    """Return hyperparameters as text, such as ``lengthscale 2, alpha 0.1``."""
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items())


def _skipped(notes: Sequence[Mapping[str, Any]]) -> str:
    """Return a line about all that was skipped, with the reason of the first."""
    settings: dict[str, list[str]] = {}
    for note in notes:
        settings.setdefault(note["kernel"], []).append(_setting(note))
    listed = "; ".join(f"{name}, {', '.join(own)}" for name, own in settings.items())
    reasons = list(dict.fromkeys(note["reason"] for note in notes))
    others = " (results.json has the reason of each)" * (len(reasons) > 1)
    return f"skipped {listed}: {reasons[0]}{others}"


def _setting(note: Mapping[str, Any]) -> str:
    """Describe the model that a note is about."""
    if "hyperparameters" in note:
        return named_values(note["hyperparameters"]) or "its only setting"
    size = note["n_components"]
    return "exact" if size is None else f"{size:,} features"


def _figure(results: Mapping[str, Any], path: Path) -> list[Path]:
    """Write the figure; return no path if matplotlib or records are missing."""
    from ..plots.records import plot_compare, plot_tune, save_figure
    from ..study.metrics import metric_of

    records, about = results["records"], results["dataset"]
    if not records:
        return []
    named = metric_of(results["arguments"].get("metric"), about["task"])
    options: Any = {"dataset": about["name"], "percent": named.scale == 100}
    try:
        if results["command"] == "compare":
            linear = results["baselines"].get("linear model")
            metric = f"{named.title.removesuffix(' (%)')} on test rows"
            options |= {"score": named.score, "metric": metric, "baseline": linear}
            figure = plot_compare(records, **options)
        else:
            metric = f"{named.title}, {about['validation']}"
            options |= {"metric": metric, "larger_is_better": named.larger_is_better}
            figure = plot_tune(records, best=results["best"], **options)
    except ModuleNotFoundError:
        typer.echo(
            'no figure: matplotlib is not installed; run: pip install "randkern[plot]"',
            err=True,
        )
        return []
    return [save_figure(figure, path)]


def _save_winner(dataset: Any, results: dict[str, Any], path: Path) -> str:
    """Fit and save the best model; return a line that describes it."""
    import randkern

    from ..study.fits import fit_winner, winner

    model = fit_winner(dataset, results)
    model.table_schema_ = dataset.schema
    randkern.save(model, path)
    best = winner(results) or {}
    results["saved"] = best
    size = best["n_components"]
    features = "the exact kernel" if size is None else f"{size:,} features"
    if best["features"] == "nystrom":
        features = f"{size:,} landmarks"
    named = named_values(best["hyperparameters"])
    return f"saved the best, {best['kernel']} with {features} ({named})"
