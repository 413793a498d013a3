"""What users do, on tables of real size: ``python -m randkern_lab.rehearsal``.

Each step must pass an independent check: an error near that of gradient boosting, the
formula of the normal equations, equal predictions of equal rows. The status is 1 if a
step fails; ``rehearsal.md`` lists all steps with their seconds. Tables are generated
here; without ``--quick`` those of ``--data-dir`` (or RANDKERN_DATA), and estimators at
larger sizes follow.
"""

import inspect
import json
import os
import time
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from scipy.linalg import solve
from sklearn.base import is_classifier
from sklearn.metrics import log_loss
from typer.testing import CliRunner

import randkern as rk
from randkern import cli

from .benchmarks.tables import fit_rows

#: Errors may be this factor above those of gradient boosting, and this much.
_FACTOR, _MORE = 1.3, 0.03
_COVERAGE = 0.9
_FOLDER = Path("randkern-rehearsal")

Steps = Iterator[dict[str, Any]]


def take(data: str, step: str, work: Callable[[], str]) -> dict[str, Any]:
    """Do a step: `work` returns what was checked, or raises."""
    start = time.perf_counter()
    try:
        result, message = "ok", work()
    except Exception as error:
        result, message = "FAILED", repr(error)
    seconds, message = time.perf_counter() - start, " ".join(message.split())
    taken = {"data": data, "step": step, "result": result, "seconds": round(seconds, 1)}
    taken["message"] = message
    typer.echo(" ".join(map(str, taken.values())))
    return taken


def check(holds: bool, message: str) -> str:
    """Return the message, or raise it if it does not hold."""
    if not holds:
        raise AssertionError(message)
    return message


def same(actual: Any, expected: Any, tolerance: float = 1e-6) -> str:
    """Compare arrays: numbers relative to the spread of `expected`, texts exactly."""
    if pd.api.types.is_numeric_dtype(np.asarray(expected)):
        spread = float(np.ptp(expected)) or float(np.abs(expected).max())
        np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * spread)
    else:
        np.testing.assert_array_equal(actual, expected)
    return f"equal to {tolerance:.0e} of their spread"


def randkern(*words: Any, status: int = 0) -> str:
    """Run the command line in this process; return what it prints."""
    done = CliRunner().invoke(cli._build_app(), list(map(str, words)))
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    check(done.exit_code == status, f"status {done.exit_code}: {done.output}")
    return done.output


def generated(name: str) -> pd.DataFrame:
    """Return a table with dates, gaps, categories and placeholders, or a rare class."""
    n = {"prices": 5000, "defaults": 20_000}[name]
    rng = np.random.default_rng([0, n])
    if name == "defaults":
        X = rng.normal(size=(n, 6))
        region = rng.choice(["north", "south", "east", "west"], n)
        score = 1.5 * X[:, 0] + X[:, 1] * X[:, 2] + rng.logistic(size=n)
        rare = score > np.quantile(score, 0.98)
        frame = pd.DataFrame(X.round(4)).add_prefix("x").assign(region=region)
        frame["target"] = np.where(rare, "default", "paid")
        return frame.assign(fold=rng.integers(0, 10, n))
    size, rooms = rng.lognormal(4.0, 0.4, n), rng.integers(1, 7, n)
    # Gradient boosting takes at most 255 dates, as categories.
    quarter, level = rng.integers(0, 40, n), rng.normal(size=40)
    kind = rng.choice(["flat", "house", "loft"], n, p=[0.6, 0.3, 0.1])
    day = 7 * rng.integers(0, 100, n)
    price = 3 * size + 20 * rooms + 40 * (kind == "house") * np.log(size)
    price += 30 * level[quarter] + 25 * np.sin(2 * np.pi * day / 365)
    dates = np.datetime64("2023-01-01") + day.astype("timedelta64[D]")
    columns = {
        "size": np.where(rng.random(n) < 0.05, np.nan, size.round(1)),
        "rooms": np.where(rng.random(n) < 0.01, "?", rooms.astype(str)),
        "quarter": [f"{q:03}" for q in quarter],
        "kind": kind,
        "sold on": dates.astype(str),
        "target": (price + rng.normal(0, 25, n)).round(2),
    }
    return pd.DataFrame(columns).assign(fold=rng.integers(0, 10, n))


