"""The command line: ``randkern COMMAND``.

A subcommand is a module here with a function `command`, and a line in
:func:`_build_app`; subcommands of other packages are found through entry points of the
group ``randkern.commands``. Typer and rich, which commands need, are an extra, so they
are imported only when `main` runs.
"""

import sys
import time
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import randkern
from randkern.cli.deferred import defer_imports

__all__ = ["main"]

_MISSING_EXTRA = (
    "randkern: the command line needs {name}, which is not installed; "
    'run: pip install "randkern[cli,plot]"\n'
)
# Commands of the package randkern_lab in the same wheel.
_LAB = {
    "reproduce": "Run a published experiment, and print its numbers beside those.",
    "bench": "Time and accuracy of random features, beside peers.",
}


def main() -> None:
    """Run the command line and exit with its status.

    The status is 1 if the packages of the ``cli`` extra are missing (only ``--version``
    works without them), 2 if the arguments or the data are invalid, 70 after a bug in
    randkern, and 130 if the command was interrupted.
    """
    if sys.argv[1:] == ["--version"]:
        print(f"randkern {randkern.__version__}")
        return
    # The interpreter has computed since it started.
    start = time.perf_counter() - time.process_time()
    defer_imports()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a name may have letters it cannot encode
            stream.reconfigure(errors="replace")
    try:
        app = _build_app()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in {"typer", "rich"}:
            raise
        sys.stderr.write(_MISSING_EXTRA.format(name=package))
        sys.exit(1)
    from .console import start_of_process

    began = start_of_process.set(start)
    try:
        app()
    finally:  # later commands of this process have their own clock
        start_of_process.reset(began)


def _build_app() -> Any:
    """Return the typer application with every subcommand."""
    import typer

    from . import compare, console, fit, info, predict

    app = typer.Typer(
        name="randkern",
        cls=console.Commands,
        help="Kernel machines from random features.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(console.options)
    for module in (fit, predict, info, compare):
        name = module.__name__.rpartition(".")[2]
        app.command(name)(console.guarded(module.command))
    result = {item.name: item for item in entry_points(group="randkern.commands")}
    for name in dict.fromkeys([*_LAB, *result]):
        _add_command(app, name, result.get(name))
    return app


def _add_command(app: Any, name: str, entry: EntryPoint | None) -> None:
    """Add a command of another package, or one that reports what is missing."""
    reason = "is not installed"
    if entry is not None:
        try:
            app.add_typer(entry.load(), name=name)
            return
        except ImportError as error:
            reason = f"could not be loaded ({error})"

    def command() -> None:
        from .console import error_exit

        raise error_exit(
            f"what runs `randkern {name}` {reason}; "
            'install it with: pip install "randkern[lab]"'
        )

    anything = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(name, help=_LAB.get(name), context_settings=anything)(command)
