"""``randkern fit``: from a table to a model, and a report about it."""

from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer
from rich.table import Table

from . import options
from .console import output, titled_table, user_messages
from .options import Task, TimeLimit
from .tables import described, load, trial_progress

# Held-out rows are this share of all rows, and at most so many.
_SHARE, _MOST = 0.2, 10_000
_SHOWN = 8
# Smallest number of rows of a table.
_LEAST = 10
# Share of the time that remains after reading that the evaluated model gets, with a
# refit and without. The refit, which does not search for a kernel, gets what this model
# and the report leave. Both get at least a share of the limit.
_JUDGED_SHARES, _LEAST_SHARE = {True: 0.5, False: 0.85}, 0.2


def command(
    data: Annotated[
        str,
        typer.Argument(
            help="A .csv, .tsv, .jsonl, .parquet or .arrow file, also compressed; - "
            "for one of these from standard input."
        ),
    ],
    target: Annotated[str, typer.Option(help="The column to predict.")],
    task: Task = None,
    test: Annotated[
        Path | None,
        typer.Option(help="Rows that judge the model; by default a fifth of the data."),
    ] = None,
    categorical: options.Categorical = None,
    numeric: options.Numeric = None,
    drop: options.Drop = None,
    decimal: options.Decimal = ".",
    thousands: options.Thousands = None,
    dayfirst: options.DayFirst = None,
    strip: options.Strip = False,
    time_limit: TimeLimit = 60,
    refit: Annotated[
        bool, typer.Option(help="Fit all rows once the model has been judged.")
    ] = True,
    seed: Annotated[int, typer.Option(help="Of the split and of random features.")] = 0,
    out: Annotated[
        Path, typer.Option(help="Directory for model.skops and report.html.")
    ] = Path("randkern-fit"),
) -> None:
    """Fit a model to a table: no kernel, metric or penalty to choose.

    Prints what was tried and how well the model predicts rows that were held out;
    writes model.skops (for ``randkern predict``), report.html and results.json.
    """
    began = perf_counter()
    with user_messages():
        import randkern

        from ..report import render
        from ..study.records import write_results
        from ..tabular import TabularClassifier, TabularRegressor

        console = output()
        form = options.table_format(
            categorical, numeric, drop, decimal, thousands, dayfirst, strip
        )
        table = load(data, target, task, test=test, form=form)
        split = _split(table, seed)
        console.print(described(table, task), soft_wrap=True)
        classes = table.task == "classification"
        kind = TabularClassifier if classes else TabularRegressor

        def left(share: float) -> float:
            seconds = time_limit - (perf_counter() - began)
            return max(share * seconds, _LEAST_SHARE * time_limit)

        model = kind(time_limit=left(_JUDGED_SHARES[refit]), random_state=seed)
        model.table_schema_ = table.schema
        out.mkdir(parents=True, exist_ok=True)
        judged = _judge(model, table.task, split)
        console.print(_leaderboard(model))
        console.print(_scores(judged))
        written = [out / name for name in ("model.skops", "report.html")]
        model.set_params(time_limit=time_limit)  # as the user set it
        randkern.save(model, written[0])  # in case the report or the refit fails
        page, record = render(judged, table, target), judged.record()
        if refit:
            # Refit the kernels that were evaluated, without a new search.
            model.set_params(time_limit=left(1), warm_start=True)
            with trial_progress(model, "fitting all rows"):
                model.fit(table.X_train, table.y_train)
            model.set_params(time_limit=time_limit, warm_start=False)
            randkern.save(model, written[0])
        written[1].write_text(page, encoding="utf-8")
        results = {
            "command": "fit",
            "arguments": {
                "data": data,
                "target": target,
                "task": table.task,
                "format": asdict(form),
                "time_limit": time_limit,
                "refit": refit,
                "seed": seed,
            },
            **record,
            "model_bytes": written[0].stat().st_size,
        }
        written.append(write_results(results, out / "results.json"))
    console.print(f"wrote {', '.join(map(str, written))}", soft_wrap=True)


def _split(table: Any, seed: int) -> tuple[Any, Any, Any, Any]:
    """Return training and test rows and targets."""
    from ..study.preparation import split_rows

    X, y = table.X_train, table.y_train
    if len(y) < _LEAST:
        raise ValueError(
            f"{table.name} has {len(y)} rows; at least {_LEAST} are needed to fit a "
            "model and to judge it"
        )
    if table.X_test is not None:
        return X, table.X_test, y, table.y_test
    size = min(max(int(_SHARE * len(y)), 1), _MOST)
    train, test, _ = split_rows(y, table.task, size, seed)
    return X.iloc[train], X.iloc[test], y[train], y[test]


def _judge(model: Any, task: str, split: Any) -> Any:
    """Fit a model to training rows; evaluate it and others on test rows."""
    from ..report import Judged, baselines, evaluate
    from ..study.measure import Measurement

    X, X_test, y, y_test = split
    with trial_progress(model, "fitting"), Measurement() as fit:
        model.fit(X, y)
    others = baselines(X, y, task).items()
    return Judged(
        *(model, (X, y), (X_test, y_test)),
        evaluate(model, X_test, y_test),
        {name: evaluate(other, X_test, y_test) for name, other in others},
        *(fit.seconds, fit.peak_bytes),
    )


def _leaderboard(model: Any) -> Table:
    trials = model.leaderboard_
    table = titled_table(f"the best of {len(trials)} kernels tried")
    for name in ("kernel", "numbers", "metric"):
        table.add_column(name)
    for name in ("rows", "error", "seconds"):
        table.add_column(name, justify="right")
    for trial in trials.head(_SHOWN).to_dict("records"):
        table.add_row(
            *(trial[name] for name in ("kernel", "numbers", "metric")),
            *(f"{trial['rows']:,}", f"{trial['error']:.4f}", f"{trial['seconds']:.1f}"),
        )
    return table


def _scores(judged: Any) -> Table:
    from ..report.page import score_rows

    n = len(judged.evaluation.predictions)
    table = titled_table(f"on {n:,} rows held out (± one standard error)")
    table.add_column("")
    for name in ("this model", *judged.others):
        table.add_column(name, justify="right")
    for name, cells in score_rows(judged):
        table.add_row(name, *cells)
    return table
