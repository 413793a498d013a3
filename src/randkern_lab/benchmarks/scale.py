"""The scale on which choices of `Tabular*` are weighed: two records, and their ratios.

    python -m randkern_lab.benchmarks.scale record NEW.jsonl --folder TABLES [--quick]
    python -m randkern_lab.benchmarks.scale weigh NEW.jsonl BASELINE.jsonl

`record` fits the real tables of ``randkern bench tables`` and the generated ones of
:mod:`.families`, and writes one line per fit. It resumes: cases that the
file has are not fitted again. The clock is stopped, so that the work alone decides and
a busy machine has the same results. `weigh` prints geometric means of the ratios to
the baseline, by group of sizes, over the cases that both records have.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

from randkern.tabular.presets import Deadline

from .families import FAMILIES, fit_generated
from .tables import fit_table, kind_of, read_table, table_paths

_MEASURES = ["rmse", "error", "log_loss", "cpu_seconds"]
# Sizes of training tables below which they are small, and from which they are large.
_SMALL, _LARGE = 1000, 13_000
# Errors below this are rounding, or one test row more or less.
_LEAST = 1e-3
# A quick record: files of at most so many bytes, and families of one size.
_QUICK_BYTES, _QUICK_SIZES = 100_000, ("200x12",)
_SIZES = ("150x25", "600x12")

app = typer.Typer(add_completion=False, rich_markup_mode=None)


def _cases(
    folder: Path | None, folds: int, seeds: int, quick: bool, only: list[str]
) -> Iterator[dict[str, Any]]:
    """Yield requests, each with a unique name."""
    for seed in range(seeds):
        for size in _QUICK_SIZES if quick else _SIZES:
            n, d = map(int, size.split("x"))
            for family in FAMILIES:
                for kind in ("regression", "classification"):
                    if not only or "families" in only or family in only:
                        name = f"{family} {size} {kind} {seed}"
                        drawn = {"family": family, "kind": kind, "n": n, "d": d}
                        yield {"name": name, **drawn, "seed": seed}
    paths = table_paths(folder) if folder else {}
    sizes = {table: Path(str(path)).stat().st_size for table, path in paths.items()}
    for fold in range(folds):
        for table in sorted(paths, key=sizes.__getitem__):
            if table in only or not (only or (quick and sizes[table] > _QUICK_BYTES)):
                file = {"table": table, "path": paths[table], "target": "target"}
                split = {"fold": fold, "seed": 0, "drop": ["group"]}
                yield {"name": f"{table} {fold}", **file, **split}


@app.command()
def record(
    file: Path,
    folder: Annotated[Path | None, typer.Option(help="Of tables.")] = None,
    time_limit: float = 10.0,
    folds: int = 1,
    seeds: int = 1,
    quick: bool = False,
    only: Annotated[str, typer.Option(help="Tables or families, by commas.")] = "",
) -> None:
    """Fit every case that the file does not have, and append its line."""
    Deadline.ends = lambda *_: False  # type: ignore[method-assign]
    known = set(_read(file).index) if file.exists() else set()
    names = only.split(",") if only else []
    for case in _cases(folder, folds, seeds, quick, names):
        name = f"{case['name']} in {time_limit:g} s"
        if name in known:
            continue
        case |= {"method": "tabular", "time_limit": time_limit}
        began = time.process_time()
        if "family" in case:
            kind, row = case["kind"], fit_generated(case)
        else:
            kind = kind_of(read_table(case)[1])
            row = fit_table({**case, "kind": kind})
        line = {
            "name": name,
            "n": row["n_train"],
            "rmse" if kind == "regression" else "error": row["test_error"],
            "log_loss": row["log_loss"],
            "coverage": row["coverage"],
            "cpu_seconds": row["fit_cpu_seconds"],
        }
        with file.open("a") as lines:
            lines.write(json.dumps(line) + "\n")
        typer.echo(f"{time.process_time() - began:6.1f} s  {line}")


def _read(path: Path) -> pd.DataFrame:
    rows = pd.read_json(path, lines=True).set_index("name")
    return rows.reindex(columns=["n", *_MEASURES, "coverage"])


@app.command()
def weigh(file: Path, baseline: Path) -> None:
    """Print ratios to the baseline, and the cases that changed most."""
    new, old = _read(file).align(_read(baseline), join="inner", axis=0)
    sizes = pd.cut(new.n, [0, _SMALL - 1, _LARGE - 1, np.inf])
    sizes = sizes.cat.rename_categories(["small", "middle", "large"])
    ratio = np.log(new.clip(lower=_LEAST) / old.clip(lower=_LEAST))[_MEASURES]
    means = ratio.groupby(sizes, observed=True).mean()
    table = np.exp(pd.concat([means, ratio.mean().rename("all").to_frame().T])).T
    table["±"] = ratio.sem()
    for name, rows in {"coverage": new, "coverage before": old}.items():
        by_size = rows.coverage.groupby(sizes, observed=True).mean()
        table.loc[name] = {**by_size, "all": rows.coverage.mean()}
    table.loc["cases"] = {**sizes.value_counts(), "all": len(new)}
    typer.echo(table.round(4).to_string(na_rep=""))
    for measure in _MEASURES[:3]:
        most = np.exp(ratio[measure].dropna()).sort_values().round(3)
        typer.echo(f"\n{measure}: {pd.concat([most.head(4), most.tail(4)]).to_dict()}")


if __name__ == "__main__":
    app()
