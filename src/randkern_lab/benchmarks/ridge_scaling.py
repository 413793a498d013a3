"""Cost of conjugate gradients on streamed rows, against D and against n.

Rows are float32 normals with descending variances, 64 columns and one target
(:func:`.rows.write_rows`), written once to a temporary folder, set by the environment
variable ``TMPDIR``, and read block by block in every pass. The kernel is Gaussian with
lengthscale √d. Fits against D (10,000 rows) use the models' memory limit, those against
n (2,048 features) 200 MB: features are cached as long as they fit, so memory grows with
n up to that limit.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import randkern

from ..process import in_fresh_process
from ..runner import Case
from ..tables import (
    Column,
    Fitted,
    TextTable,
    count,
    fitted_power,
    listing,
    megabytes,
    number,
    of,
    percent,
    seconds,
    words,
)
from .contenders import Contender, fit_and_predict
from .ridge_models import own_ridge, ridge_record
from .rows import RowFile

__all__ = ["FULL", "QUICK", "TEST_ROWS", "Sizes", "exponents", "measure", "tables"]

TEST_ROWS = 2000
_AXES = {"n_components": "features D", "n": "training rows n"}
_COSTS = {
    "train_seconds": "fit",
    "seconds_per_iteration": "an iteration",
    "peak_memory_bytes": "peak",
}


@dataclass(frozen=True)
class Sizes:
    """The sizes that vary, and the fixed ones."""

    n_components: tuple[int, ...] = (1000, 3000, 10_000, 30_000, 100_000)
    n: tuple[int, ...] = (1000, 10_000, 100_000, 1_000_000)
    fixed_n: int = 10_000
    fixed_n_components: int = 2048
    d: int = 64
    memory_limit: str = "200MB"

    @property
    def most_rows(self) -> int:
        """The number of training rows that are needed."""
        return max(*self.n, self.fixed_n)

    def cases(self) -> Iterator[Case]:
        """Return the cases: one size varies, the other is fixed."""
        for size in self.n_components:
            yield {"axis": "n_components", "n_components": size, "n": self.fixed_n}
        for n in self.n:
            yield {"axis": "n", "n_components": self.fixed_n_components, "n": n}

    def describe(self) -> dict[str, Any]:
        """Return the sizes as JSON."""
        described: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return described


FULL = Sizes()
QUICK = Sizes((16, 32), (60, 120), 50, 16, 4)


class _Streamed(randkern.KernelRidgeRegressor):
    """Ridge regression that reads its rows block by block."""

    def fit(self, X: Any, y: Any) -> Any:
        return super().fit(randkern.RowBlocks.from_arrays(X, y))


PCG = Contender("randkern, pcg", make=partial(own_ridge, model=_Streamed, solver="pcg"))


def fit_stream(request: Mapping[str, Any]) -> dict[str, Any]:
    """Fit a regressor in this process to rows that are read block by block.

    Its ``test_error`` is the unexplained share of the variance of the test targets.
    """
    n, folder = request["n"], Path(request["folder"])
    test = slice(request["test_from"], request["test_from"] + TEST_ROWS)
    X, y = folder / "X.float32", folder / "y.float32"
    shape = test.stop, request["d"]
    X_test, y_test = RowFile(X, shape)[test], RowFile(y, shape[:1])[test]
    rows = RowFile(X, (n, request["d"])), RowFile(y, (n,))
    timed = fit_and_predict(PCG, request, *rows, X_test)
    measured = {
        "train_seconds": timed.fit.seconds,
        "predict_seconds": timed.predict.seconds,
        "warm_up_seconds": timed.warm_up.seconds,
        "test_error": float(np.mean((y_test - timed.predicted) ** 2) / np.var(y_test)),
    }
    return ridge_record(measured, timed.model)


def measure(case: Case, sizes: Sizes, options: Any, folder: str) -> dict[str, Any]:
    """Run the case in its own process."""
    limits = {"n_components": options.memory_limit, "n": sizes.memory_limit}
    request = {
        **case,
        **{"d": sizes.d, "lengthscale": math.sqrt(sizes.d), "alpha": options.alpha},
        **{"memory_limit": limits[case["axis"]], "seed": options.seed},
        **{"folder": folder, "test_from": sizes.most_rows},
    }
    found = in_fresh_process(fit_stream, request)
    each = found["train_seconds"] / max(found["iterations"], 1)
    return {"d": sizes.d, "seconds_per_iteration": each, **found}


def exponents(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return how costs grow along each axis, as powers of the size.

    For each axis and cost, ``all`` is the least-squares slope of the logarithms, and
    ``last`` is the slope between the two largest points, where constant costs matter
    least. None with fewer than two points; 1 is linear.

    Examples
    --------
    >>> from randkern_lab.benchmarks.ridge_scaling import exponents
    >>> costs = {"seconds_per_iteration": 1.0, "peak_memory_bytes": 10**8}
    >>> records = [costs | {"axis": "n", "n": n, "train_seconds": 1.0 + n / 1000}
    ...            for n in (1000, 10_000, 100_000)]
    >>> slopes = exponents(records)["n"]["train_seconds"]
    >>> round(slopes["all"], 2), round(slopes["last"], 2)
    (0.85, 0.96)
    """
    slopes: dict[str, dict[str, Any]] = {}
    for axis in _AXES:
        own = sorted(of(records, axis=axis), key=lambda record: record[axis])
        sizes = [record[axis] for record in own]
        slopes[axis] = {
            cost: {
                "all": fitted_power(sizes, [r[cost] for r in own]),
                "last": fitted_power(sizes[-2:], [r[cost] for r in own[-2:]]),
            }
            for cost in _COSTS
        }
    return slopes


def tables(scaling: Mapping[str, Any]) -> Iterator[TextTable]:
    """Return costs against D and against n."""
    for axis, name in _AXES.items():
        own, slopes = of(scaling["records"], axis=axis), scaling["exponents"][axis]
        if not own:
            continue
        columns: dict[str, Column] = {
            name: (axis, count),
            "fit": ("train_seconds", seconds),
            "iterations": ("iterations", number),
            "an iteration": ("seconds_per_iteration", seconds),
            "peak": ("peak_memory_bytes", megabytes),
            "anonymous": ("peak_anonymous_bytes", megabytes),
            "test error": ("test_error", percent),
            "outcome": ("outcome", words),
        }
        fixed = ("n", "n") if axis == "n_components" else ("D", "n_components")
        yield listing(
            f"pcg on streamed rows, d = {own[0]['d']:,}, "
            f"{fixed[0]} = {own[0][fixed[1]]:,}",
            own,
            columns,
            Fitted(
                "exponents (all points, last two): "
                + ", ".join(f"{t} {_pair(slopes[c])}" for c, t in _COSTS.items())
            ),
        )


def _pair(slopes: Mapping[str, float | None]) -> str:
    if slopes["all"] is None or slopes["last"] is None:
        return "-"
    return f"{slopes['all']:.2f}, {slopes['last']:.2f}"