def table(name: str, file: Path | None, folder: Path, time_limit: int) -> Steps:
    """Fit a table of a file, or generated; predict; compare kernels."""
    folder.mkdir(parents=True, exist_ok=True)
    frame = generated(name) if file is None else pd.read_csv(file, low_memory=False)
    test_rows = (frame.pop("fold") == 0).to_numpy()
    files = {part: folder / f"{part}.csv" for part in ("train", "test")}
    frame[~test_rows].to_csv(files["train"], index=False)
    frame[test_rows].to_csv(files["test"], index=False)
    train, test = (pd.read_csv(path, low_memory=False) for path in files.values())
    columns, y = [c for c in test if c != "target"], test["target"]
    regression = name.startswith("regression") or name == "prices"
    model, out = folder / "fit" / "model.skops", folder / "predictions.csv"
    asked = ["--interval", _COVERAGE] if regression else ["--probabilities"]

    def predicted(path: Path) -> pd.DataFrame:
        randkern("predict", model, path, "--out", out, *asked)
        return pd.read_csv(out)

    def fitted() -> str:
        words = ["--target", "target", "--test", files["test"]]
        words += ["--time-limit", time_limit, "--out", model.parent]
        said = randkern("fit", files["train"], *words)
        return check(model.with_name("report.html").is_file(), said[-200:])

    def as_good_as_boosting() -> str:
        kind = "regression" if regression else "classification"
        both = pd.concat([train, test], ignore_index=True)
        theirs = fit_rows(
            {"method": "hgb", "seed": 0, "kind": kind},
            both[columns],
            both["target"].to_numpy(),
            np.arange(len(both)) >= len(train),
        )
        found = predicted(files["test"])
        if regression:  # errors in units of the training targets
            error = np.sqrt(np.mean((found["prediction"] - y) ** 2))
            losses = {"test_error": error / train["target"].std(ddof=0)}
            share = y.between(found["low"], found["high"]).mean()
            least = _COVERAGE - 4 * np.sqrt(0.09 * (1 / len(y) + 1 / 500))
            check(share >= least, f"{share:.1%} covered")
        else:
            labels = y.astype(str)
            losses = {"test_error": np.mean(found["prediction"].astype(str) != labels)}
            chances = found[[f"probability of {name}" for name in np.unique(labels)]]
            losses["log_loss"] = log_loss(labels, chances)
        said = "; ".join(f"{k} {v:.4f}, {theirs[k]:.4f}" for k, v in losses.items())
        near = (v <= _FACTOR * theirs[k] + _MORE for k, v in losses.items())
        return check(all(near), said)

    def odd_files() -> str:
        plain, path = test.head(1000), folder / "odd.csv"
        plain.to_csv(path, index=False)
        expected = predicted(path)["prediction"]
        for form in (plain.head(1), plain[plain.columns[::-1]], plain[columns]):
            form.to_csv(path, index=False)
            same(predicted(path)["prediction"], expected[: len(form)])
        plain.to_parquet(folder / "odd.parquet")
        same(predicted(folder / "odd.parquet")["prediction"], expected)
        cells = plain.astype(object).where(plain.notna(), None).to_dict("records")
        (folder / "odd.jsonl").write_text("\n".join(map(json.dumps, cells)), "utf-8")
        same(predicted(folder / "odd.jsonl")["prediction"], expected)
        plain.drop(columns=columns[0]).to_csv(path, index=False)
        said = randkern("predict", model, path, status=2)
        return check(columns[0] in said, "equal, and a missing column is refused")

    def compared() -> str:
        words = ["--data", files["train"], "--test", files["test"], "--no-exact"]
        words += ["--target", "target", "--kernels", "gaussian", "--seeds", 1]
        words += ["--n-components", "50,200"]
        randkern("compare", *words, "--out", folder / "compare")
        results = json.loads((folder / "compare" / "results.json").read_text())
        least = min(record["test_error"] for record in results["records"])
        return check(least < 1, f"the smallest error is {least}")

    yield take(name, "fit", fitted)
    if model.is_file():
        yield take(name, "predict, beside gradient boosting", as_good_as_boosting)
        yield take(name, "predict files of other forms", odd_files)
        yield take(name, "info", lambda: randkern("info", model)[:60])
    yield take(name, "compare", compared)


