"""Records in the repository: which are stale, what a rerun costs, and the rerun.

``python -m randkern_lab.records FOLDER`` lists the records of a folder; with
``--rerun`` it reruns the stale ones, or those that are named. A folder has

- ``records.toml``: a section for each record with its ``command`` (without ``randkern``
  and directories), whether it takes ``data``, or which folder of ``tables``, and a
  ``note`` on how it was made;
- ``rule_changes.toml``: changes of a rule behind the numbers, and the records they
  concern, which are stale if they are older; and, under ``no_effect``, changes of the
  code that affect no number, with the reason and the hashes ``from`` and ``to``;
- a folder per record, with ``results.json`` and figures.
"""

import json
import os
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer

from randkern.cli.console import user_messages

from .catalogue import load
from .cli import command_of
from .runner import Experiment
from .source_hash import code_hash

__all__ = ["Record", "main", "read_records"]


@dataclass(frozen=True)
class Record:
    """A record of the repository.

    `command` is without ``randkern`` and directories, `data` whether it takes the
    directory of data sets, `tables` the folder of tables there that it takes, `changes`
    the rule changes that concern it. `renewed` maps hashes of code to those of later
    code that computes the same.
    """

    name: str
    folder: Path
    command: str
    data: bool = False
    tables: str = ""
    note: str = ""
    changes: tuple[Mapping[str, Any], ...] = ()
    renewed: Mapping[str, str] = field(default_factory=dict)

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
        """Return the reasons to rerun it."""
        results = self.results
        if results is None:
            return ["it was never made"]
        origin = results.get("provenance")
        reasons = [
            f"{change['rule']} ({change['date']})"
            for change in self.changes
            if origin is None or date.fromisoformat(origin["date"]) < change["date"]
        ]
        if origin is None:
            return [*reasons, "it does not say of which commit it is"]
        found = origin["code_hash"]
        now, left = code_hash(origin["module"]), dict(self.renewed)
        while found != now and found in left:
            found = left.pop(found)
        if found != now:
            reasons.append(f"the code has changed since {str(origin['commit'])[:9]}")
        if not origin["clean"]:
            reasons.append("the sources were not those of its commit")
        return reasons

    def cost(self) -> str:
        """Return the recorded time that it took."""
        seconds = (self.results or {}).get("seconds")
        return "unknown" if seconds is None else f"{seconds:,.0f} s"

    def rerun(self, data_dir: Path | None) -> list[Path]:
        """Rerun the command, and replace the record by its results."""
        words = shlex.split(self.command)[2:]
        if self.data or self.tables:
            if data_dir is None:
                raise ValueError(f"{self.name} needs --data-dir, or RANDKERN_DATA")
            option = "--folder" if self.tables else "--data-dir"
            words += [option, str(data_dir / self.tables)]
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command()(command_of(self.experiment))
        command = typer.main.get_command(single)
        command.main([*words, "--out", str(self.folder)], standalone_mode=False)
        return sorted(self.folder.iterdir())


def read_records(folder: Path) -> Iterator[Record]:
    """Yield the records of a folder."""
    listed = tomllib.loads((folder / "records.toml").read_text("utf-8"))
    changes = tomllib.loads((folder / "rule_changes.toml").read_text("utf-8"))
    for change in changes.get("change", []):
        unknown = set(change["records"]) - set(listed)
        if unknown:
            raise ValueError(f"records.toml has no {sorted(unknown)[0]!r}")
    pairs = [pair for each in changes.get("no_effect", []) for pair in each["hashes"]]
    renewed = {pair["from"]: pair["to"] for pair in pairs}
    for name, entry in listed.items():
        own = [c for c in changes.get("change", []) if name in c["records"]]
        yield Record(name, folder / name, **entry, changes=tuple(own), renewed=renewed)


def main(
    folder: Annotated[Path, typer.Argument(help="Of the records.")],
    names: Annotated[list[str] | None, typer.Argument(help="Default: all.")] = None,
    rerun: Annotated[bool, typer.Option("--rerun", help="Make them again.")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="Of the data sets.")] = None,
) -> None:
    """List stale records, why they are, and what they cost; or make them again."""
    with user_messages():
        given = data_dir or os.environ.get("RANDKERN_DATA")
        total = 0.0
        for record in read_records(folder):
            reasons = record.why_stale()
            if (names and record.name not in names) or not (reasons or names):
                continue
            typer.echo(f"{record.name}: took {record.cost()}")
            for reason in reasons or ["up to date"]:
                typer.echo(f"  {reason}")
            total += (record.results or {}).get("seconds") or 0.0
            if rerun:
                record.rerun(None if given is None else Path(given))
        typer.echo(f"in all {total:,.0f} s of what is recorded")


if __name__ == "__main__":
    typer.run(main)
