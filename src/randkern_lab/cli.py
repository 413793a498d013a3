"""``randkern reproduce NAME`` and ``randkern bench NAME``, generated from options.

`randkern` finds both through entry points of the group ``randkern.commands``.
Experiments are imported on demand.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from randkern._extras import import_extra
from randkern.cli.console import NamingGroup, error_exit, user_messages

from .options import DataOptions


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


def command_of(script: Any) -> Callable[..., None]:
    """Return a command whose options are the fields of the script's options."""
    from .runner import names_of

    group, name = names_of(script.Options)
    prefix = "randkern-" if group == "reproduce" else "randkern-bench/"

    def command(**settings: Any) -> None:
        settings["out"] = settings["out"] or Path(prefix + name)
        with user_messages():
            run_and_write(script, script.Options(**settings))

    return _described(command, script.Options, script.__doc__.partition("\n")[0])


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

    text = "In turn, each in a folder of its own: all of the above."
    return _described(command, DataOptions, text)


def _described(
    command: Callable[..., None], options: Any, text: str
) -> Callable[..., None]:
    """Give a function of keyword arguments the signature that Typer reads.

    Members of tuples are separated by commas.
    """
    hints, parameters = get_type_hints(options), []
    for field in fields(options):
        hint, default, flags = hints[field.name], field.default, []
        if isinstance(default, tuple):
            hint, default = str, ",".join(map(str, default))
        if len(field.name) == 1 or default is False:
            flags = ["--" + field.name.replace("_", "-")]
        told = typer.Option(*flags, help=field.metadata["text"])
        parameters.append(
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=Annotated[hint, told],
            )
        )
    command.__doc__ = text
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def run_and_write(script: Any, options: Any) -> None:
    """Run a script, write its results and figures, and print its tables and notes."""
    from .runner import frame_of, run, write

    results = run(script, options)
    written = write(script, results, options.out)
    for table in script.tables(frame_of(results)):
        shown = table.to_string(index=False)
        typer.echo("\n".join([table.attrs["title"], shown, table.attrs["caption"], ""]))
    typer.echo("\n".join(results["notes"]))
    typer.echo(f"wrote {', '.join(map(str, written))}")
