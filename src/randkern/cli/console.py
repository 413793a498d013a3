"""Console output of commands: one-line errors, a progress bar, 100 columns."""

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from traceback import extract_tb, print_exception
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

import randkern

if TYPE_CHECKING:
    from ..reporting.deadline import Deadline

# Of redirected output without COLUMNS; others have their width up to MAX_COLUMNS.
PLAIN_COLUMNS = 100
MAX_COLUMNS = 160
# Exit codes: of an error that the user can mend, of a bug in randkern (EX_SOFTWARE of
# sysexits.h), and of an interruption (128 plus the number of SIGINT).
ERROR = 2
BUG = 70
INTERRUPTED = 130
# Of a closed pipe, once the files are written: 128 plus the number of SIGPIPE.
PIPE_CLOSED = 141
_ISSUES = "https://github.com/randkern/randkern/issues"

# Whether errors show where they were raised.
_debug: ContextVar[bool] = ContextVar("_debug", default=False)
_pipe_is_closed: ContextVar[bool] = ContextVar("_pipe_is_closed", default=False)
# When the process started, by `time.perf_counter`; None if a command is called in one
# that does more.
start_of_process: ContextVar[float | None] = ContextVar("start", default=None)


class _Output(Console):
    """A console that goes on when its reader, such as head, has closed the pipe."""

    def on_broken_pipe(self) -> None:
        _drop_output()


def _drop_output() -> None:
    """Write nothing more to standard output: the pipe is closed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    _pipe_is_closed.set(True)


def output() -> Console:
    """Return the console for results: standard output, plain if redirected."""
    console = Console()
    is_known = console.is_terminal or "COLUMNS" in os.environ
    width = min(console.width, MAX_COLUMNS) if is_known else PLAIN_COLUMNS
    # Names of columns and of files are no markup.
    return _Output(highlight=False, markup=False, emoji=False, width=width)


def printable(text: object) -> str:
    """Return text whose control characters are escaped: a terminal would obey them."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in str(text)
    )


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
    return typer.Exit(code=ERROR)


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


class Commands(NamingGroup):
    """All commands: ``--debug`` may stand before or after the name of one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--debug" in args:
            args = ["--debug", *(item for item in args if item != "--debug")]
        return super().parse_args(ctx, args)


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose errors and warnings are single lines."""

    @wraps(command)
    def guarded_command(*args: Any, **kwargs: Any) -> None:
        with user_messages():
            command(*args, **kwargs)

    return guarded_command


@contextmanager
def user_messages() -> Iterator[None]:
    """Turn errors and warnings into single lines, and errors into exit codes.

    ValueError, OSError, ImportError and MemoryError, with which the library refuses
    what it is asked to do, are errors of the user; any other exception is a bug.
    """
    messages: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        line = f"randkern: warning: {_one_line(message)}"
        if line not in messages:  # the models of a search repeat the same warnings
            typer.echo(line, err=True)
        messages.add(line)

    with warnings.catch_warnings():
        warnings.showwarning = show
        try:
            yield
            sys.stdout.flush()
            if _pipe_is_closed.get():
                raise typer.Exit(code=PIPE_CLOSED)
        except BrokenPipeError:
            _drop_output()
            raise typer.Exit(code=PIPE_CLOSED) from None
        except typer.Exit:
            raise
        except KeyboardInterrupt as interruption:
            # A command may say what it has written.
            state = f"; {interruption}" if str(interruption) else ""
            typer.echo(f"randkern: interrupted{state}", err=True)
            raise typer.Exit(code=INTERRUPTED) from None
        except (ValueError, OSError, ImportError, MemoryError) as error:
            _show_traceback(error)
            message = str(error) or "out of memory; use fewer rows or components"
            if isinstance(error, OSError) and error.strerror:
                named = f"{error.filename}: " if error.filename else ""
                message = f"{named}{error.strerror.lower()}"
            raise error_exit(message) from error
        except Exception as error:
            _show_traceback(error)
            typer.echo(f"randkern: bug: {_one_line(_bug(error))}", err=True)
            raise typer.Exit(code=BUG) from error


def _show_traceback(error: Exception) -> None:
    if _debug.get():
        print_exception(error)


def _bug(error: Exception) -> str:
    """Return a report on an exception that no part of the library expects."""
    advice = "" if _debug.get() else "run it again with --debug and "
    return (
        f"{described_error(error)}. This is a bug of randkern "
        f"{randkern.__version__}, not in your data; please {advice}report it with the "
        f"traceback at {_ISSUES}"
    )


def described_error(error: Exception) -> str:
    """Return the type and text of an exception, and the line that raised it."""
    last = extract_tb(error.__traceback__)[-1]
    place = "/".join(Path(last.filename).parts[-2:])
    return f"{type(error).__name__}: {error} ({place}, line {last.lineno})"


def started(limit: float) -> "Deadline":
    """Return the end of a command with a time limit, which counts from its process."""
    from ..reporting.deadline import Deadline

    return Deadline(limit, start_of_process.get())


@contextmanager
def _display(*columns: ProgressColumn) -> Iterator[Progress]:
    """Show columns, and what is done, on standard error if that is a terminal."""
    console = Console(stderr=True)
    with Progress(
        *columns,
        TextColumn("{task.description}", markup=False),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as display:
        yield display


@contextmanager
def phase(deadline: "Deadline", doing: str) -> Iterator[None]:
    """Show what is done during a block, and the seconds of the limit so far."""
    with _display(SpinnerColumn(), _SecondsColumn(deadline)) as display:
        display.add_task(doing, total=None)
        yield


class _SecondsColumn(ProgressColumn):
    """The seconds of a time limit, at each refresh of the display."""

    def __init__(self, deadline: "Deadline") -> None:
        super().__init__()
        self._deadline = deadline

    def render(self, task: Task) -> Text:
        return Text(str(self._deadline))


@contextmanager
def progress_bar(
    deadline: "Deadline | None" = None,
) -> Iterator[Callable[[int, int, str], None]]:
    """Show a bar while the block runs, and the seconds of a limit or of the block."""
    seconds = TimeElapsedColumn() if deadline is None else _SecondsColumn(deadline)
    with _display(BarColumn(bar_width=24), MofNCompleteColumn(), seconds) as bar:
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
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where an error was raised.")
    ] = False,
) -> None:
    """Take the options that stand before any command."""
    _debug.set(debug)
