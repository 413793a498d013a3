"""The command line: ``randkern COMMAND``.

A subcommand is a module here with a function `command`, and a line in
:func:`_build_app`; those of other packages are found by entry points of the group
``randkern.commands``. What the commands need beyond the library itself (typer, rich)
is an extra, so it is imported only once `main` runs.
"""

import sys
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import randkern

__all__ = ["main"]

_MISSING_EXTRA = (
    "randkern: the command line needs {name}, which is not installed; "
    'run: pip install "randkern[cli,plot]"\n'
)
# What the package randkern_lab of the same wheel brings.
_LAB = {
    "reproduce": "Run a published experiment, and print its numbers beside those.",
    "bench": "Time and accuracy of random features, beside peers.",
}


def main() -> None:
    """Run the command line, and exit with its status.

    Exits with 1 if the packages of the ``cli`` extra are missing (only ``--version``
    does without them), with 2 if the arguments or the data are not usable.
    """
    try:
        app = _build_app()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in {"typer", "rich"}:
            raise
        if sys.argv[1:] == ["--version"]:
            print(f"randkern {randkern.__version__}")
            return
        sys.stderr.write(_MISSING_EXTRA.format(name=package))
        sys.exit(1)
    app()


def _build_app() -> Any:
    """Return the typer application with every subcommand."""
    import typer

    from . import compare, console, fit, info, predict, tune

    app = typer.Typer(
        name="randkern",
        help="Kernel machines from random features.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(console.options)
    app.command("fit")(fit.command)
    app.command("predict")(predict.command)
    app.command("info")(info.command)
    app.command("compare")(compare.command)
    app.command("tune")(tune.command)
    found = {each.name: each for each in entry_points(group="randkern.commands")}
    for name in dict.fromkeys([*_LAB, *found]):
        _add_command(app, name, found.get(name))
    return app


def _add_command(app: Any, name: str, entry: EntryPoint | None) -> None:
    """Add a command of another package, or one that says what it lacks."""
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
