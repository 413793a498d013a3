"""``randkern fit``: from a table to a model, and a report about it."""

import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from randkern._extras import import_extra
from randkern.exceptions import DeadlineWarning

from . import options
from .console import output, phase, started, titled_table
from .options import Task, TimeLimit
from .tables import described, load

if TYPE_CHECKING:
    from ..reporting.deadline import Deadline

# Held-out rows are this share of all rows, and at most so many.
_SHARE = 0.2
_MAX_HELD_OUT = 10_000
_SHOWN = 8
# Smallest number of rows of a table.
_MIN_ROWS = 10
# Up to this many rows, matrices are so small that the threads of NumPy's BLAS, SciPy's
# and OpenMP wait for each other longer than they compute.
_SMALL_TABLE = 3000
# Seconds for a trial of the logarithm of the target.
_TRIAL_SECONDS = 1.5
# Seconds for writing the files once all is known.
_WRITING_SECONDS = 0.3
# Free space that files need, as a multiple of the table's size in memory: exact models
# hold encoded rows, and are written beside the old one.
_SPACE_SHARE = 4


@options.reads_files()
def command(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A .csv, .tsv, .xlsx, .jsonl or .parquet file, also compressed; "
            "- for one of these from standard input.",
        ),
    ],
    target: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The column to predict (required)."),
    ] = None,
    task: Task = None,
    test: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Table with the test rows; by default a fifth of DATA."
        ),
    ] = None,
    groups: options.Groups = None,
    time: options.Time = None,
    *,
    form: Any,
    log_target: options.LogTarget = False,
    metric: options.ShownMetric = None,
    time_limit: TimeLimit = 60,
    refit: Annotated[
        bool,
        typer.Option(
            help="Once the model has been scored, fit it to the held-out rows too; "
            "the rows of --test are never fitted."
        ),
    ] = True,
    seed: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Seed of the split and of random features."
        ),
    ] = 0,
    out: Annotated[
        Path,
        typer.Option(metavar="FOLDER", help="Folder for model.skops and report.html."),
    ] = Path("randkern-fit"),
) -> None:
    """Fit a model to a table: no kernel, metric or penalty to choose.

    Prints what was tried and how well the model predicts rows that were held out;
    writes model.skops (for randkern predict), report.html and results.json.
    """
    for module, extra in (("jinja2", "cli"), ("matplotlib", "plot")):
        import_extra(module, "randkern fit", extra)  # before any work
    from ..study.metrics import metric_of
    from ..study.splitting import Splitting

    # With --test, all of the data train the model that is scored.
    refit = refit and test is None
    console = output()
    deadline = started(time_limit)
    with phase(deadline, f"reading {data}"):
        table = load(
            data, target, task, None, test, form, groups, time, read_texts=True
        )
    if table.schema is None:
        raise ValueError(
            f"{data} is a data set of arrays, and randkern fit reads tables in files; "
            "randkern compare takes data sets by their names"
        )
    asked = metric_of(metric, table.task)
    splitting = Splitting.of(table.groups, table.time)
    parts = _split(table, splitting, seed)
    console.print(described(table, task), soft_wrap=True)
    files = _Files(out, n_bytes=_SPACE_SHARE * int(table.X_train.memory_usage().sum()))
    summary = _summary(table, groups, time)
    model = _model(table, time_limit, seed, log_target)
    arguments = {
        "data": data,
        "target": target,
        "task": table.task,
        "groups": groups,
        "time": time,
        "log_target": log_target,
        "metric": metric,
        "format": asdict(form),
        "time_limit": time_limit,
        "refit": refit,
        "seed": seed,
    }
    job = _Job(model, table, splitting, parts, summary, asked, arguments)
    with files.described_if_interrupted(), threads_for(len(table.y_train)):
        _run(job, files, deadline, console)