def streams(folder: Path, n_rows: int, n_components: int) -> Steps:
    """Fit rows of Parquet files, a block at a time and on two Dask workers."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"x{j}" for j in range(10)]
    for part in range(4):
        rng = np.random.default_rng(part)
        X = rng.normal(size=(n_rows // 4, 10))
        y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=len(X))
        frame = pd.DataFrame(X, columns=names).assign(y=y)
        frame.to_parquet(folder / f"{part}.parquet", row_group_size=50_000)
    files = sorted(folder.glob("*.parquet"))
    rows = rk.RowBlocks.from_parquet(files, target="y")
    X_test = pd.read_parquet(files[0])[names].to_numpy()[:2000]
    kernel, alpha = rk.Gaussian(3.0), 1e-2

    def ridge() -> Any:
        return rk.KernelRidgeRegressor(kernel, alpha, n_components, random_state=0)

    @cache
    def predicted() -> Any:
        return ridge().fit(rows).predict(X_test)

    def normal_equations() -> str:
        features = rk.RandomFeatures(kernel, n_components, random_state=0).fit(X_test)
        A, b = alpha * np.eye(n_components), np.zeros(n_components)
        for block in rows:
            Z = features.transform(np.asarray(block.X, dtype=np.float64))
            A, b = A + Z.T @ Z, b + Z.T @ np.asarray(block.y)
        expected = features.transform(X_test) @ solve(A, b, assume_a="pos")
        return same(predicted(), expected, 1e-5)

    def in_parts() -> str:
        model = ridge()
        for block in rows:
            model.partial_fit(block.X, block.y, solve=False)
        return same(model.solve().predict(X_test), predicted(), 1e-5)

    def by_dask() -> str:
        import dask.dataframe as dd
        from distributed import Client

        with Client(n_workers=2, threads_per_worker=1, dashboard_address=None):
            frame = dd.read_parquet(files)
            model = ridge().fit(frame[names], frame["y"])
            return same(model.predict(X_test), predicted(), 1e-5)

    yield take("Parquet", "ridge equals its normal equations", normal_equations)
    yield take("Parquet", "partial_fit equals fit", in_parts)
    yield take("Dask", "fit(frame[names], frame.y)", by_dask)


def estimators(sizes: list[int], widths: list[int], most: float) -> Steps:
    """Fit every model with a score, which must be better than a constant."""
    for name, n, width in product(dir(rk), sizes, widths):
        cls: Any = getattr(rk, name)
        if not isinstance(cls, type) or not {"fit", "score"} <= set(dir(cls)):
            continue
        own = {"random_state": 0, "n_components": width, "time_limit": 15}
        own = {k: v for k, v in own.items() if k in inspect.signature(cls).parameters}
        cost = n * min(n, width) * width if "n_components" in own else n
        if cost > most or (width > widths[0] and "n_components" not in own):
            continue

        def scored(cls: Any = cls, own: Any = own, n: int = n) -> str:
            model, rng = cls(**own), np.random.default_rng(0)
            X = rng.normal(size=(n + 1000, 5))
            y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] ** 2 + 0.1 * rng.normal(size=len(X))
            y = (y > 0.5).astype(int) if is_classifier(model) else y
            score = float(model.fit(X[:n], y[:n]).score(X[n:], y[n:]))
            least = np.mean(y == 0) if is_classifier(model) else 0.0
            return check(n < 1000 or score > least, f"score {score:.3f}")

        step = f"{n:,} rows, {own.get('n_components', 'no')} features"
        yield take(name, step, scored)


def main(
    out: Annotated[Path, typer.Option(help="Of models and files.")] = _FOLDER,
    quick: Annotated[bool, typer.Option(help="Minutes, on generated tables.")] = False,
    only: Annotated[str, typer.Option(help="Data or parts, by commas.")] = "",
    data_dir: Annotated[Path | None, typer.Option(help="RANDKERN_DATA.")] = None,
) -> None:
    """Do what users do, and end with status 1 if a step fails."""
    out.mkdir(parents=True, exist_ok=True)
    found = data_dir or os.environ.get("RANDKERN_DATA")
    folder = None if quick or found is None else Path(found)
    tables: dict[str, Path | None] = dict.fromkeys(("prices", "defaults"))
    for path in sorted(folder.glob("tables/*/*.csv.gz")) if folder else ():
        tables[f"{path.parent.name}/{path.name.removesuffix('.csv.gz')}"] = path
    limit, n_rows = (3, 20_000) if quick else (15, 1_000_000)
    sizes, widths = ([1000], [100]) if quick else ([10, 1000, 100_000], [10, 1000])
    parts = {name: table(name, tables[name], out / name, limit) for name in tables}
    parts["streams"] = streams(out / "rows", n_rows, 200)
    parts["estimators"] = estimators(sizes, widths, 2e11)
    chosen = only.split(",") if only else parts
    report = pd.DataFrame(step for name in chosen for step in parts[name])
    text = report.to_string(index=False)
    (out / "rehearsal.md").write_text(f"```text\n{text}\n```\n")
    typer.echo(report["result"].value_counts().to_string())
    if (report["result"] == "FAILED").any():
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
