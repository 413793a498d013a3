"""The command line: ``randkern COMMAND``.

A subcommand is a module here with a function `command`, and a line in
:func:`_build_app`. What the commands need beyond the library itself (typer,
rich) is an extra, so it is imported only once `main` runs.
"""

import sys
from typing import Any

import randkern

__all__ = ["main"]

_MISSING_EXTRA = (
    "randkern: the command line needs {name}, which is not installed; "
    'run: pip install "randkern[cli,plot]"\n'
)


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

    from . import bench, compare, console, fit, info, predict, reproduce, tune

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
    app.add_typer(reproduce.application, name="reproduce")
    app.add_typer(bench.application, name="bench")
    return app
