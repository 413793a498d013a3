"""Records in the repository: which are stale, what a rerun costs, and the rerun.

``python -m randkern_lab.records FOLDER`` lists the records of a folder; with
``--rerun`` it reruns the stale ones, or those that are named; with ``--check SECONDS``
it measures some of their cases again, and prints an entry for ``no_effect`` where all
results are the recorded ones but for costs. A folder has

- ``records.toml``: a section for each record with its ``command`` (without ``randkern``
  and directories), whether it takes ``data``, or which folder of ``tables``, and a
  ``note`` on how it was made;
- ``rule_changes.toml``: changes of a rule behind the numbers, and the records they
  concern, which are stale if they are older; and, under ``no_effect``, changes of the
  code that affect no number, with the reason and the hashes ``from`` and ``to``;
- a folder per record, with ``results.json`` and figures.
"""

import json
import math
import os
import random
import re
import shlex
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer

from randkern.cli.console import user_messages

from .catalogue import load
from .cli import built, command_of, run_and_write
from .runner import Experiment
from .source_hash import code_hash

#: Keys of results that are costs, or computed from costs.
_COST = re.compile(
    r"seconds|bytes|joules|nanoseconds|gflops|speedup|steps|out_of_time|_ns\b|_gb\b"
    r"|ns_per|per_iteration|ratio_to_dense"
)
#: Largest difference that rounding explains: a row in ten thousand on the other side.
_SAME = 2e-4


@dataclass(frozen=True)
class Record:
    """A record of the repository."""

    name: str
    folder: Path
    command: str  # without `randkern` and directories
    data: bool = False  # whether it takes the directory of data sets
    tables: str = ""  # the folder of tables there that it takes
    note: str = ""
    changes: tuple[Mapping[str, Any], ...] = ()  # of rules that concern it
    # Of hashes of code to those of later code that computes the same.
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
        now = code_hash(origin["module"])
        if self.renewed_hash(origin["code_hash"], now) != now:
            reasons.append(f"the code has changed since {str(origin['commit'])[:9]}")
        if not origin["clean"]:
            reasons.append("the sources were not those of its commit")
        return reasons

    def renewed_hash(self, recorded: str, now: str) -> str:
        """Return `now` if code of that hash computes the same, or how far it did."""
        left = dict(self.renewed)
        while recorded != now and recorded in left:
            recorded = left.pop(recorded)
        return recorded

    def cost(self) -> str:
        """Return the recorded time that it took."""
        seconds = (self.results or {}).get("seconds")
        return "unknown" if seconds is None else f"{seconds:,.0f} s"

    def rerun(self, data_dir: Path | None) -> None:
        """Rerun the command, and replace the record by its results."""
        self._call(run_and_write, data_dir)

    def check(self, data_dir: Path | None, seconds: float) -> list[tuple[str, float]]:
        """Measure some cases again, in random order, while there is time.

        Returns, for every number that was measured, the keys that lead to it, and how
        far it is from the recorded one, relative to the larger of it and 1. Costs do
        not count: seconds, bytes, joules, and what is computed from them.
        """
        result: list[tuple[str, float]] = []

        def measure(cls: type[Experiment], options: Any, out: Path) -> None:
            results = self.results or {}
            experiment = cls(options)
            with experiment.resources:
                experiment.prepare()
                end = time.perf_counter() + seconds
                cases = list(experiment.cases())
                random.Random(0).shuffle(cases)
                for case in cases:
                    recorded = [
                        r for r in results["records"] if case.items() <= r.items()
                    ]
                    cost = sum(_costs(recorded))
                    if recorded and time.perf_counter() + cost < end:
                        again = experiment.entry(case)["records"]
                        result.extend(_differences(again, recorded, str(case)))

        self._call(measure, data_dir)
        return result

    def _call(self, run: Callable[..., Any], data_dir: Path | None) -> None:
        """Call ``run(experiment, options, folder)`` with the options of the command."""
        words = shlex.split(self.command)[2:]
        if self.data or self.tables:
            if data_dir is None:
                raise ValueError(f"{self.name} needs --data-dir, or RANDKERN_DATA")
            option = "--folder" if self.tables else "--data-dir"
            words += [option, str(data_dir / self.tables)]
        command = built(command_of(self.experiment, run))
        command.main([*words, "--out", str(self.folder)], standalone_mode=False)


