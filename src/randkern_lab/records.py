"""Records in the repository: which are stale, what a rerun costs, and the rerun.

``python -m randkern_lab.records FOLDER`` lists the stale records of a folder; with
``--rerun`` it makes them again, or those that are named, one after the other; one that
was interrupted continues. A folder has ``records.toml``, with a section for each
record: its ``command`` (without ``randkern`` and directories), whether it takes
``data``, or which folder of ``tables``, and a ``note`` on how it was made; and a folder
per record, with ``results.json`` and figures.
"""

import json
import os
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from randkern.cli.console import user_messages

from .catalogue import load
from .cli import built, command_of
from .provenance import source_hash
from .runner import Experiment
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
    def experiment(self) -> type[Experiment]:
        """The experiment that was run."""
        return load(shlex.split(self.command)[1])

    @property
    def results(self) -> dict[str, Any] | None:
        """The results, or None if there are none yet."""
        path = self.folder / "results.json"
        return json.loads(path.read_text("utf-8")) if path.is_file() else None

    def why_stale(self) -> list[str]:
        """Return the reasons to rerun it.

        A file that it ran has changed (:mod:`.provenance`), or the sources were not
        those of its commit. Records that do not name these files were made before
        records did, by code that has changed since.
        """
        results = self.results
        if results is None:
            return ["it was never made"]
        origin = results["provenance"]
        reasons = []
        since = f"since {str(origin['commit'])[:9]}"
        sources = origin.get("sources")
        if sources is None:
            reasons.append(f"the code has changed {since}, which names no files")
        changed = [n for n, value in (sources or {}).items() if source_hash(n) != value]
        if changed:
            others = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            reasons.append(f"{', '.join(changed[:3])}{others} changed {since}")
        if not origin["clean"]:
            reasons.append("the sources were not those of its commit")
        return reasons

    def cost(self) -> str:
        """Return the recorded time that it took."""
        results = self.results
        return "unknown" if results is None else written(results["seconds"], "duration")

    def rerun(self, data_dir: Path | None) -> None:
        """Rerun the command, and replace the record by its results."""
        words = shlex.split(self.command)[2:]
        if self.data or self.tables:
            if data_dir is None:
                raise ValueError(f"{self.name} needs --data-dir, or RANDKERN_DATA")
            option = "--folder" if self.tables else "--data-dir"
            words += [option, str(data_dir / self.tables)]
        command = built(command_of(self.experiment))
        command.main([*words, "--out", str(self.folder)], standalone_mode=False)


def read_records(folder: Path) -> Iterator[Record]:
    """Yield the records of a folder."""
    for name, entry in tomllib.loads(
        (folder / "records.toml").read_text("utf-8")
    ).items():
        yield Record(name, folder / name, **entry)


def main(
    folder: Annotated[Path, typer.Argument(help="Of the records.")],
    names: Annotated[list[str] | None, typer.Argument(help="Default: all.")] = None,
    rerun: Annotated[bool, typer.Option("--rerun", help="Make them again.")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="Of the data sets.")] = None,
) -> None:
    """List stale records, why they are, and what they cost; or make them again."""
    with user_messages():
        named = data_dir or os.environ.get("RANDKERN_DATA")
        data_dir = None if named is None else Path(named)
        total = 0.0
        for record in read_records(folder):
            reasons = record.why_stale()
            if (names and record.name not in names) or not (reasons or names):
                continue
            typer.echo(f"{record.name}: took {record.cost()}")
            for reason in reasons or ["up to date"]:
                typer.echo(f"  {reason}")
            total += (record.results or {"seconds": 0.0})["seconds"]
            if rerun:
                record.rerun(data_dir)
        typer.echo(f"in all {written(total, 'duration')} of what is recorded")


if __name__ == "__main__":
    typer.run(main)
