"""The scale on which choices of `Tabular*` are weighed: two records, and their ratios.

    python -m randkern_lab.benchmarks.scale record NEW.jsonl --folder TABLES [--quick]
    python -m randkern_lab.benchmarks.scale weigh NEW.jsonl BASELINE.jsonl

`record` fits the real tables of ``randkern bench tables`` and the generated ones of
:mod:`.families`, and writes one line per fit. It resumes: cases that the
file has are not fitted again. The clock is stopped, so that the work alone decides and
a busy machine has the same results. `weigh` prints geometric means of the ratios to
the baseline, by group of sizes, over the cases that both records have.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from randkern.tabular.presets import Deadline

from .families import FAMILIES, fit_generated
from .tables import fit_table, kind_of, read_table, table_paths

_MEASURES = ("rmse", "error", "log_loss", "cpu_seconds", "coverage")
# Sizes of training tables below which they are small, and from which they are large.
_SMALL, _LARGE = 1000, 13_000
# Errors below this are rounding, or one test row more or less.
_LEAST = 1e-3
# A quick record: files of at most so many bytes, and families of one size.
_QUICK_BYTES, _QUICK_SIZES = 100_000, ("200x12",)
_SIZES = ("150x25", "600x12")


def _cases(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield requests, each with a unique name."""
    shared = {"method": "tabular", "time_limit": options.time_limit}
    names = options.only or None
    sizes = _QUICK_SIZES if options.quick else _SIZES
    for seed in range(options.seeds):
        for size in sizes:
            n, d = map(int, size.split("x"))
            for family in FAMILIES:
                for kind in ("regression", "classification"):
                    if names is None or "families" in names or family in names:
                        yield {
                            **shared,
                            "name": f"{family} {size} {kind} {seed}",
                            **{"family": family, "kind": kind, "n": n, "d": d},
                            "seed": seed,
                        }
    paths = table_paths(options.folder) if options.folder else {}
    sizes_of = {table: Path(str(path)).stat().st_size for table, path in paths.items()}
    for fold in range(options.folds):
        for table in sorted(paths, key=sizes_of.__getitem__):
            quick = options.quick and sizes_of[table] > _QUICK_BYTES
            if table in names if names is not None else not quick:
                yield {
                    **shared,
                    "name": f"{table} {fold}",
                    **{"table": table, "path": paths[table], "fold": fold, "seed": 0},
                    **{"target": "target", "drop": ["group"], "rows": None},
                }


def record(options: argparse.Namespace) -> None:
    """Fit every case that the file does not have, and append its line."""
    Deadline.ends = lambda *_: False  # type: ignore[method-assign]
    known = set(_read(options.file).index) if options.file.exists() else set()
    for case in _cases(options):
        name = f"{case['name']} in {case['time_limit']:g} s"
        if name in known:
            continue
        began = time.process_time()
        if "family" in case:
            kind, row = case["kind"], fit_generated(case)
        else:
            kind = kind_of(read_table(case)[1])
            row = fit_table({**case, "kind": kind})
        error = "rmse" if kind == "regression" else "error"
        line = {
            "name": name,
            "n": row["n_train"],
            error: row["test_error"],
            "log_loss": row["log_loss"],
            "coverage": row["coverage"],
            "cpu_seconds": row["fit_cpu_seconds"],
        }
        with options.file.open("a") as file:
            file.write(json.dumps(line) + "\n")
        sys.stdout.write(f"{time.process_time() - began:6.1f} s  {line}\n")
        sys.stdout.flush()


def _read(path: Path) -> pd.DataFrame:
    rows = pd.read_json(path, lines=True).set_index("name")
    return rows.reindex(columns=["n", *_MEASURES])


def weigh(options: argparse.Namespace) -> None:
    """Print ratios to the baseline, and the cases that changed most."""
    new, old = _read(options.file), _read(options.baseline)
    names = new.index.intersection(old.index)
    new, old = new.loc[names], old.loc[names]
    group = pd.cut(new.n, [0, _SMALL - 1, _LARGE - 1, np.inf])
    group = group.cat.rename_categories(["small", "middle", "large"])
    ratio = np.log(new.clip(lower=_LEAST) / old.clip(lower=_LEAST))[list(_MEASURES[:4])]
    table = np.exp(pd.concat({"all": ratio.mean(), **_grouped(ratio, group)}, axis=1))
    error = ratio.std() / np.sqrt(ratio.notna().sum())
    table.insert(1, "±", error)
    for name, rows in {"coverage": new, "coverage before": old}.items():
        table.loc[name] = {"all": rows.coverage.mean(), **_means(rows.coverage, group)}
    table.loc["cases"] = {"all": len(names), **group.value_counts().to_dict()}
    lines = [table.round(4).to_string(na_rep="")]
    for measure in _MEASURES[:3]:
        most = np.exp(ratio[measure].dropna()).sort_values()
        shown = pd.concat([most.head(4), most.tail(4)]).round(3)
        lines.append(f"\n{measure}: {shown.to_dict()}")
    sys.stdout.write("\n".join(lines) + "\n")


def _grouped(ratio: pd.DataFrame, group: pd.Series) -> dict[str, pd.Series]:
    return {name: rows.mean() for name, rows in ratio.groupby(group, observed=True)}


def _means(values: pd.Series, group: pd.Series) -> dict[str, float]:
    return values.groupby(group, observed=True).mean().to_dict()


def main() -> None:
    """Read the command line, and run one of the two commands."""
    parser = argparse.ArgumentParser(prog="randkern_lab.benchmarks.scale")
    commands = parser.add_subparsers(required=True)
    recording = commands.add_parser("record")
    recording.set_defaults(run=record)
    recording.add_argument("file", type=Path)
    recording.add_argument("--folder", type=Path)
    recording.add_argument("--time-limit", type=float, default=10.0)
    recording.add_argument("--folds", type=int, default=1)
    recording.add_argument("--seeds", type=int, default=1)
    recording.add_argument("--quick", action="store_true")
    recording.add_argument("--only", nargs="+", help="Names of tables or families.")
    weighing = commands.add_parser("weigh")
    weighing.set_defaults(run=weigh)
    weighing.add_argument("file", type=Path)
    weighing.add_argument("baseline", type=Path)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