def read_records(folder: Path) -> Iterator[Record]:
    """Yield the records of a folder."""
    listed = tomllib.loads((folder / "records.toml").read_text("utf-8"))
    changes = tomllib.loads((folder / "rule_changes.toml").read_text("utf-8"))
    for change in changes.get("change", []):
        unknown = set(change["records"]) - set(listed)
        if unknown:
            raise ValueError(f"records.toml has no {sorted(unknown)[0]!r}")
    pairs = [pair for item in changes.get("no_effect", []) for pair in item["hashes"]]
    renewed = {pair["from"]: pair["to"] for pair in pairs}
    for name, entry in listed.items():
        own = [c for c in changes.get("change", []) if name in c["records"]]
        yield Record(name, folder / name, **entry, changes=tuple(own), renewed=renewed)


def _costs(records: Sequence[Mapping[str, Any]]) -> Iterator[float]:
    """Yield the seconds that records tell of."""
    for record in records:
        for key, value in record.items():
            if key.endswith("seconds") and isinstance(value, int | float):
                yield value


def _differences(now: Any, then: Any, where: str) -> Iterator[tuple[str, float]]:
    """Yield the places of two results that are no costs, and how far they differ.

    Keys that only the measurement has are left out: `conclude` moves some elsewhere.
    """
    if isinstance(then, dict) and isinstance(now, dict):
        for key in sorted(then):
            if not _COST.search(key):
                yield from _differences(now.get(key), then.get(key), f"{where} {key}")
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for place, pair in enumerate(zip(now, then, strict=True)):
            yield from _differences(*pair, f"{where} {place}")
    elif isinstance(then, float) and isinstance(now, int | float):
        same = now == then or (now != now and then != then)
        yield where, 0.0 if same else abs(now - then) / max(1.0, abs(then))
    else:
        yield where, 0.0 if now == then else math.inf


def main(
    folder: Annotated[Path, typer.Argument(help="Of the records.")],
    names: Annotated[list[str] | None, typer.Argument(help="Default: all.")] = None,
    rerun: Annotated[bool, typer.Option("--rerun", help="Make them again.")] = False,
    check: Annotated[
        float | None, typer.Option(help="Seconds to measure some cases again, each.")
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Of the data sets.")] = None,
) -> None:
    """List stale records, why they are, and what they cost; check or remake them."""
    with user_messages():
        named = data_dir or os.environ.get("RANDKERN_DATA")
        settings = None if named is None else Path(named)
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
                record.rerun(settings)
            elif check is not None and record.results is not None:
                _tell(record, record.check(settings, check))
        typer.echo(f"in all {total:,.0f} s of what is recorded")


def _tell(record: Record, differences: Sequence[tuple[str, float]]) -> None:
    """Print what a check found."""
    far = [item for item in differences if item[1] > _SAME]
    largest = max((item[1] for item in differences), default=0.0)
    typer.echo(
        f"  {len(differences):,} results measured again; "
        f"largest difference {largest:.1e}"
    )
    for where, difference in far[:10]:
        typer.echo(f"  {where}: differs by {difference:.1e}")
    origin = (record.results or {}).get("provenance")
    if differences and not far and origin is not None:
        now = code_hash(origin["module"])
        result = record.renewed_hash(origin["code_hash"], now)
        if result != now:
            typer.echo(f'  {{ from = "{result}", to = "{now}" }}, # {record.name}')


if __name__ == "__main__":
    typer.run(main)
