"""``randkern reproduce NAME`` and ``randkern bench NAME``, generated from options.

`randkern` finds both through entry points of the group ``randkern.commands``.
Experiments are imported on demand.
"""

import inspect
import types
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from rich import box
from rich.table import Table

from randkern._extras import import_extra
from randkern.cli.console import (
    NamingGroup,
    error_exit,
    output,
    user_messages,
)
from randkern.cli.options import parse_sizes

from .options import DataOptions

_WIDE = 8  # columns from which tables have no padding


def _names(command: str) -> Sequence[str]:
    with user_messages():
        for module in ("pandas", "matplotlib"):
            import_extra(module, f"randkern {command}", "lab")
        from . import catalogue
    return catalogue.EXPERIMENTS if command == "reproduce" else catalogue.BENCHMARKS


class _Group(NamingGroup):
    """Experiments or benchmarks as commands, created on demand."""

    kind, command = "experiment", "reproduce"

    def list_commands(self, ctx: Any) -> list[str]:
        return [*_names(self.command), "all"]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        from .catalogue import EARLIER, load

        cmd_name = EARLIER.get(cmd_name, cmd_name)
        if cmd_name not in self.list_commands(ctx):
            return None
        if cmd_name == "all":
            every = [load(name) for name in _names(self.command)]
            return built(command_of_all(every), cmd_name)
        return built(command_of(load(cmd_name)), cmd_name)


class _Benchmarks(_Group):
    kind, command = "benchmark", "bench"


def built(function: Callable[..., None], name: str | None = None) -> Any:
    """Return Click's command of a function with Typer's annotations."""
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name)(function)
    return typer.main.get_command(single)


def _application(group: type[_Group], text: str) -> typer.Typer:
    application = typer.Typer(
        cls=group, help=text, no_args_is_help=True, rich_markup_mode=None
    )
    application.callback()(lambda: None)
    return application


reproduce = _application(
    _Group,
    "Run a published experiment, and print its numbers beside the published ones.",
)
bench = _application(_Benchmarks, "Time and accuracy of random features, beside peers.")


def rich_table(table: Any, *, plain: bool = False) -> Table:
    """Return a dataframe of texts for the terminal."""
    wide = len(table.columns) >= _WIDE
    shown = Table(
        title=table.attrs["title"],
        title_justify="left",
        title_style="" if plain else "bold",
        caption=table.attrs["caption"] or None,
        caption_justify="left",
        box=box.ASCII2 if plain else box.SIMPLE_HEAD,
        padding=(0, 0) if wide and plain else (0, 0, 0, 1) if wide else (0, 1),
    )
    for position, heading in enumerate(table.columns):
        shown.add_column(heading, justify="right" if position else "left")
    for row in table.itertuples(index=False):
        shown.add_row(*row)
    return shown


def command_of(script: Any) -> Callable[..., None]:
    """Return a command whose options are the fields of the script's options."""
    from .runner import names_of

    hints = get_type_hints(script.Options)
    several = {f.name: _member(hints[f.name]) for f in fields(script.Options)}
    group, name = names_of(script.Options)
    prefix = "randkern-" if group == "reproduce" else "randkern-bench/"

    def command(**settings: Any) -> None:
        with user_messages():
            for key, member in several.items():
                if member is not None and settings[key] is not None:
                    settings[key] = _parsed(settings[key], member, key)
            settings["out"] = settings["out"] or Path(prefix + name)
            run_and_write(script, script.Options(**settings))

    command.__doc__ = script.__doc__.partition("\n")[0]
    parameters = [_parameter(f, hints[f.name]) for f in fields(script.Options)]
    return _described(command, parameters)


def command_of_all(scripts: Sequence[Any]) -> Callable[..., None]:
    """Return a command that runs scripts in turn, with their common options."""
    from .runner import names_of

    folder = Path(f"randkern-{names_of(scripts[0].Options)[0]}")

    def command(out: Path | None, data_dir: Path | None, **settings: Any) -> None:
        failed = []
        for script in scripts:
            name = names_of(script.Options)[1]
            options = {**settings, "out": (out or folder) / name}
            if issubclass(script.Options, DataOptions):
                options["data_dir"] = data_dir
            typer.echo(f"== {name}")
            try:
                with user_messages():
                    run_and_write(script, script.Options(**options))
            except typer.Exit:  # its message has been shown; still run the others
                failed.append(name)
        if failed:
            raise error_exit(f"{', '.join(failed)} did not run")

    shared = get_type_hints(DataOptions)
    parameters = [_parameter(f, shared[f.name]) for f in fields(DataOptions)]
    command.__doc__ = "In turn, each in a folder of its own: all of the above."
    return _described(command, parameters)


def _described(
    command: Callable[..., None], parameters: list[inspect.Parameter]
) -> Callable[..., None]:
    """Give a function of keyword arguments the signature that Typer reads."""
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def _member(hint: Any) -> Any:
    """Return the member type of an option with several values, or None."""
    members = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    result = [get_args(item)[0] for item in members if get_origin(item) is tuple]
    return result[0] if result else None


def _parsed(text: str, member: Any, key: str) -> tuple[Any, ...]:
    flag = "--" + key.replace("_", "-")
    if member is int:
        return tuple(parse_sizes(text, flag))
    names = [name.strip() for name in text.split(",") if name.strip()]
    if member is str:
        return tuple(names)
    try:
        return tuple(float(name) for name in names)
    except ValueError as error:
        raise ValueError(
            f"{flag} takes numbers separated by commas, got {text!r}; for instance "
            "0.1,1,10"
        ) from error


def _parameter(field: Any, hint: Any) -> inspect.Parameter:
    """Return the option for one field; tuples are comma-separated."""
    default, flags = field.default, []
    if _member(hint) is not None:
        hint = str if default is not None else str | None
        default = None if default is None else ",".join(map(str, default))
    if len(field.name) == 1 or (hint is bool and default is False):
        flags = ["--" + field.name.replace("_", "-")]
    text = typer.Option(*flags, help=field.metadata["text"])
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[hint, text],
    )


def run_and_write(script: Any, options: Any) -> None:
    """Run a script, write its results and figures, and print its tables and notes."""
    from .runner import frame_of, run, write

    results = run(script, options)
    written = write(script, results, options.out)
    console = output()
    for table in script.tables(frame_of(results)):
        console.print(rich_table(table, plain=not console.is_terminal))
    for note in results["notes"]:
        console.print(note, markup=False)
    console.print(f"wrote {', '.join(map(str, written))}", soft_wrap=True)
