"""What users call by name stays: `public_names.txt` lists it.

Run as a script, this file writes the list anew. What goes is taken from it in the
commit that removes it, and named in the changelog.
"""

import inspect
from contextlib import suppress
from pathlib import Path

import pytest

import randkern as rk

FILE = Path(__file__).with_name("public_names.txt")
MODULES = ("datasets", "exceptions", "kernels", "onnx", "optics", "plots")
MODULES += ("skeletons", "solvers")


def parts_of(value):
    """Return the arguments and methods of a function or a class."""
    parts = set()
    with suppress(TypeError, ValueError):  # of what has no signature
        parts |= {f"{name}=" for name in inspect.signature(value).parameters}
    if inspect.isclass(value):
        ours = (c for c in value.__mro__ if c.__module__.startswith("randkern"))
        parts |= {f".{name}" for c in ours for name in vars(c) if name[0] != "_"}
    return parts


def library():
    names = {name: parts_of(getattr(rk, name)) for name in rk.__all__}
    for module in MODULES:
        values = vars(getattr(rk, module))
        names |= {
            f"{module}.{name}": parts_of(values[name]) for name in values["__all__"]
        }
    return names


def commands():
    typer = pytest.importorskip("typer")
    from randkern import cli

    app = typer.main.get_command(cli._build_app())
    return {
        f"randkern {name}".strip(): {
            option
            for parameter in command.params
            for option in (*parameter.opts, *parameter.secondary_opts)
        }
        for name, command in {"": app, **app.commands}.items()
    }


def listed():
    lines = FILE.read_text(encoding="utf-8").splitlines()
    return {
        name: set(parts.split()) for name, parts in (line.split(":") for line in lines)
    }


@pytest.mark.parametrize("names", [library, commands])
def test_public_names_stay(names):
    now = names()
    is_command = names is commands
    for name, parts in listed().items():
        if name.startswith("randkern") == is_command:
            assert name in now
            assert not parts - now[name], name


if __name__ == "__main__":
    every = {**library(), **commands()}
    lines = [
        f"{name}: {' '.join(sorted(every[name]))}".strip() for name in sorted(every)
    ]
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")
