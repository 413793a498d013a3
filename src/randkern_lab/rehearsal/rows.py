"""Rows in images, streams and clusters, through the library's public names."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import solve
from sklearn.linear_model import RidgeClassifier

import randkern as rk

from ..process import SkippedCase
from .generated import write_rows
from .steps import Steps, check, folder_of, no_worse, same

#: Data sets of images, and the largest share of the error of a linear classifier.
IMAGES = {"mnist": 0.5, "fashion-mnist": 0.9, "cifar10-squeezenet": 1.05}
_COLUMNS, _TEST_ROWS = 10, 2_000
#: Predictions of solvers that sum in another order.
_SUMS = 1e-5


def images(request: dict[str, Any]) -> dict[str, Any]:
    """Classify images by random features, and by landmarks."""
    steps, name = Steps(), request["data"]
    X, y, X_test, y_test = _images(name, Path(request["data_dir"]))
    linear = RidgeClassifier().fit(X, y)
    bound = IMAGES[name] * float(np.mean(linear.predict(X_test) != y_test))

    def classified(features: str) -> str:
        model = rk.KernelRidgeClassifier(
            rk.Gaussian("median"),
            alpha=1e-2,
            n_components=request["n_components"],
            features=features,
            random_state=0,
        ).fit(X, y)
        error = float(np.mean(model.predict(X_test) != y_test))
        chances = model.predict_proba(X_test)
        check(bool(np.allclose(chances.sum(axis=1), 1, atol=1e-5)), "they sum to 1")
        return no_worse(error, bound, "error")

    for features in ("random", "nystrom"):
        steps.take(f"images: {features} features", partial(classified, features))
    return {"records": steps.records}


def stream(request: dict[str, Any]) -> dict[str, Any]:
    """Fit to rows of Parquet files that are read a block at a time."""
    steps, n = Steps(), request["n_rows"]
    folder = folder_of(request)
    files = _files(folder, n)
    names = [f"x{j}" for j in range(_COLUMNS)]
    rows = rk.RowBlocks.from_parquet(files, target="y")
    kernel, alpha, n_components = rk.Gaussian(3.0), 1e-2, request["n_components"]
    model = rk.KernelRidgeRegressor(kernel, alpha, n_components, random_state=0)
    X_test, y_test = _rows(files[0], names, _TEST_ROWS)
    features = rk.RandomFeatures(kernel, n_components, random_state=0)
    features.fit(X_test)

    def normal() -> str:
        """Solve the normal equations, summed in a loop, by SciPy."""
        model.fit(rows)
        A, b = alpha * np.eye(n_components), np.zeros(n_components)
        for block in rows:
            Z = features.transform(np.asarray(block.X, dtype=np.float64))
            A += Z.T @ Z
            b += Z.T @ np.asarray(block.y)
        expected = features.transform(X_test) @ solve(A, b, assume_a="pos")
        return same(model.predict(X_test), expected, "predictions", _SUMS)

    def in_parts() -> str:
        parts = rk.KernelRidgeRegressor(kernel, alpha, n_components, random_state=0)
        for block in rows:
            parts.partial_fit(block.X, block.y, solve=False)
        parts.solve()
        return same(parts.predict(X_test), model.predict(X_test), "partial_fit", _SUMS)

    def covered() -> str:
        ends = np.asarray(model.predict_interval(X_test))
        share = float(np.mean((ends[:, 0] <= y_test) & (y_test <= ends[:, 1])))
        return check(abs(share - 0.9) < 0.06, f"intervals of 90 % hold {share:.1%}")

    def classified() -> str:
        signs = rk.RowBlocks(lambda: ((b.X, b.y > 0) for b in rows))
        logistic = rk.KernelLogistic(kernel, 1e3, n_components, random_state=0)
        error = float(np.mean(logistic.fit(signs).predict(X_test) != (y_test > 0)))
        return no_worse(error, 0.3, "error")

    steps.take("stream: ridge equals its normal equations", normal)
    steps.take("stream: partial_fit equals fit", in_parts)
    steps.take("stream: intervals", covered, may_refuse=True)
    steps.take("stream: logistic regression", classified)
    return {"records": steps.records}


def cluster(request: dict[str, Any]) -> dict[str, Any]:
    """Fit to a dataframe of two Dask workers, and predict it where it is."""
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    steps, folder = Steps(), folder_of(request)
    files = _files(folder, request["n_rows"])
    names = [f"x{j}" for j in range(_COLUMNS)]
    X_test, _ = _rows(files[0], names, _TEST_ROWS)
    X, y = map(np.concatenate, zip(*(_rows(f, names) for f in files), strict=True))
    kernel, n_components = rk.Gaussian(3.0), request["n_components"]

    def ridge() -> Any:
        return rk.KernelRidgeRegressor(kernel, 1e-2, n_components, random_state=0)

    expected = ridge().fit(X, y).predict(X_test)

    def in_columns(frame: Any) -> Any:
        return frame[names], frame["y"]

    def in_arrays(frame: Any) -> Any:
        values = frame[[*names, "y"]].to_dask_array(lengths=True)
        return values[:, :-1], values[:, -1]

    def fitted(parts: Callable[[Any], Any]) -> str:
        model = ridge().fit(*parts(dd.read_parquet(folder / "rows")))
        return same(model.predict(X_test), expected, "predictions", _SUMS)

    def assigned() -> str:
        frame = dd.read_parquet(folder / "rows")
        model = ridge().fit(X, y)
        table = frame.assign(p=model.predict(frame[names])).head(100)
        return same(
            table["p"], model.predict(X[:100]), "a column of predictions", _SUMS
        )

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as two,
        Client(two),
    ):
        steps.take("Dask: fit(frame[names], frame.y)", partial(fitted, in_columns))
        steps.take("Dask: fit(arrays)", partial(fitted, in_arrays))
        steps.take("Dask: assign predictions", assigned)
    return {"records": steps.records}


def _images(name: str, folder: Path) -> tuple[Any, ...]:
    if name == "cifar10-squeezenet":
        place = folder / name
        if not place.is_dir():
            raise SkippedCase(f"there is no folder {name}")
        parts = [np.load(place / f"final_{part}.npy") for part in ("train", "test")]
        labels = [np.load(place / f"labels_{part}.npy") for part in ("train", "test")]
        X, X_test = (part.astype(np.float32) for part in parts)
        return X, labels[0].ravel(), X_test, labels[1].ravel()
    data = rk.datasets.load_dataset(name, data_dir=folder)
    if data.X_test is None:
        raise SkippedCase(f"{name} has no test rows")
    X, X_test = (item.reshape(len(item), -1) for item in (data.X_train, data.X_test))
    return X, data.y_train, X_test, data.y_test


def _files(folder: Path, n_rows: int) -> list[Path]:
    """Return Parquet files with generated rows, which are written once."""
    rows, done = folder / "rows", folder / "rows-are-complete"
    if not done.is_file():
        write_rows(rows, n_rows, _COLUMNS)
        done.touch()
    return sorted(rows.glob("*.parquet"))


def _rows(
    path: Path, names: list[str], most: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    import pandas as pd

    frame = pd.read_parquet(path)[:most]
    return frame[names].to_numpy(), frame["y"].to_numpy()
