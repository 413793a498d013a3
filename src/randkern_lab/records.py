"""Records in the repository: which are stale, what a rerun costs, and the rerun.

``python -m randkern_lab.records FOLDER`` lists the stale records of a folder, the
oldest first; with ``--rerun`` it makes them again, or those that are named, one after
the other, each in a process of its own, whose imports and memory are of one record.
One that fails is named at the end and does not stop the others; one that was
interrupted continues where it was. ``--hours`` limits the rerun to records that took
less than what is left of these hours.

A folder has ``records.toml``, with a section for each record: its ``command`` (without
``randkern`` and directories), whether it takes ``data``, or which folder of ``tables``,
and a ``note`` on how it was made; and a folder per record, with ``results.json`` and
figures.
"""

import json
import math
import os
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import typer

from randkern.cli.console import error_exit, user_messages

from .catalogue import load
from .cli import built, command_of
from .provenance import source_hash
from .runner import Experiment
from .tables import written

_UsageError: Any = typer.BadParameter.__base__  # of click, which typer may contain
# Options that name files, which no record contains.
_DIRECTORIES = {"data_dir", "folder", "out"}


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
    def experiment(self) -> type[Experiment]:
        """The experiment that was run."""
        return load(shlex.split(self.command)[1])

    @cached_property
    def results(self) -> dict[str, Any] | None:
        """The results, or None if there are none yet."""
        path = self.folder / "results.json"
        return json.loads(path.read_text("utf-8")) if path.is_file() else None

    @property
    def date(self) -> str:
        """The day of the run, "" if there is none."""
        return str(self.results["provenance"]["date"]) if self.results else ""

    @property
    def seconds(self) -> float | None:
        """The recorded time that it took."""
        return None if self.results is None else float(self.results["seconds"])

    def why_stale(self) -> list[str]:
        """Return the reasons to rerun it.

        A file that it ran has changed (:mod:`.provenance`), its command has, or the
        sources were not those of its commit.
        """
        if self.results is None:
            return ["it was never made"]
        origin = self.results["provenance"]
        reasons = []
        since = f"since {str(origin['commit'])[:9]}"
        hashes = origin["sources"].items()
        changed = [name for name, value in hashes if source_hash(name) != value]
        if changed:
            others = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            reasons.append(f"{', '.join(changed[:3])}{others} changed {since}")
        if not self._same_command(origin["command"]):
            reasons.append(f"the command was `{origin['command']}`")
        if not origin["clean"]:
            reasons.append("the sources were not those of its commit")
        return reasons

    def _same_command(self, recorded: str) -> bool:
        """Return whether a recorded command has the values of this one's options."""
        command = built(command_of(self.experiment))
        values = []
        for line in (self.command, recorded.removeprefix("randkern ")):
            _, name, *words = shlex.split(line)
            try:
                options = command.make_context(name, words).params
            except _UsageError:  # an option that is no more
                return False
            values.append({k: v for k, v in options.items() if k not in _DIRECTORIES})
        return values[0] == values[1]

    def arguments(self, data_dir: Path | None) -> list[str]:
        """Return the arguments of ``randkern`` that make the record."""
        words = shlex.split(self.command)
        if self.data or self.tables:
            if data_dir is None:
                raise ValueError(f"{self.name} needs --data-dir, or RANDKERN_DATA")
            option = "--folder" if self.tables else "--data-dir"
            words += [option, str(data_dir / self.tables)]
        return [*words, "--out", str(self.folder)]


def read_records(folder: Path) -> Iterator[Record]:
    """Yield the records of a folder."""
    for name, entry in tomllib.loads(
        (folder / "records.toml").read_text("utf-8")
    ).items():
        yield Record(name, folder / name, **entry)


def remade(
    records: Sequence[Record], data_dir: Path | None, hours: float, lock: int
) -> list[str]:
    """Make records again, those that fit into some hours; return which failed.

    Their processes inherit the file descriptor of a lock, which they hold even if this
    process is killed.
    """
    end, failed = time.monotonic() + 3600 * hours, []
    for place, record in enumerate(records):
        if (record.seconds or math.inf) > end - time.monotonic():
            typer.echo(f"{record.name} does not fit into the hours that are left")
            continue
        typer.echo(f"== {record.name} ({place + 1} of {len(records)})")
        code = "from randkern.cli import main; main()"
        command = [sys.executable, "-c", code, *record.arguments(data_dir)]
        with subprocess.Popen(command, pass_fds=[lock]) as process:
            try:
                status = process.wait()
            except BaseException:  # so that it ends its own processes, too
                process.send_signal(signal.SIGINT)
                raise
        if status:
            failed.append(record.name)
    return failed


@contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Wait until no other process makes records of a folder; yield the lock."""
    import fcntl

    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            typer.echo("waiting for another process that makes records")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def _chosen(folder: Path, names: Sequence[str] | None) -> list[Record]:
    """Return the records that are named, or all that are stale, the oldest first."""
    records = sorted(read_records(folder), key=lambda record: record.date)
    return [r for r in records if (r.name in names if names else r.why_stale())]


def main(
    folder: Annotated[Path, typer.Argument(help="Of the records.")],
    names: Annotated[list[str] | None, typer.Argument(help="Default: all.")] = None,
    remake: Annotated[bool, typer.Option("--rerun", help="Make them again.")] = False,
    hours: Annotated[
        float, typer.Option(help="Those that fit in, by their recorded times.")
    ] = math.inf,
    data_dir: Annotated[Path | None, typer.Option(help="Of the data sets.")] = None,
) -> None:
    """List stale records, why they are, and what they cost; or make them again."""
    with user_messages():
        named = data_dir or os.environ.get("RANDKERN_DATA")
        data_dir = None if named is None else Path(named)
        failed = []
        if remake:
            # Ended like by Ctrl-C, with the record that is being made.
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            with locked(folder) as lock:
                failed = remade(_chosen(folder, names), data_dir, hours, lock)
        chosen = _chosen(folder, None if remake else names)
        for record in chosen:
            took = written(record.seconds, "duration") if record.seconds else "unknown"
            typer.echo(f"{record.name}: took {took}")
            for reason in record.why_stale() or ["up to date"]:
                typer.echo(f"  {reason}")
        total = written(sum(r.seconds or 0.0 for r in chosen), "duration")
        typer.echo(f"{len(chosen)} records are left, which took {total}")
        if failed:
            raise error_exit(f"{', '.join(failed)} failed; the others were made")


if __name__ == "__main__":
    typer.run(main)