def threads_for(n_rows: int) -> Any:
    """Return a context with one thread of BLAS and OpenMP if a table is small."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1 if n_rows <= _SMALL_TABLE else None)


@dataclass(frozen=True)
class _Job:
    """A model, the table to fit it to, how its rows are divided, and the arguments."""

    model: Any
    table: Any
    splitting: Any
    parts: tuple[Any, Any, "_HeldOut"]
    summary: Any
    metric: Any
    arguments: dict[str, Any]


def _run(job: _Job, files: "_Files", deadline: "Deadline", console: Any) -> None:
    """Fit, score, report and refit, and write what is known after each step."""
    from ..reporting.baseline_models import baselines, planned_seconds
    from ..reporting.learning_curve import logarithm_advice
    from ..reporting.page import contents, panels
    from ..study.measure import Measurement
    from ..tabular.html_summary import fitted_rows

    model = job.model
    task = job.table.task
    arguments = job.arguments
    (X, X_test, y, _), known, _ = job.parts
    limit = deadline.limit
    seconds = deadline.seconds_of_fits(
        X,
        0 if task == "regression" else len(set(y.tolist())),
        len(X_test),
        is_refitted=arguments["refit"],
        baselines=sum(planned_seconds(X, y, task, limit).values()),
    )
    with Measurement() as measurement:
        doing = f"fitting {len(y):,} training rows"
        _fit(model, seconds[0], X, y, known, deadline, doing)
    fitted = fitted_rows(model) or f"fitted to the {len(y):,} rows that train it"
    files.write_model(model, fitted)  # whatever happens to the rest
    # A fit without a search takes no longer than one with it.
    deadline.reserved = min(seconds[1], measurement.seconds) + _WRITING_SECONDS
    with phase(deadline, "fitting baselines"):
        others = baselines(X, y, task, model.text_columns, limit)
    with phase(deadline, "scoring held-out rows"):
        evaluated = _evaluated(job, measurement, others)
        in_time = deadline.plans(_TRIAL_SECONDS)
        advice = logarithm_advice(evaluated) if in_time else ""
    _print_tables(console, evaluated, task)
    if advice:
        warnings.warn(advice, UserWarning, stacklevel=1)
    target = arguments["target"]
    with phase(deadline, "importances and figures of the report"):
        figures = panels(evaluated, target, deadline)
    is_late = arguments["refit"] and not seconds[1]
    _warn_of_late(evaluated, figures, deadline.limit, is_late)
    title = f"Predicting {target} from {job.table.name}"
    command = shlex.join(["randkern", *sys.argv[1:]])
    page = contents(evaluated, job.summary, title, figures, command, advice)
    results = {"command": "fit", "arguments": arguments, **evaluated.record()}
    if evaluated.importances is not None:
        files.write_model(model, fitted)
    files.write_report(page, results)
    if seconds[1]:
        fitted = _refit(model, job.table, job.splitting, deadline, seconds[1])
        files.write_model(model, fitted)
        page["cut"] = list(dict.fromkeys([*page["cut"], *model.fit_report_["cut"]]))
        files.write_report(page, results)
    console.print(files.outcome, soft_wrap=True)
    console.print(f"wrote {files}", soft_wrap=True)


def _summary(table: Any, groups: str | None, time: str | None) -> Any:
    """Describe a table; warn of signs that held-out rows mislead."""
    from ..reporting.summary import summarise

    dependence = "group" if groups else "time" if time else None
    summary = summarise(
        table.X_train, table.y_train, table.task, table.schema, dependence
    )
    for leak in summary.leaks:
        warnings.warn(leak, UserWarning, stacklevel=1)
    return summary


def _model(table: Any, time_limit: float, seed: int, log_target: bool) -> Any:
    """Return the model to fit to a table."""
    from ..tabular import TabularClassifier, TabularRegressor

    kind = {"classification": TabularClassifier, "regression": TabularRegressor}
    texts = [] if table.schema is None else table.schema.free_texts
    texts = [name for name in texts if name in table.X_train.columns]
    model = kind[table.task](time_limit, text_columns=texts, random_state=seed)
    if log_target:
        model.set_params(target_transform=_log_transform(table))
    model.table_schema_ = table.schema
    return model


def _log_transform(table: Any) -> str:
    """Return the logarithm that suits a target; raise if none does."""
    if table.task != "regression":
        raise ValueError(
            "--log-target needs a numeric target, but the target is a class; omit it, "
            "or pass --task regression"
        )
    least = float(table.y_train.min())
    if least < 0:
        raise ValueError(
            f"--log-target needs targets of at least 0, got {least:g}; omit it"
        )
    return "log" if least > 0 else "log1p"


class _Files:
    """The model, report and results in a folder, which belong together.

    The report and the results of an earlier model are removed just before another
    model takes its place, and results are written last: whenever the process is
    killed, what is there belongs together, and only results tell that all is.
    """

    def __init__(self, folder: Path, n_bytes: int) -> None:
        from .._files import check_writable

        if folder.exists() and not folder.is_dir():
            raise ValueError(f"--out {folder} is a file; pass a folder")
        folder.mkdir(parents=True, exist_ok=True)
        check_writable(folder, n_bytes)
        self.model = folder / "model.skops"
        self.report = folder / "report.html"
        self.results = folder / "results.json"
        self._written: list[Path] = []
        self._fitted = ""

    def __str__(self) -> str:
        return ", ".join(map(str, self._written))

    @property
    def outcome(self) -> str:
        """Say to which rows the model in the file is fitted."""
        return f"{self.model.name} is {self._fitted}."

    @contextmanager
    def described_if_interrupted(self) -> Iterator[None]:
        """Say what has been written if the block is interrupted."""
        try:
            yield
        except KeyboardInterrupt as interruption:
            state = "nothing has been written"
            if self._written:
                state = f"wrote {self}; {self.outcome}"
            raise KeyboardInterrupt(state) from interruption

    def write_model(self, model: Any, fitted: str) -> None:
        """Write the model, which is `fitted` to some rows."""
        from .._files import atomic_write
        from ..persistence import write

        with atomic_write(self.model, outdated=(self.results, self.report)) as file:
            write(model, file)
        self._written = [self.model]
        self._fitted = fitted

    def write_report(self, page: dict[str, Any], results: dict[str, Any]) -> None:
        """Write what belongs to the model that was written last.

        `page` has the contents of the report.
        """
        from .._files import atomic_write
        from ..reporting.page import render
        from ..study.records import write_results

        with atomic_write(self.report) as file:
            file.write(render(page, self.outcome).encode())
        self._written = [self.model, self.report]
        n_bytes = self.model.stat().st_size
        further = {"model": self._fitted, "model_bytes": n_bytes}
        write_results({**results, **further}, self.results)
        self._written = [self.model, self.report, self.results]


@dataclass(frozen=True)
class _HeldOut:
    """Which rows are held out, and the clusters in which their errors are alike."""

    described: str = ""
    clusters: Any = None


def _split(table: Any, splitting: Any, seed: int) -> tuple[Any, Any, Any]:
    """Return training and test rows and targets.

    Also how the training rows are divided, and which rows the test rows are.
    """
    X, y = table.X_train, table.y_train
    if len(y) < _MIN_ROWS:
        raise ValueError(
            f"{table.name} has {len(y)} rows; at least {_MIN_ROWS} are needed to fit "
            "and validate a model"
        )
    if table.X_test is not None:
        return (X, table.X_test, y, table.y_test), splitting, _HeldOut()
    size = min(max(int(_SHARE * len(y)), 1), _MAX_HELD_OUT)
    together = splitting.with_copies_together(X)
    train, test, described = together.held_out(y, table.task, size, seed)
    if splitting.is_random:
        described = ""
    rows = X.iloc[train], X.iloc[test], y[train], y[test]
    held_out = _HeldOut(described, together.take(test).clusters())
    return rows, splitting.take(train), held_out


def _fit(
    model: Any,
    seconds: float,
    X: Any,
    y: Any,
    splitting: Any,
    deadline: "Deadline",
    doing: str,
) -> None:
    """Fit a model in some seconds of its time limit, which warnings name as a whole."""
    limit = model.time_limit
    model.set_params(time_limit=seconds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeadlineWarning)
        with phase(deadline, doing):
            model.fit(X, y, groups=splitting.groups, time=splitting.time)
    model.set_params(time_limit=limit)
    if cut := model.fit_report_["cut"]:
        warnings.warn(
            f"--time-limit {limit:g} ended {_listed(cut)} early: this machine is "
            "slower or busier than the plan assumes, and another fit may give another "
            "model; raise the limit",
            DeadlineWarning,
            stacklevel=1,
        )


def _refit(
    model: Any, table: Any, splitting: Any, deadline: "Deadline", seconds: float
) -> str:
    """Fit the kernels that were evaluated to all rows; say to how many.

    The importances remain those of the report: they are of the same kernels.
    """
    from ..tabular.html_summary import fitted_rows

    X = table.X_train
    y = table.y_train
    shares = model._importances
    model.set_params(warm_start=True)  # without a new search
    doing = f"fitting all {len(y):,} rows with these kernels"
    _fit(model, seconds, X, y, splitting, deadline, doing)
    model.set_params(warm_start=False)
    model._importances = shares
    return fitted_rows(model) or f"fitted to all {len(y):,} rows"


def _evaluated(job: _Job, fit: Any, others: dict[str, Any]) -> Any:
    """Evaluate a fitted model, and others, on test rows."""
    from ..reporting.scores import EvaluatedModel, evaluate

    model = job.model
    (X, X_test, y, y_test), _, held_out = job.parts
    scores = partial(evaluate, X=X_test, y=y_test, groups=held_out.clusters)
    return EvaluatedModel(
        model,
        (X, y),
        (X_test, y_test),
        scores(model),
        {name: scores(other) for name, other in others.items()},
        fit.seconds,
        fit.peak_bytes,
        held_out.described,
        job.metric.score,
    )


def _listed(names: Sequence[str]) -> str:
    """Return names as in a sentence: a, b and c."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _warn_of_late(evaluated: Any, figures: Any, limit: float, is_late: bool) -> None:
    """Warn of what is left out for lack of time, also of the fit if that `is_late`."""
    from ..reporting.baseline_models import not_fitted

    headings = [panel.heading for panel in figures if panel.is_late]
    late = [*not_fitted(evaluated), *(f"“{heading}”" for heading in headings)]
    if late:
        warnings.warn(
            f"--time-limit {limit:g} leaves no time for some parts of the report: "
            f"{', '.join(late)}. The model does not depend on them",
            DeadlineWarning,
            stacklevel=1,
        )
    if is_late:
        warnings.warn(
            f"--time-limit {limit:g} leaves no time for a second fit: the model does "
            "not know the held-out rows",
            DeadlineWarning,
            stacklevel=1,
        )


