"""``randkern fit``: from a table to a model, and a report about it."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer
from rich.table import Table

from .console import output, titled_table, user_messages
from .options import Task, TimeLimit
from .tables import described, load, trial_progress

__all__ = ["command"]

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

        from ..study.records import write_results
        from ..tabular import TabularClassifier, TabularRegressor

        console = output()
        table = load(data, target, task, test=test)
        split = _split(table, seed)
        console.print(described(table, task), soft_wrap=True)
        classes = table.task == "classification"
        kind = TabularClassifier if classes else TabularRegressor

        def left(share: float) -> float:
            seconds = time_limit - (perf_counter() - began)
            return max(share * seconds, _LEAST_SHARE * time_limit)

        model = kind(time_limit=left(_JUDGED_SHARES[refit]), random_state=seed)
        out.mkdir(parents=True, exist_ok=True)
        judged = _Judged.of(model, table.task, split)
        console.print(_leaderboard(model))
        console.print(_scores(judged.evaluation, judged.others))
        written = [out / name for name in ("model.skops", "report.html")]
        model.set_params(time_limit=time_limit)  # as the user set it
        randkern.save(model, written[0])  # in case the report or the refit fails
        page, record = judged.page(table, target), judged.record()
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


@dataclass(frozen=True)
class _Judged:
    """A model fitted to training rows, and its and other models' test scores."""

    model: Any
    train: tuple[Any, Any]
    test: tuple[Any, Any]
    evaluation: Any
    others: dict[str, Any]
    seconds: float
    peak_bytes: int

    @classmethod
    def of(cls, model: Any, task: str, split: Any) -> "_Judged":
        from ..report import baselines, evaluate
        from ..study.measure import Measurement

        X, X_test, y, y_test = split
        with trial_progress(model, "fitting"), Measurement() as fit:
            model.fit(X, y)
        others = baselines(X, y, task).items()
        return cls(
            *(model, (X, y), (X_test, y_test)),
            evaluate(model, X_test, y_test),
            {name: evaluate(other, X_test, y_test) for name, other in others},
            *(fit.seconds, fit.peak_bytes),
        )

    def page(self, table: Any, target: str) -> str:
        """Return the report."""
        from ..report import render, summarise

        cost = {
            "seconds to fit the training rows": f"{self.seconds:.1f}",
            "largest memory": f"{self.peak_bytes / 1e6:,.0f} MB",
            "training rows": f"{len(self.train[1]):,}",
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # from fits to few rows
            return render(
                self.model,
                summarise(table.X_train, table.y_train, table.task),
                *(self.train, self.test, self.evaluation, self.others),
                title=f"{target} of {table.name}",
                target=target,
                cost=cost,
            )

    def record(self) -> dict[str, Any]:
        """Return its entry in results.json."""
        model, names = self.model, self.train[0].columns
        return {
            "n_train": len(self.train[1]),
            "n_test": len(self.test[1]),
            "scores": _defined(self.evaluation.scores),
            "standard_error": self.evaluation.standard_error,
            "baselines": {
                name: _defined(other.scores) for name, other in self.others.items()
            },
            "leaderboard": [
                _defined(trial) for trial in model.leaderboard_.to_dict("records")
            ],
            "importances": dict(
                zip(names, model.feature_importances_.tolist(), strict=True)
            ),
            "fit_seconds": self.seconds,
            "peak_memory_bytes": self.peak_bytes,
        }


def _defined(values: dict[str, Any]) -> dict[str, Any]:
    """Return values with NaN replaced by None, as JSON has no NaN."""
    return {name: None if value != value else value for name, value in values.items()}


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


def _scores(evaluation: Any, others: dict[str, Any]) -> Table:
    from ..report.page import score_rows

    n = len(evaluation.predictions)
    table = titled_table(f"on {n:,} rows held out (± one standard error)")
    table.add_column("")
    for name in ("this model", *others):
        table.add_column(name, justify="right")
    for name, cells in score_rows(evaluation, others):
        table.add_row(name, *cells)
    return table
