"""Console output of commands: one-line errors, a progress bar, 100 columns."""

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from typer.core import TyperGroup

import randkern

MAX_COLUMNS = 100


def output() -> Console:
    """Return the console for results: standard output, plain if redirected."""
    console = Console(highlight=False)
    if not console.is_terminal or console.width > MAX_COLUMNS:
        console = Console(highlight=False, width=MAX_COLUMNS)
    return console


def titled_table(title: str, **options: Any) -> Table:
    """Return an empty table with a title, in ASCII without colours if redirected."""
    plain = not output().is_terminal
    return Table(
        title=title,
        title_justify="left",
        title_style="" if plain else "bold",
        box=box.ASCII2 if plain else box.SIMPLE_HEAD,
        **options,
    )


def error_exit(message: str) -> typer.Exit:
    """Print a one-line error and return the exception that ends the program."""
    typer.echo(f"randkern: error: {_one_line(message)}", err=True)
    return typer.Exit(code=2)


class NamingGroup(TyperGroup):
    """A group of commands that lists them when an unknown one is called."""

    kind = "command"  # what its commands are called

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None:
            known = ", ".join(self.list_commands(ctx))
            raise error_exit(
                f"unknown {self.kind} {args[0]!r}; expected one of {known}"
            )
        return super().resolve_command(ctx, args)


@contextmanager
def user_messages() -> Iterator[None]:
    """Turn the library's errors and warnings into single lines."""
    told: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        line = f"randkern: warning: {_one_line(message)}"
        if line not in told:  # the models of a search repeat the same warnings
            typer.echo(line, err=True)
        told.add(line)

    with warnings.catch_warnings():
        warnings.showwarning = show
        try:
            yield
        except BrokenPipeError:  # the reader, such as head, has closed the pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit from None
        except (ValueError, OSError, ImportError, MemoryError) as error:
            message = str(error) or "out of memory; use fewer rows or components"
            if isinstance(error, OSError) and error.filename and error.strerror:
                message = f"{error.filename}: {error.strerror.lower()}"
            raise error_exit(message) from error


@contextmanager
def progress_bar() -> Iterator[Callable[[int, int, str], None]]:
    """Show a bar on standard error, if that is a terminal, while the block runs."""
    console = Console(stderr=True)
    with Progress(
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task("", total=None)

        def report(done: int, total: int, doing: str) -> None:
            bar.update(task, completed=done, total=total, description=doing)

        yield report


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"randkern {randkern.__version__}")
        raise typer.Exit


def _one_line(message: object) -> str:
    return " ".join(str(message).split())


def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    """Take the options that stand before any command."""
