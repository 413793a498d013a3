"""The runner of scripts: cases, a journal, results.

A script is a module of :mod:`.papers` or :mod:`.benchmarks`:

``Options``
    A frozen dataclass of :func:`.options.option` fields, the options of its command.
``run(options)``
    Prepares the data, measures cases by :func:`measure_all`, and returns a dataframe
    with a row per measurement. If it has several parts, a column names them. What is
    true of the whole run, such as the data set, is in the dataframe's ``attrs``.
``tables(frame)``, ``figure(frame)``, ``notes(frame)``
    What is shown of this dataframe: dataframes of texts, a figure of matplotlib (or
    several by their file names), and sentences. Notes may be missing; those on skipped
    cases are added to them, by the keys that ``SKIPPED_BY`` names.

``results.json`` has the rows as ``records``, ``attrs``, and where they come from;
:func:`frame_of` returns the dataframe again, with all the rest as ``attrs``.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from randkern.cli.console import progress_bar
from randkern.exceptions import MemoryLimitError
from randkern.plots.records import save_figure
from randkern.study.records import installed_versions, write_results

from .options import CommonOptions
from .process import SkippedCase
from .provenance import code_version, machine, peak_memory_bytes, provenance
from .tables import skip_notes

Case = dict[str, Any]

#: The first note of a quick run.
SMOKE = (
    "a smoke run (--quick): its few small sizes show that the experiment runs; no "
    "exponent or interval of it means anything"
)
_JOURNAL = "journal.jsonl"


# -- cases ---------------------------------------------------------------------------


def grid(**axes: Iterable[Any]) -> Iterator[Case]:
    """Yield the cases of a grid; the last axis varies fastest."""
    for values in product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def measure_all(
    options: CommonOptions,
    cases: Iterable[Case],
    measure: Callable[[Case], Mapping[str, Any] | Iterable[Mapping[str, Any]]],
) -> pd.DataFrame:
    """Return a row per measurement: the keys of its case, then what `measure` returns.

    That is the rest of one or several rows. If it raises SkippedCase or
    MemoryLimitError, the case has a row with the message as its ``reason``. With
    ``options.out`` rows are kept in a file there until the run has ended, so that an
    interrupted one continues; no two cases of a run are the same.
    """
    cases, rows, measured = list(cases), list[Case](), _measured(options)
    with progress_bar() as progress:
        for done, case in enumerate(cases):
            progress(done, len(cases), _described(case))
            key = json.dumps(case)
            if key not in measured:
                start = time.perf_counter()
                own: Sequence[Mapping[str, Any]]
                try:
                    result = measure(case)
                    own = [result] if isinstance(result, Mapping) else list(result)
                except (SkippedCase, MemoryLimitError) as error:
                    own = [{"reason": str(error)}]
                entry = {"case": key, "rows": [case | dict(row) for row in own]}
                measured[key] = entry | {"seconds": time.perf_counter() - start}
                if options.out is not None:
                    with (options.out / _JOURNAL).open("a") as journal:
                        journal.write(json.dumps(measured[key]) + "\n")
            rows += measured[key]["rows"]
    return pd.DataFrame(rows)


def _described(case: Case) -> str:
    values = (f"{k} {v:,}" if isinstance(v, int) else v for k, v in case.items())
    return ", ".join(str(value) for value in values if value is not None)


def _measured(options: CommonOptions) -> dict[str, Any]:
    """Return what an interrupted run of this command and commit has measured.

    The journal begins with both; that of another run, and a last line that is not
    complete, are removed.
    """
    if options.out is None:
        return {}
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / _JOURNAL
    first = json.dumps([command_line(options), code_version()])
    lines = path.read_text().splitlines() if path.is_file() else []
    entries = []
    for line in lines[1:] if lines[:1] == [first] else ():
        with suppress(ValueError):  # the run was interrupted while writing
            entries.append(json.loads(line))
    complete = [first, *map(json.dumps, entries)]
    path.write_text("".join(f"{line}\n" for line in complete))
    return {entry["case"]: entry for entry in entries}


# -- runs ----------------------------------------------------------------------------


def run(script: Any, options: Any) -> dict[str, Any]:
    """Run a script, and return its results.

    They are JSON-compatible: ``command``, ``arguments``, ``versions``, ``machine``,
    the dataframe's ``attrs`` (mostly ``dataset``), its rows as ``records``, ``skipped``
    (with a ``reason`` each), ``provenance`` (:func:`.provenance.provenance`),
    ``seconds`` (over all runs, if it was continued), ``peak_memory_bytes`` (of this
    process or one that it started), and ``notes``.
    """
    start, (group, name) = time.perf_counter(), names_of(script.Options)
    earlier = sum(entry["seconds"] for entry in _measured(options).values())
    frame = script.run(options)
    results: dict[str, Any] = {
        "command": "reproduce" if group == "reproduce" else f"bench {name}",
        **({"experiment": name} if group == "reproduce" else {}),
        "arguments": options.arguments() | frame.attrs.pop("arguments", {}),
        "versions": installed_versions() | frame.attrs.pop("versions", {}),
        "machine": machine(),
        **frame.attrs,
        **_plain(frame),
    }
    results["provenance"] = provenance(command_line(options), results["records"])
    results["seconds"] = time.perf_counter() - start + earlier
    results["peak_memory_bytes"] = peak_memory_bytes()
    results["notes"] = [
        *([SMOKE] if options.quick else []),
        *notes_of(script, frame_of(results)),
        f"all in {results['seconds']:.0f} s",
    ]
    if options.out is not None:
        (options.out / _JOURNAL).unlink(missing_ok=True)
    return results


def _plain(frame: pd.DataFrame) -> dict[str, list[Case]]:
    """Return the rows as JSON, and those with a reason, which were skipped.

    Rows have no keys of other parts (values of ``measure``).
    """
    part = frame.get("measure", pd.Series("", frame.index))
    own = frame.notna().groupby(part).transform("any") | ~frame.notna().any()
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    records, skipped = list[Case](), list[Case]()
    for row, known in zip(rows, own.to_dict("records"), strict=True):
        reason = row.pop("reason", None)
        if reason is not None:
            left = {key: value for key, value in row.items() if value is not None}
            skipped.append(left | {"reason": reason})
            continue
        # A column of whole numbers beside missing ones has become one of floats.
        row |= {key: int(value) for key, value in row.items() if _is_whole(value)}
        records.append({key: value for key, value in row.items() if known[key]})
    return {"records": records, "skipped": skipped}


def _is_whole(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer() and abs(value) < 2**53


def frame_of(results: Mapping[str, Any]) -> pd.DataFrame:
    """Return the records as a dataframe, with the rest of the results as ``attrs``."""
    frame = pd.DataFrame(results["records"])
    frame.attrs = {key: value for key, value in results.items() if key != "records"}
    return frame


def notes_of(script: Any, frame: pd.DataFrame) -> list[str]:
    """Return the sentences below the tables of a script."""
    own = script.notes(frame) if hasattr(script, "notes") else ()
    keys = getattr(script, "SKIPPED_BY", ())
    return [*own, *(skip_notes(frame.attrs["skipped"], *keys) if keys else ())]


def figures_of(script: Any, frame: pd.DataFrame) -> dict[str, Any]:
    """Return the figures of a script by file name; none of no records."""
    drawn = script.figure(frame) if len(frame) else {}
    name = f"{names_of(script.Options)[1]}.png"
    return drawn if isinstance(drawn, dict) else {name: drawn}


def write(script: Any, results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write ``results.json`` and the figures, and return their paths."""
    drawn = figures_of(script, frame_of(results))
    figures = {folder / file: figure for file, figure in drawn.items()}
    written = write_results(results, folder / "results.json", outdated=figures)
    return [written, *(save_figure(item, path) for path, item in figures.items())]


def names_of(options: type) -> tuple[str, str]:
    """Return the command of a script, ``reproduce`` or ``bench``, and its name.

    It is found by the class of its options; the name is that of the module, with
    hyphens.
    """
    *_, folder, name = options.__module__.split(".")
    return "reproduce" if folder == "papers" else "bench", name.replace("_", "-")


def command_line(options: CommonOptions) -> str:
    """Return the command that runs a script, with directories replaced by DIR."""
    words = ["randkern", *names_of(type(options))]
    words += ["--quick"] if options.quick else []
    defaults = type(options)(quick=options.quick).arguments()
    for key, value in options.arguments().items():
        flag = key.replace("_", "-")
        if value != defaults[key] and isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif value != defaults[key]:
            listed = ",".join(map(str, value)) if isinstance(value, list) else value
            words += [f"--{flag}", str(listed)]
    return " ".join(words)