def _print_tables(console: Any, evaluated: Any, task: str) -> None:
    """Print the verdict, the scores and what was tried; warn of a useless model."""
    verdict = evaluated.verdict
    if evaluated.is_useless:
        warnings.warn(verdict, UserWarning, stacklevel=1)
    elif verdict:
        console.print(f"{verdict[0].upper()}{verdict[1:]}", soft_wrap=True)
    console.print(_scores(evaluated))
    console.print(_leaderboard(evaluated.model, task))
    if evaluated.coverage_warning:
        warnings.warn(evaluated.coverage_warning, UserWarning, stacklevel=1)


def _leaderboard(model: Any, task: str) -> Table:
    """Return a table of the kernels that were tried, the best first."""
    trials = model.leaderboard_.sort_values("error", kind="stable")
    n_shown = min(len(trials), _SHOWN)
    of = "RMSE / std: of rows left out in the search"
    if task == "classification":
        of += ", classes as ±1; not the share of misclassified rows"
    table = titled_table(
        f"the best {n_shown} of {len(trials)} kernels tried",
        caption=f"{of}; comparable only where the numbers of rows are equal",
        caption_justify="left",
    )
    for name in ("kernel", "scaling"):
        table.add_column(name)
    for name in ("rows", "RMSE / std", "seconds"):
        table.add_column(name, justify="right")
    for trial in trials.head(_SHOWN).to_dict("records"):
        table.add_row(
            trial["kernel"],
            trial["numbers"],
            f"{trial['rows']:,}",
            f"{trial['error']:.4f}",
            f"{trial['seconds']:.1f}",
        )
    return table


def _scores(evaluated: Any) -> Table:
    """Return a table of scores, with the metric that was asked for on top."""
    from ..reporting.page import score_rows

    n = len(evaluated.evaluation.predictions)
    rows = evaluated.held_out or f"{n:,} rows held out"
    table = titled_table(f"on {rows} (± one standard error)")
    table.add_column("")
    for name in ("this model", *evaluated.others):
        table.add_column(name, justify="right")
    for name, cells in score_rows(evaluated):
        table.add_row(name, *cells)
    return table
