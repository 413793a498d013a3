"""Records in the repository: how old they are, what they cost, and how to remake them.

``python -m randkern_lab.records FOLDER`` lists the records of a folder, the oldest
first; with ``--rerun`` it makes them again, or those that are named, one after the
other, each in a process of its own. One that fails is named at the end and does not
stop the others; one that was interrupted continues where it was. ``--hours`` limits the
rerun to records that took less than what is left of these hours.

A record is a dated measurement of a commit. Code that moves on does not make it wrong:
a release remakes them.

A folder has ``records.toml``, with a section for each record: its ``command`` (without
``randkern`` and directories), whether it takes ``data``, or which folder of ``tables``,
and a ``note`` on how it was made; and a folder per record, with ``results.json`` and
figures.
"""

import json
import math
import os
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from randkern.cli.console import error_exit, user_messages

from .catalogue import load
from .runner import frame_of
from .tables import written


@dataclass(frozen=True)
class Record:
    """A record of the repository."""

    name: str
    folder: Path
    command: str  # without `randkern` and directories
    data: bool = False  # whether it takes the directory of data sets
    tables: str = ""  # the folder of tables there that it takes
    note: str = ""

    @property
    def script(self) -> Any:
        """The script that was run."""
        return load(shlex.split(self.command)[1])

    @cached_property
    def results(self) -> dict[str, Any] | None:
        """The results, or None if there are none yet."""
        path = self.folder / "results.json"
        return json.loads(path.read_text("utf-8")) if path.is_file() else None

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The results as a dataframe, which the script shows."""
        if self.results is None:
            raise ValueError(f"{self.name} was never made")
        return frame_of(self.results)

    @property
    def date(self) -> str:
        """The day of the run, "" if there is none."""
        return str(self.results["provenance"]["date"]) if self.results else ""

    @property
    def seconds(self) -> float:
        """The recorded time that it took, infinite if there is none."""
        return float(self.results["seconds"]) if self.results else math.inf

    def __str__(self) -> str:
        """Return its name, its age and its cost in a line."""
        if self.results is None:
            return f"{self.name}: never made"
        took = written(self.seconds, "duration")
        commit = str(self.results["provenance"]["commit"])[:9]
        return f"{self.name}: {self.date}, commit {commit}, took {took}"

    def data_words(self, data_dir: Path | str) -> list[str]:
        """Return the option that names the directory of its data, if it has any."""
        if not (self.data or self.tables):
            return []
        option = "--folder" if self.tables else "--data-dir"
        return [option, str(Path(data_dir) / self.tables)]

    def arguments(self, data_dir: Path | None) -> list[str]:
        """Return the arguments of ``randkern`` that make the record."""
        if (self.data or self.tables) and data_dir is None:
            raise ValueError(f"{self.name} needs --data-dir, or RANDKERN_DATA")
        words = [*shlex.split(self.command), *self.data_words(data_dir or "")]
        return [*words, "--out", str(self.folder)]


def read_records(folder: Path) -> Iterator[Record]:
    """Yield the records of a folder."""
    for name, entry in tomllib.loads(
        (folder / "records.toml").read_text("utf-8")
    ).items():
        yield Record(name, folder / name, **entry)


def remake(records: Sequence[Record], data_dir: Path | None, hours: float) -> list[str]:
    """Make records again, those that fit into some hours; return which failed."""
    end, failed = time.monotonic() + 3600 * hours, []
    for place, record in enumerate(records):
        if record.seconds > end - time.monotonic():
            typer.echo(f"{record.name} does not fit into the hours that are left")
            continue
        typer.echo(f"== {record.name} ({place + 1} of {len(records)})")
        code = "from randkern.cli import main; main()"
        command = [sys.executable, "-c", code, *record.arguments(data_dir)]
        if subprocess.run(command).returncode:
            failed.append(record.name)
    return failed


def main(
    folder: Annotated[Path, typer.Argument(help="Of the records.")],
    names: Annotated[list[str] | None, typer.Argument(help="Default: all.")] = None,
    rerun: Annotated[bool, typer.Option(help="Make them again.")] = False,
    hours: Annotated[
        float, typer.Option(help="Those that fit in, by their recorded times.")
    ] = math.inf,
    data_dir: Annotated[Path | None, typer.Option(help="Of the data sets.")] = None,
) -> None:
    """List records with their age and cost, the oldest first; or make them again."""
    with user_messages():
        records = sorted(read_records(folder), key=lambda record: record.date)
        known = {record.name: record for record in records}
        unknown = sorted(set(names or ()) - set(known))
        if unknown:
            raise ValueError(
                f"{', '.join(unknown)}: no such record in {folder}; expected names of "
                f"{', '.join(sorted(known))}"
            )
        chosen = [record for record in records if not names or record.name in names]
        if rerun:
            named = data_dir or os.environ.get("RANDKERN_DATA")
            failed = remake(chosen, None if named is None else Path(named), hours)
            if failed:
                raise error_exit(f"{', '.join(failed)} failed; the others were made")
        else:
            typer.echo("\n".join(map(str, chosen)))


if __name__ == "__main__":
    typer.run(main)
