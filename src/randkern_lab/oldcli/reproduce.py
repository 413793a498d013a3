"""``randkern reproduce NAME``: a published experiment, beside its numbers.

The commands and their options come from the table of experiments
(:mod:`randkern_lab.papers.reproductions`); only the one that is run is imported.
"""

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from rich import box
from rich.table import Table

from randkern.cli.console import NamingGroup, output, progress_bar, user_messages
from randkern.cli.options import parse_sizes

from ..papers.reproductions import (
    EXPERIMENTS,
    CommonOptions,
    Experiment,
    ExperimentModule,
    TextTable,
)

__all__ = ["application", "text_table"]


class _Experiments(NamingGroup):
    """The experiments as commands, each made when it is asked for."""

    kind = "experiment"

    def list_commands(self, ctx: Any) -> list[str]:
        return list(EXPERIMENTS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in EXPERIMENTS:
            return None
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(cmd_name)(_command(cmd_name, EXPERIMENTS[cmd_name]))
        return typer.main.get_command(single)


application = typer.Typer(
    cls=_Experiments,
    help="Run a published experiment, and print its numbers beside the published ones.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@application.callback()
def _take_no_options() -> None:
    """Run a published experiment, and print its numbers beside the published ones."""


def text_table(table: TextTable, *, plain: bool = False) -> Table:
    """Return a table of an experiment for the terminal."""
    shown = Table(
        title=table.title,
        title_justify="left",
        title_style="" if plain else "bold",
        box=box.ASCII2 if plain else box.SIMPLE_HEAD,
        padding=(0, 1) if len(table.columns) < 8 else (0, 0, 0, 1),
    )
    for position, heading in enumerate(table.columns):
        shown.add_column(heading, justify="right" if position else "left")
    for row in table.rows:
        shown.add_row(*row)
    return shown


def _command(name: str, experiment: Experiment) -> Callable[..., None]:
    """Return a command whose options are the fields of the experiment's options."""
    module = experiment.load()
    hints = get_type_hints(module.Options, include_extras=True)
    tuples = [f.name for f in fields(module.Options) if _is_tuple(hints[f.name])]

    def command(out: Path, **given: Any) -> None:
        with user_messages():
            for key in tuples:
                if given[key] is not None:
                    option = "--" + key.replace("_", "-")
                    given[key] = tuple(parse_sizes(given[key], option))
            _run(name, module, module.Options(**given), out)

    parameters = [
        _parameter(f.name, hints[f.name], f.default) for f in fields(module.Options)
    ]
    default = Path(f"randkern-{name}")
    help_text = f"Directory for results.json and {name}.png."
    annotation = Annotated[Path, typer.Option(help=help_text)]
    parameters.append(_keyword("out", annotation, default))
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    command.__doc__ = experiment.title
    return command


def _is_tuple(hint: Any) -> bool:
    """Whether an option holds several whole numbers, or none for the usual ones."""
    of = get_args(hint)[0]
    members = get_args(of) if isinstance(of, types.UnionType) else (of,)
    return any(get_origin(member) is tuple for member in members)


def _parameter(name: str, hint: Any, default: Any) -> inspect.Parameter:
    """Return the option of one field; tuples are written with commas."""
    of, text = get_args(hint)
    if _is_tuple(hint):
        of = str if default is not None else str | None
        default = None if default is None else ",".join(map(str, default))
    if of is bool and default is False:
        option = typer.Option("--" + name.replace("_", "-"), help=text)
    else:
        option = typer.Option(help=text)
    return _keyword(name, Annotated[of, option], default)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _run(
    name: str, module: ExperimentModule, options: CommonOptions, out: Path
) -> None:
    """Run an experiment, write its results and figure, and print its tables."""
    from randkern.study.records import write_results

    out.mkdir(parents=True, exist_ok=True)
    with progress_bar() as progress:
        results = module.run(options, progress)
    written = [write_results(results, out / "results.json")]
    written += _write_figure(module, results, out / f"{name}.png")
    console = output()
    for table in module.tables(results):
        console.print(text_table(table, plain=not console.is_terminal))
    _print_notes(results["notes"], written)


def _write_figure(
    module: ExperimentModule, results: Mapping[str, Any], path: Path
) -> list[Path]:
    """Write the figure; return nothing where matplotlib or records are missing."""
    from randkern.plots import save_figure

    path.unlink(missing_ok=True)  # of an earlier run: it would not be of these results
    if not results["records"]:
        return []
    try:
        return [save_figure(module.figure(results), path)]
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        typer.echo(
            'no figure: matplotlib is not installed; run: pip install "randkern[plot]"',
            err=True,
        )
        return []


def _print_notes(notes: Sequence[str], written: Sequence[Path]) -> None:
    console = output()
    for note in notes:
        console.print(note)
    console.print(f"wrote {', '.join(str(path) for path in written)}", soft_wrap=True)
