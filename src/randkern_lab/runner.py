"""The runner of scripts: cases, records, a journal, results.

A script is a module of :mod:`.papers` or :mod:`.benchmarks`:

``Options``
    A frozen dataclass of :func:`.options.option` fields, the options of its command.
``run(options, recorder)``
    Prepares the data, measures cases by `Recorder.measure`, which returns a dataframe,
    and returns what the results have beside the records: ``dataset``, ``published``,
    summaries, also as dataframes.
``tables(results)``, ``figure(results)``, ``notes(results)``
    What is shown of ``results.json``: dataframes of texts, a figure of matplotlib (or
    several by their file names), and sentences. Notes may be missing; those on skipped
    cases are added to them, by the keys that ``SKIPPED_BY`` names.

:func:`run` adds the provenance of the numbers.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from randkern.exceptions import MemoryLimitError
from randkern.plots.records import save_figure
from randkern.study.records import installed_versions, write_results

from .process import SkippedCase
from .provenance import code_version, machine, peak_memory_bytes, provenance
from .tables import plain, skip_notes

Case = dict[str, Any]
Progress = Callable[[int, int, str], None]

#: The first note of a quick run.
SMOKE = (
    "a smoke run (--quick): its few small sizes show that the experiment runs; no "
    "exponent or interval of it means anything"
)


def grid(**axes: Iterable[Any]) -> Iterator[Case]:
    """Yield the cases of a grid; the last axis varies fastest."""
    for values in product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


class Recorder:
    """Measures the cases of a run, and collects their records.

    They are kept in a file, `journal`, so that an interrupted run can continue; `key`
    identifies the command and the commit: the journal of another run is not continued.
    `progress` is called as ``progress(done, total, doing)``.
    """

    def __init__(
        self,
        progress: Progress | None = None,
        journal: Path | None = None,
        key: str = "",
    ) -> None:
        self.records: list[Case] = []
        self.skipped: list[Case] = []
        self.earlier_seconds = 0.0  # of the cases that an interrupted run measured
        self._progress, self._journal = progress or (lambda *_: None), journal
        self._measured = {} if journal is None else _continued(journal, key)

    def say(self, doing: str) -> None:
        """Report what is done before the first case."""
        self._progress(0, 1, doing)

    def measure(
        self,
        cases: Iterable[Case],
        measure: Callable[[Case], Mapping[str, Any] | Iterable[Mapping[str, Any]]],
    ) -> pd.DataFrame:
        """Return the records of cases: their keys, then what `measure` returns.

        That is the rest of one or several records. If it raises SkippedCase or
        MemoryLimitError, the case is in `skipped`, with the message.
        """
        cases, first = list(cases), len(self.records)
        for done, case in enumerate(cases):
            self._progress(done, len(cases), _described(case))
            entry = self._measured.get(json.dumps(case))
            if entry is None:
                entry = _entry(case, measure)
                if self._journal is not None:
                    with self._journal.open("a") as file:
                        file.write(json.dumps({"case": json.dumps(case), **entry}))
                        file.write("\n")
            else:
                self.earlier_seconds += entry["seconds"]
            self.records += entry["records"]
            self.skipped += entry["skipped"]
        self._progress(max(1, len(cases)), max(1, len(cases)), "done")
        return pd.DataFrame(self.records[first:])

    def end(self) -> None:
        """Remove the journal: the results contain everything."""
        if self._journal is not None:
            self._journal.unlink(missing_ok=True)


def _continued(journal: Path, key: str) -> dict[str, Case]:
    """Return the entries of a journal, after its last line was mended."""
    lines = journal.read_text().splitlines() if journal.is_file() else []
    complete, measured = [key], {}
    for line in lines[1:] if lines[:1] == [key] else []:
        try:
            entry = json.loads(line)
        except ValueError:  # the run was interrupted while writing
            break
        measured[entry.pop("case")] = entry
        complete.append(line)
    journal.write_text("".join(f"{line}\n" for line in complete))
    return measured


def _entry(case: Case, measure: Callable[[Case], Any]) -> Case:
    """Return the records of a case, or why it was skipped."""
    start = time.perf_counter()
    entry: Case = {"records": [], "skipped": []}
    try:
        result = measure(case)
        for record in [result] if isinstance(result, Mapping) else result:
            kind = "skipped" if "reason" in record else "records"
            entry[kind].append(case | dict(record))
    except (SkippedCase, MemoryLimitError) as error:
        entry["skipped"].append(case | {"reason": str(error)})
    return entry | {"seconds": time.perf_counter() - start}


def _described(case: Case) -> str:
    values = (f"{k} {v:,}" if isinstance(v, int) else v for k, v in case.items())
    return ", ".join(str(value) for value in values if value is not None)


def run(
    script: Any,
    options: Any,
    progress: Progress | None = None,
    journal: Path | None = None,
) -> dict[str, Any]:
    """Run a script, and return its results.

    They are JSON-compatible: ``command``, ``arguments``, ``versions``, ``machine``,
    ``dataset``, ``records``, ``skipped``, ``published``, ``notes``, ``seconds`` (over
    all runs, if it was continued), ``peak_memory_bytes`` (of this process or one that
    it started), ``provenance`` (:func:`.provenance.provenance`), and what the script
    adds.
    """
    start, (group, name) = time.perf_counter(), names_of(script)
    command = command_line(script, options)
    key = f"{command}, {code_version()}" if journal else ""
    recorder = Recorder(progress, journal, key)
    results: dict[str, Any] = {
        "command": "reproduce" if group == "reproduce" else f"bench {name}",
        **({"experiment": name} if group == "reproduce" else {}),
        "arguments": options.arguments(),
        "versions": installed_versions(),
        "machine": machine(),
        "dataset": None,
        "published": [],
    }
    own = {key: plain(part) for key, part in script.run(options, recorder).items()}
    for part in ("arguments", "versions"):  # to which a script adds
        results[part] |= own.pop(part, {})
    results |= {"records": recorder.records, "skipped": recorder.skipped} | own
    results["provenance"] = provenance(command, results["records"])
    results["seconds"] = time.perf_counter() - start + recorder.earlier_seconds
    results["peak_memory_bytes"] = peak_memory_bytes()
    results["notes"] = [
        *([SMOKE] if options.quick else []),
        *notes_of(script, results),
        f"all in {results['seconds']:.0f} s",
    ]
    recorder.end()
    return results


def notes_of(script: Any, results: Mapping[str, Any]) -> list[str]:
    """Return the sentences below the tables of a script."""
    own = script.notes(results) if hasattr(script, "notes") else ()
    keys = getattr(script, "SKIPPED_BY", ())
    return [*own, *(skip_notes(results, *keys) if keys else ())]


def figures_of(script: Any, results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of a script by file name; none of no records."""
    drawn = script.figure(results) if results["records"] else {}
    return drawn if isinstance(drawn, dict) else {f"{names_of(script)[1]}.png": drawn}


def write(script: Any, results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write ``results.json`` and the figures, and return their paths."""
    figures = {folder / file: it for file, it in figures_of(script, results).items()}
    written = write_results(results, folder / "results.json", outdated=figures)
    return [written, *(save_figure(item, path) for path, item in figures.items())]


def names_of(script: Any) -> tuple[str, str]:
    """Return the command that runs a script, ``reproduce`` or ``bench``, and its name.

    The name is that of its module, with hyphens.
    """
    *_, folder, name = script.__name__.split(".")
    return "reproduce" if folder == "papers" else "bench", name.replace("_", "-")


def command_line(script: Any, options: Any) -> str:
    """Return the command that runs a script, with directories replaced by DIR."""
    words = ["randkern", *names_of(script)]
    defaults = type(options)(quick=options.quick).arguments()
    for key, value in options.arguments().items():
        flag = "--" + key.replace("_", "-")
        if key == "quick":
            words += [flag] if value else []
        elif value != defaults[key] and isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        elif value != defaults[key]:
            listed = isinstance(value, list)
            words += [flag, ",".join(map(str, value)) if listed else str(value)]
    return " ".join(words)
