"""The runner of experiments: cases, records, a journal, results.

An experiment is a subclass of :class:`Experiment`. It defines the data (`prepare`), the
cases (`cases`), the measurement of a case (`measure`), the summary of the records
(`conclude`), and shows them by `tables` and a `figure`. The runner goes
through the cases, reports progress, stores the records of each in a journal, so that an
interrupted run can continue, and adds the provenance of the numbers.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

from randkern.exceptions import MemoryLimitError
from randkern.plots.records import save_figure
from randkern.study.records import installed_versions, write_results

from .options import CommonOptions
from .process import SkippedCase
from .provenance import (
    code_version,
    machine,
    peak_memory_bytes,
    provenance,
)
from .tables import Fitted, TextTable, skip_notes

Case = dict[str, Any]
Progress = Callable[[int, int, str], None]


def grid(**axes: Iterable[Any]) -> Iterator[Case]:
    """Yield the cases of a grid; the last axis varies fastest."""
    for values in product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


#: The first note of a quick run.
SMOKE = (
    "a smoke run (--quick): its few small sizes show that the experiment runs; no "
    "exponent or interval is printed, as none could be read from them"
)


class Journal:
    """A file with the records of measured cases, until the run ends.

    Without a path nothing is stored. `key` identifies the experiment, its arguments and
    the commit: the journal of another run is not continued.
    """

    def __init__(self, path: Path | None = None, key: str = "") -> None:
        self.path = path
        self._measured: dict[str, dict[str, Any]] = {}
        if path is None:
            return
        lines = path.read_text().splitlines() if path.is_file() else []
        complete = [key]
        for line in lines[1:] if lines[:1] == [key] else []:
            try:
                entry = json.loads(line)
            except ValueError:  # the run was interrupted while writing
                break
            self._measured[entry.pop("case")] = entry
            complete.append(line)
        if complete != lines:
            path.write_text("".join(f"{line}\n" for line in complete))

    def recall(self, case: Case) -> dict[str, Any] | None:
        """Return the stored entry of a case, or None if it was not measured."""
        return self._measured.get(json.dumps(case))

    def keep(self, case: Case, entry: dict[str, Any]) -> None:
        """Store the measurements of a case."""
        if self.path is not None:
            line = json.dumps({"case": json.dumps(case), **entry})
            with self.path.open("a") as file:
                file.write(line + "\n")

    def end(self) -> None:
        """Remove the file: the results contain everything."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


