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
from collections.abc import Callable
from functools import partial
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
_ODD_ROWS = 1000  # of a file with something special


class Steps:
    """Steps that were done, each with its result and seconds."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def take(self, data: str, step: str, work: Callable[[], str]) -> None:
        """Do a step: `work` returns what was checked, or raises."""
        start = time.perf_counter()
        try:
            result, message = "ok", " ".join(work().split())
        except Exception as error:
            result, message = "FAILED", " ".join(repr(error).split())
        seconds = round(time.perf_counter() - start, 1)
        self.records.append(
            {"data": data, "step": step, "result": result, "seconds": seconds}
            | {"message": message}
        )
        typer.echo(f"{result:6} {seconds:6.1f} s  {data}: {step}: {message}")


def check(holds: bool, message: str) -> str:
    """Return the message, or raise it if it does not hold."""
    if not holds:
        raise AssertionError(message)
    return message


def same(actual: Any, expected: Any, tolerance: float = 1e-6) -> str:
    """Compare arrays: numbers relative to the spread of `expected`, texts exactly."""
    if pd.api.types.is_numeric_dtype(np.asarray(expected)):
        spread = float(np.ptp(expected)) or float(np.abs(expected).max()) or 1.0
        np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * spread)
        return f"equal to {tolerance:.0e} of their spread"
    np.testing.assert_array_equal(actual, expected)
    return "equal"


def randkern(*words: Any, status: int = 0) -> str:
    """Run the command line in this process; return what it prints."""
    done = CliRunner().invoke(cli._build_app(), list(map(str, words)))
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    check(done.exit_code == status, f"status {done.exit_code}: {done.output}")
    return done.output


# -- tables ---------------------------------------------------------------------------


def generated(name: str, seed: int = 0) -> pd.DataFrame:
    """Return a table with dates, gaps, categories and placeholders, or a rare class."""
    n = {"prices": 5000, "defaults": 20_000}[name]
    rng = np.random.default_rng([seed, n])
    if name == "defaults":
        X = rng.normal(size=(n, 6))
        region = rng.choice(["north", "south", "east", "west"], n)
        score = 1.5 * X[:, 0] + X[:, 1] * X[:, 2] + rng.logistic(size=n)
        rare = score > np.quantile(score, 0.98)
        frame = pd.DataFrame(X.round(4), columns=[f"x{j}" for j in range(6)])
        frame["region"], frame["target"] = region, np.where(rare, "default", "paid")
        return frame.assign(fold=rng.integers(0, 10, n))
    size, rooms = rng.lognormal(4.0, 0.4, n), rng.integers(1, 7, n)
    # Gradient boosting takes at most 255 dates, as categories.
    quarter, level = rng.integers(0, 40, n), rng.normal(size=40)
    kind = rng.choice(["flat", "house", "loft"], n, p=[0.6, 0.3, 0.1])
    day = 7 * rng.integers(0, 100, n)
    price = 3 * size + 20 * rooms + 40 * (kind == "house") * np.log(size)
    price += 30 * level[quarter] + 25 * np.sin(2 * np.pi * day / 365)
    frame = pd.DataFrame(
        {
            "size": np.where(rng.random(n) < 0.05, np.nan, size.round(1)),
            "rooms": np.where(rng.random(n) < 0.01, "?", rooms.astype(str)),
            "quarter": [f"{q:03}" for q in quarter],
            "kind": kind,
            "sold on": np.datetime64("2023-01-01") + day.astype("timedelta64[D]"),
            "target": (price + rng.normal(0, 25, n)).round(2),
        }
    )
    frame["sold on"] = frame["sold on"].dt.strftime("%Y-%m-%d")
    return frame.assign(fold=rng.integers(0, 10, n))


def table(
    steps: Steps, name: str, file: Path | None, folder: Path, time_limit: int
) -> None:
    """Fit a table, predict its test rows in several forms, and compare kernels.

    Without a file it is generated.
    """
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

    def error(predictions: Any) -> float:
        if regression:
            return float(np.sqrt(np.mean((predictions - y) ** 2)) / y.std())
        return float(np.mean(np.asarray(predictions).astype(str) != y.astype(str)))

    def fitted() -> str:
        target = ["--target", "target", "--test", files["test"]]
        words = ["--time-limit", time_limit, "--out", model.parent]
        said = randkern("fit", files["train"], *target, *words)
        return check(model.with_name("report.html").is_file(), said[-200:])

    def as_good_as_boosting() -> str:
        both = pd.concat([train, test], ignore_index=True)
        theirs = fit_rows(
            {
                "method": "hgb",
                "seed": 0,
                "kind": "regression" if regression else "classification",
            },
            both[columns],
            both["target"].to_numpy(),
            np.arange(len(both)) >= len(train),
        )
        found = predicted(files["test"])
        errors = [error(found["prediction"]), theirs["test_error"]]
        if regression:  # in units of the training targets
            errors[1] *= train["target"].std(ddof=0) / y.std()
        check(errors[0] <= _FACTOR * errors[1] + _MORE, f"errors {errors}")
        if regression:
            share = float(np.mean((found["low"] <= y) & (y <= found["high"])))
            least = _COVERAGE - 4 * np.sqrt(0.09 * (1 / len(y) + 1 / 500))
            return check(share >= least, f"errors {errors}, {share:.1%} covered")
        chances = found.filter(like="probability of ")
        names = [c.removeprefix("probability of ") for c in chances]
        own = log_loss(y.astype(str), chances[chances.columns[np.argsort(names)]])
        losses = own, theirs["log_loss"]
        return check(losses[0] <= _FACTOR * losses[1] + _MORE, f"log losses {losses}")

    def odd_files() -> str:
        plain = test.head(_ODD_ROWS)
        path = folder / "odd.csv"
        plain.to_csv(path, index=False)
        expected = predicted(path)["prediction"]
        for form in (plain.head(1), plain[plain.columns[::-1]], plain[columns]):
            form.to_csv(path, index=False)
            same(predicted(path)["prediction"], expected[: len(form)])
        plain.to_parquet(folder / "odd.parquet")
        same(predicted(folder / "odd.parquet")["prediction"], expected)
        cells = plain.astype(object).where(plain.notna(), None).to_dict("records")
        lines = folder / "odd.jsonl"
        lines.write_text("\n".join(map(json.dumps, cells)) + "\n", encoding="utf-8")
        same(predicted(lines)["prediction"], expected)
        plain.drop(columns=columns[0]).to_csv(path, index=False)
        said = randkern("predict", model, path, status=2)
        return check(columns[0] in said, "equal, and a missing column is refused")

    def compared() -> str:
        words = ["--data", files["train"], "--test", files["test"], "--no-exact"]
        words += ["--target", "target", "--kernels", "gaussian", "--seeds", 1]
        words += ["--n-components", "50,200"]
        randkern("compare", *words, "--out", folder / "compare")
        results = json.loads((folder / "compare" / "results.json").read_text())
        reported = [record["test_error"] for record in results["records"]]
        return check(min(reported) < 1, f"the smallest error is {min(reported)}")

    steps.take(name, "fit", fitted)
    if model.is_file():
        steps.take(name, "predict, beside gradient boosting", as_good_as_boosting)
        steps.take(name, "predict files of other forms", odd_files)
        steps.take(name, "info", lambda: randkern("info", model)[:60])
    steps.take(name, "compare", compared)


# -- rows in streams and clusters -----------------------------------------------------


def streams(steps: Steps, folder: Path, n_rows: int, n_components: int) -> None:
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

    def normal_equations() -> str:
        features = rk.RandomFeatures(kernel, n_components, random_state=0).fit(X_test)
        A, b = alpha * np.eye(n_components), np.zeros(n_components)
        for block in rows:
            Z = features.transform(np.asarray(block.X, dtype=np.float64))
            A, b = A + Z.T @ Z, b + Z.T @ np.asarray(block.y)
        expected = features.transform(X_test) @ solve(A, b, assume_a="pos")
        return same(ridge().fit(rows).predict(X_test), expected, 1e-5)

    def in_parts() -> str:
        model = ridge()
        for block in rows:
            model.partial_fit(block.X, block.y, solve=False)
        expected = ridge().fit(rows).predict(X_test)
        return same(model.solve().predict(X_test), expected, 1e-5)

    def by_dask() -> str:
        import dask.dataframe as dd
        from distributed import Client, LocalCluster

        with (
            LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster,
            Client(cluster),
        ):
            frame = dd.read_parquet(files)
            model = ridge().fit(frame[names], frame["y"])
            expected = ridge().fit(rows).predict(X_test)
            return same(model.predict(X_test), expected, 1e-5)

    steps.take("Parquet", "ridge equals its normal equations", normal_equations)
    steps.take("Parquet", "partial_fit equals fit", in_parts)
    steps.take("Dask", "fit(frame[names], frame.y)", by_dask)


# -- every estimator -------------------------------------------------------------------


def estimators(steps: Steps, sizes: list[int], widths: list[int], most: float) -> None:
    """Fit every model with a score, which must be better than a constant."""
    for name in dir(rk):
        cls: Any = getattr(rk, name)
        if not (
            isinstance(cls, type) and hasattr(cls, "fit") and hasattr(cls, "score")
        ):
            continue
        known = inspect.signature(cls).parameters
        for n in sizes:
            for width in widths if "n_components" in known else [1]:
                if width * n * min(n, width) > most:
                    continue
                settings = {"random_state": 0, "n_components": width, "time_limit": 15}
                own = {key: value for key, value in settings.items() if key in known}

                def scored(cls: Any = cls, own: Any = own, n: int = n) -> str:
                    model, rng = cls(**own), np.random.default_rng(0)
                    X = rng.normal(size=(n + 1000, 5))
                    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] ** 2
                    y += 0.1 * rng.normal(size=len(y))
                    if is_classifier(model):
                        y = (y > 0.5).astype(int)
                    score = float(model.fit(X[:n], y[:n]).score(X[n:], y[n:]))
                    least = np.mean(y == 0) if is_classifier(model) else 0.0
                    return check(n < 1000 or score > least, f"score {score:.3f}")

                steps.take(name, f"{n:,} rows, {width:,} features", scored)


def main(
    out: Annotated[Path, typer.Option(help="Of models and files.")] = Path(
        "randkern-rehearsal"
    ),
    quick: Annotated[bool, typer.Option(help="Minutes, on generated tables.")] = False,
    only: Annotated[str, typer.Option(help="Data or parts, by commas.")] = "",
    data_dir: Annotated[Path | None, typer.Option(help="RANDKERN_DATA.")] = None,
) -> None:
    """Do what users do, and end with status 1 if a step fails."""
    steps, chosen = Steps(), only.split(",") if only else []
    out.mkdir(parents=True, exist_ok=True)
    found = data_dir or os.environ.get("RANDKERN_DATA")
    folder = None if quick or found is None else Path(found)
    tables: dict[str, Path | None] = dict.fromkeys(("prices", "defaults"))
    for path in sorted(folder.glob("tables/*/*.csv.gz")) if folder else ():
        tables[f"{path.parent.name}/{path.name.removesuffix('.csv.gz')}"] = path
    parts: dict[str, Callable[[], None]] = {
        name: partial(table, steps, name, path, out / name, 3 if quick else 15)
        for name, path in tables.items()
    }
    n_rows = 20_000 if quick else 1_000_000
    parts["streams"] = partial(streams, steps, out / "rows", n_rows, 200)
    sizes, widths = ([1000], [100]) if quick else ([10, 1000, 100_000], [10, 1000])
    parts["estimators"] = partial(estimators, steps, sizes, widths, 2e11)
    for name, part in parts.items():
        if not chosen or name in chosen:
            part()
    report = pd.DataFrame(steps.records)
    text = report.to_string(index=False)
    (out / "rehearsal.md").write_text(f"```text\n{text}\n```\n")
    typer.echo(report["result"].value_counts().to_string())
    if (report["result"] == "FAILED").any():
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
