"""Commands of the README and the guides exist, with their options and values.

None is run: the command line's own parser reads them.
"""

import re
import shlex
import tomllib
from contextlib import nullcontext, suppress
from itertools import chain
from pathlib import Path

import pytest

pytest.importorskip("typer")
pytest.importorskip("pandas")
import typer

from randkern import cli

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^ *```(?:sh|console|bash)\n(.*?)^ *```$", re.M | re.S)
INLINE = re.compile(r"`((?:randkern|make) [^`\n]+)`")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z]+):(?!=)", MAKEFILE, re.M))
VARIABLES = set(re.findall(r"^(\w+) [?]=", MAKEFILE, re.M))
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]["optional-dependencies"]
PLACEHOLDERS = {"NAME", "COMMAND"}


def commands_of(text):
    """(line, whether it is whole) of the commands of a page, joined, without prompts.

    One within a sentence may be no more than its beginning: `randkern bench`.
    """
    for block in FENCE.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            if shlex.split(line, comments=True):
                yield line.removeprefix("$ "), True
    for line in INLINE.findall(FENCE.sub("", text)):
        yield line, False


COMMANDS = [
    pytest.param(line, whole, id=f"{path.relative_to(ROOT)}: {' '.join(line.split())}")
    for path in chain(
        ROOT.glob("*.md"), ROOT.glob("docs/*.md"), ROOT.glob("benc*/*.md")
    )
    if path.name != "CHANGELOG.md"  # of versions that had others
    for line, whole in dict.fromkeys(commands_of(path.read_text(encoding="utf-8")))
]


@pytest.fixture(scope="module")
def app():
    return typer.main.get_command(cli._build_app())


def check(app, line, whole=True):
    """Fail unless a command and all that is given to it are known."""
    name, *words = shlex.split(line, comments=True)
    if name == "randkern":
        check_randkern(app, words, whole)
    elif name == "make":
        settings = {word.partition("=")[0] for word in words if "=" in word}
        assert {word for word in words if "=" not in word} <= TARGETS
        assert settings <= VARIABLES
    elif name == "pip":
        for extras in re.findall(r"\[([\w,]+)\]", " ".join(words)):
            assert set(extras.split(",")) <= set(EXTRAS)
    elif name != "git":
        assert (ROOT / name).is_file()


def check_randkern(command, words, whole):
    """Let the parser of a command below this one read its words."""
    context = typer.Context(command, info_name="randkern")
    while hasattr(command, "commands") and words and words[0][0] != "-":
        if not whole and words[0] in PLACEHOLDERS:
            return
        name, command, words = command.resolve_command(context, words)
        context = typer.Context(command, info_name=name, parent=context)
    if whole:
        with suppress(typer.Exit) if "--help" in words else nullcontext():
            command.make_context(context.info_name, words, parent=context.parent)
            assert not hasattr(command, "commands"), "a group, without a command"
    else:
        command.make_parser(context).parse_args(words)


@pytest.mark.parametrize(("line", "whole"), COMMANDS)
def test_commands_of_pages_exist(app, line, whole, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for word in shlex.split(line, comments=True):
        if re.fullmatch(r"[\w-]+(/[\w-]+)*\.(csv|skops|parquet)", word):
            (tmp_path / word).parent.mkdir(exist_ok=True)
            (tmp_path / word).touch()  # commands look for the files that they are given
    check(app, line, whole)


def test_pages_have_commands():
    assert len(COMMANDS) >= 100