class Experiment:
    """A published experiment or a benchmark; subclasses say what is special.

    Contexts entered in `resources` are closed when the run ends.
    """

    name: ClassVar[str]  # the command's argument, as in `randkern reproduce NAME`
    title: ClassVar[str]  # one line
    command: ClassVar[str] = "reproduce"  # or "bench"
    Options: ClassVar[type[CommonOptions]]  # of `option` fields
    skipped_by: ClassVar[Sequence[str]] = ()  # keys that name skipped cases in notes

    def __init__(self, options: Any) -> None:
        self.options = options
        self.resources = ExitStack()
        self.say: Callable[[str], None] = lambda doing: None

    def prepare(self) -> Mapping[str, Any] | list[Any] | None:
        """Load and check what all cases need; return the results' ``dataset``."""
        return None

    def cases(self) -> Iterable[Case]:
        """Return the cases to measure: the first keys of each record."""
        raise NotImplementedError

    def measure(self, case: Case) -> Mapping[str, Any] | Iterable[Mapping[str, Any]]:
        """Return the measurements of a case: the rest of one or several records.

        If it raises SkippedCase or MemoryLimitError, the message is in ``skipped``.
        """
        raise NotImplementedError

    def conclude(self, results: dict[str, Any]) -> Mapping[str, Any]:
        """Return summaries of the records, as keys of the results."""
        return {}

    @classmethod
    def notes(cls, results: Mapping[str, Any]) -> Iterable[str]:
        """Return the sentences below the tables."""
        return skip_notes(results, *cls.skipped_by) if cls.skipped_by else []

    @classmethod
    def tables(cls, results: Mapping[str, Any]) -> Iterable[TextTable]:
        """Return the tables to print, by the functions of :mod:`.tables`."""
        return []

    @classmethod
    def figure(cls, results: Mapping[str, Any]) -> Any:
        """Return the figure, by the functions of :mod:`.figures`."""
        raise NotImplementedError

    @classmethod
    def figures(cls, results: Mapping[str, Any]) -> dict[str, Any]:
        """Return all figures by file name."""
        return {f"{cls.name}.png": cls.figure(results)} if results["records"] else {}

    @classmethod
    def run(
        cls, options: Any, progress: Progress | None = None, journal: Path | None = None
    ) -> dict[str, Any]:
        """Measure every case, and return the results.

        They are JSON-compatible: ``command``, ``arguments``, ``versions``, ``machine``,
        ``dataset``, ``records``, ``skipped``, ``published``, ``notes``, ``seconds``
        (over all runs, if it was continued), ``peak_memory_bytes`` (of this process or
        one that it started), ``provenance`` (:func:`.provenance.provenance`), and the
        keys of `conclude`.

        `progress` is called as ``progress(done, total, doing)`` before every case, and
        finally with ``done == total``; `journal` is the file of a :class:`Journal`.
        """
        start = time.perf_counter()
        results, command = cls._begin(options), cls.command_line(options)
        experiment, report = cls(options), progress or (lambda *_: None)
        experiment.say = lambda doing: report(0, 1, doing)
        with experiment.resources:
            results["dataset"] = experiment.prepare()
            cases = list(experiment.cases())
            key = f"{command}, {code_version()}" if journal else ""
            selected = Journal(journal, key)
            for done, case in enumerate(cases):
                report(done, len(cases), _described(case))
                entry = selected.recall(case)
                if entry is None:
                    entry = experiment.entry(case)
                    selected.keep(case, entry)
                else:
                    start -= entry["seconds"]
                results["records"] += entry["records"]
                results["skipped"] += entry["skipped"]
            results |= experiment.conclude(results)
        report(max(1, len(cases)), max(1, len(cases)), "done")
        results["provenance"] = provenance(command, results["records"])
        results["seconds"] = time.perf_counter() - start
        results["peak_memory_bytes"] = peak_memory_bytes()
        notes = list(cls.notes(results))
        if options.quick:
            notes = [SMOKE, *(n for n in notes if not isinstance(n, Fitted))]
        results["notes"] = [*notes, f"all in {results['seconds']:.0f} s"]
        selected.end()
        return results

    @classmethod
    def write(cls, results: Mapping[str, Any], folder: Path) -> list[Path]:
        """Write ``results.json`` and the figures, and return their paths."""
        figures = {folder / name: item for name, item in cls.figures(results).items()}
        written = write_results(results, folder / "results.json", outdated=figures)
        return [written, *(save_figure(item, path) for path, item in figures.items())]

    @classmethod
    def command_line(cls, options: Any) -> str:
        """Return the command that runs this, with directories replaced by DIR."""
        words = ["randkern", cls.command, cls.name]
        defaults = cls.Options(quick=options.quick).arguments()
        for key, value in cls._public(options).items():
            flag = "--" + key.replace("_", "-")
            if key == "quick":
                words += [flag] if value else []
            elif value != defaults[key] and isinstance(value, bool):
                words.append(flag if value else flag.replace("--", "--no-", 1))
            elif value != defaults[key]:
                listed = isinstance(value, list)
                words += [flag, ",".join(map(str, value)) if listed else str(value)]
        return " ".join(words)

    @classmethod
    def _public(cls, options: Any) -> dict[str, Any]:
        """Return the arguments without paths of files, which are private."""
        return {
            key: "DIR" if isinstance(getattr(options, key), Path) else value
            for key, value in options.arguments().items()
        }

    @classmethod
    def _begin(cls, options: Any) -> dict[str, Any]:
        is_paper = cls.command == "reproduce"
        return {
            "command": "reproduce" if is_paper else f"bench {cls.name}",
            **({"experiment": cls.name} if is_paper else {}),
            "arguments": cls._public(options),
            "versions": installed_versions(),
            "machine": machine(),
            "dataset": None,
            "records": [],
            "skipped": [],
            "published": [],
        }

    def entry(self, case: Case) -> dict[str, Any]:
        """Return the records of a case, or why it was skipped."""
        start = time.perf_counter()
        entry: dict[str, Any] = {"records": [], "skipped": []}
        try:
            result = self.measure(case)
            for record in [result] if isinstance(result, Mapping) else result:
                kind = "skipped" if "reason" in record else "records"
                entry[kind].append(case | dict(record))
        except (SkippedCase, MemoryLimitError) as error:
            entry["skipped"].append(case | {"reason": str(error)})
        return entry | {"seconds": time.perf_counter() - start}


def _described(case: Case) -> str:
    values = (f"{k} {v:,}" if isinstance(v, int) else v for k, v in case.items())
    return ", ".join(str(value) for value in values if value is not None)
