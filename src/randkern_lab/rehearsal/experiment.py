"""The rehearsal: its stages, each in a process of its own, and its table."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from randkern._files import atomic_write

from ..options import DataOptions, option
from ..process import SkippedCase, in_fresh_process
from ..runner import Case, Experiment
from ..tables import Listing
from . import every_estimator, rows, tables
from .generated import TABLES

#: The stages of a table, in order: later ones need the model of the first.
_OF_TABLES: Mapping[str, Callable[..., dict[str, Any]]] = {
    "fit": tables.fit,
    "predict": tables.predict,
    "files": tables.files,
    "summary": tables.summary,
    "studies": tables.studies,
}
STAGES: Mapping[str, Callable[..., dict[str, Any]]] = {
    **_OF_TABLES,
    "images": rows.images,
    "stream": rows.stream,
    "cluster": rows.cluster,
    "estimator": every_estimator.estimator,
}
#: A stage may take so many times its processor time, which a busy machine shares.
_WALL_PER_CPU = 10
_FULL_SIZES, _QUICK_SIZES = (10, 1_000, 100_000), (1_000,)
_FULL_WIDTHS, _QUICK_WIDTHS = (10, 1_000, 10_000), (10,)


@dataclass(frozen=True)
class Options(DataOptions):
    """Options of the rehearsal."""

    only: tuple[str, ...] = option((), "Stages or data sets to run; default: all.")
    time_limit: int = option(15, "Seconds of fits of tables.", quick=3)
    seconds: int = option(600, "Most processor seconds of a stage.", quick=240)
    memory_gb: int = option(10, "Most memory of a process of a stage, in gigabytes.")
    stream_rows: int = option(1_000_000, "Rows in Parquet files.", quick=100_000)
    cluster_rows: int = option(200_000, "Rows on two Dask workers.", quick=20_000)
    n_components: int = option(2_000, "Features of images.", quick=200)
    components: str = option("100,500", "Features in compare.", quick="50,200")
    sizes: tuple[int, ...] = option(
        _FULL_SIZES, "Rows of every estimator.", quick=_QUICK_SIZES
    )
    widths: tuple[int, ...] = option(
        _FULL_WIDTHS, "Features of every estimator.", quick=_QUICK_WIDTHS
    )
    most_work: float = option(2e11, "Most n·D·min(n, D) of an estimator.", quick=1e9)
    work: Path | None = option(None, "Folder of models and files; --out by default.")


class Rehearsal(Experiment):
    """What users do, on tables of real size: every step is right, or named."""

    name = "rehearsal"
    title = "What users do, on tables of real size: every step is right, or named."
    command = "bench"
    Options = Options
    listed = (
        Listing(
            title="rehearsal",
            headings="step | data | result | seconds | peak MB",
            row="{step} | {data} | {result} | {seconds:.1f} | {peak_mb:.0f}",
        ),
    )

    def prepare(self) -> dict[str, Any]:
        folder = self.options.data_dir or os.environ.get("RANDKERN_DATA")
        self.data_dir = None if folder is None else Path(folder)
        work = self.options.work or Path("randkern-rehearsal")
        self.work = work.resolve()
        self.work.mkdir(parents=True, exist_ok=True)
        return {"name": "all tables", "n_tables": len(tables.tables_of(self.data_dir))}

    def cases(self) -> Iterator[Case]:
        chosen = set(self.options.only)
        for case in self._cases():
            if not chosen or chosen & {case["stage"], case["data"]}:
                yield case

    def _cases(self) -> Iterator[Case]:
        options = self.options
        real = [] if options.quick else tables.tables_of(self.data_dir)
        for data in [*TABLES, *real]:
            for stage in _OF_TABLES:
                yield {"stage": stage, "data": data}
        for data in () if options.quick or self.data_dir is None else rows.IMAGES:
            yield {"stage": "images", "data": data}
        yield {"stage": "stream", "data": "Parquet", "n_rows": options.stream_rows}
        yield {"stage": "cluster", "data": "Dask", "n_rows": options.cluster_rows}
        sizes, widths = list(options.sizes), list(options.widths)
        for case in every_estimator.cases(sizes, widths, options.most_work):
            yield {"stage": "estimator", **case}

    def measure(self, case: Case) -> list[dict[str, Any]]:
        """Run a stage in a process; if that ends early, this is a failure too."""
        options = self.options
        request = {
            "time_limit": options.time_limit,
            "components": options.components,
            "n_components": options.n_components if case["stage"] == "images" else 200,
            "work": str(self.work),
            "data_dir": None if self.data_dir is None else str(self.data_dir),
            **case,
        }
        try:
            message = in_fresh_process(
                STAGES[case["stage"]],
                request,
                seconds=_WALL_PER_CPU * options.seconds,
                cpu_seconds=options.seconds,
                memory_bytes=options.memory_gb * 10**9,
            )
        except SkippedCase as error:
            failed = {"result": "FAILED", "message": str(error), "seconds": 0.0}
            return [{"step": case["stage"], **failed, "peak_mb": 0.0}]
        peak = (message["peak_anonymous_bytes"] or message["peak_memory_bytes"]) / 1e6
        return [{**record, "peak_mb": peak} for record in message["records"]]

    def conclude(self, results: dict[str, Any]) -> dict[str, Any]:
        counts: dict[str, int] = {}
        for record in results["records"]:
            counts[record["result"]] = counts.get(record["result"], 0) + 1
        return {"counts": counts}

    @classmethod
    def notes(cls, results: Mapping[str, Any]) -> Iterator[str]:
        """Yield the messages of steps that failed, and how many there were of each."""
        for record in results["records"]:
            if record["result"] != "ok":
                where = f"{record['result']}: {record['data']}, {record['step']}"
                yield f"{where}: {record['message']}"
        counts = results["counts"].items()
        yield ", ".join(f"{number:,} {result}" for result, number in counts)

    @classmethod
    def figures(cls, results: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    @classmethod
    def write(cls, results: Mapping[str, Any], folder: Path) -> list[Path]:
        """Write ``results.json``, and all steps with their messages as a table."""
        path = folder / "rehearsal.md"
        with atomic_write(path) as file:
            file.write("\n".join(_lines(results)).encode())
        return [*super().write(results, folder), path]


def _lines(results: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    yield "| step | data | result | message | seconds | peak MB |"
    yield "|---|---|---|---|---|---|"
    for record in results["records"]:
        message = record["message"].replace("|", "\\|")
        costs = f"{record['seconds']:.1f} | {record['peak_mb']:.0f}"
        step = f"{record['step']} | {record['data']} | {record['result']}"
        yield f"| {step} | {message} | {costs} |"
    yield ""
    for note in results["notes"]:
        yield f"- {note}"
