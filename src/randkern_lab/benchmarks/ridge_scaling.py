"""Cost of conjugate gradients on streamed rows, against D and against n.

Rows are float32 normals with descending variances, 64 columns and one target
(:func:`.rows.write_rows`), written once to a temporary folder, set by the environment
variable ``TMPDIR``, and read block by block in every pass. The kernel is Gaussian with
lengthscale √d. Fits against D (10,000 rows) use the models' memory limit, those against
n (2,048 features) 200 MB: features are cached as long as they fit, so memory grows with
n up to that limit.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import randkern

from ..contenders import Contender
from ..process import in_fresh_process
from ..runner import Case
from ..tables import Fitted, Listing, fitted_power, of
from .ridge_models import own_ridge, ridge_record
from .rows import RowFile, Rows, warm_trial

__all__ = [
    "FULL",
    "LISTED",
    "QUICK",
    "TEST_ROWS",
    "cases",
    "exponents",
    "measure",
    "most_rows",
]

# The sizes that vary, and the fixed ones.
FULL: Mapping[str, Any] = {
    "n_components": [1000, 3000, 10_000, 30_000, 100_000],
    "n": [1000, 10_000, 100_000, 1_000_000],
    **{"fixed_n": 10_000, "fixed_n_components": 2048, "d": 64},
    "memory_limit": "200MB",
}
QUICK: Mapping[str, Any] = {
    **{"n_components": [16, 32], "n": [60, 120], "fixed_n": 50},
    **{"fixed_n_components": 16, "d": 4, "memory_limit": "200MB"},
}
TEST_ROWS = 2000
# What varies, and what does not.
_AXES = {
    "n_components": ("features D", "n = {n:,}"),
    "n": ("training rows n", "D = {n_components:,}"),
}
_COSTS = {
    "train_seconds": "fit",
    "seconds_per_iteration": "an iteration",
    "peak_memory_bytes": "peak",
}


def _scaled(results: Mapping[str, Any]) -> list[Any]:
    found: list[Any] = results.get("scaling", {}).get("records", [])
    return found


LISTED = tuple(
    Listing(
        f"pcg on streamed rows, d = {{d:,}}, {fixed}",
        f"{name} | fit | iterations | an iteration | peak | anonymous | test error | "
        "outcome",
        f"{{{axis}:,}} | {{train_seconds:seconds}} | {{iterations:number}} | "
        "{seconds_per_iteration:seconds} | {peak_memory_bytes:megabytes} | "
        "{peak_anonymous_bytes:megabytes} | {test_error:percent} | {outcome:words}",
        Fitted(
            "exponents (all points, last two): "
            + ", ".join(
                f"{cost} {{scaling[exponents][{axis}][{key}][all]:.2f}}, "
                f"{{scaling[exponents][{axis}][{key}][last]:.2f}}"
                for key, cost in _COSTS.items()
            )
        ),
        records=_scaled,
        where={"axis": axis},
    )
    for axis, (name, fixed) in _AXES.items()
)


class _Streamed(randkern.KernelRidgeRegressor):
    """Ridge regression that reads its rows block by block."""

    def fit(self, X: Any, y: Any) -> Any:
        return super().fit(randkern.RowBlocks.from_arrays(X, y))


PCG = Contender("randkern, pcg", make=partial(own_ridge, model=_Streamed, solver="pcg"))


def unexplained(y: NDArray[Any], predicted: NDArray[Any]) -> float:
    """Return the unexplained share of the variance of targets."""
    return float(np.mean((y - predicted) ** 2) / np.var(y))


def fit_stream(request: Mapping[str, Any]) -> dict[str, Any]:
    """Fit a regressor in this process to rows that are read block by block."""
    n, d, first = request["n"], request["d"], request["test_from"]
    X, y = (Path(request["folder"]) / f"{name}.float32" for name in "Xy")
    last = first + TEST_ROWS
    X_test, y_test = RowFile(X, (last, d))[first:], RowFile(y, (last,))[first:]
    rows = Rows(RowFile(X, (n, d)), RowFile(y, (n,)), X_test, y_test)
    return ridge_record(*warm_trial(PCG, request, rows, unexplained))


def most_rows(sizes: Mapping[str, Any]) -> int:
    """Return the number of training rows that are needed."""
    return max(*sizes["n"], sizes["fixed_n"])


def cases(sizes: Mapping[str, Any]) -> Iterator[Case]:
    """Return the cases: one size varies, the other is fixed."""
    for size in sizes["n_components"]:
        yield {"axis": "n_components", "n_components": size, "n": sizes["fixed_n"]}
    for n in sizes["n"]:
        yield {"axis": "n", "n_components": sizes["fixed_n_components"], "n": n}


def measure(
    case: Case, sizes: Mapping[str, Any], options: Any, folder: str
) -> dict[str, Any]:
    """Run the case in its own process."""
    limits = {"n_components": options.memory_limit, "n": sizes["memory_limit"]}
    request = {
        **case,
        **{"d": sizes["d"], "lengthscale": math.sqrt(sizes["d"])},
        **{"alpha": options.alpha, "seed": options.seed, "folder": folder},
        **{"memory_limit": limits[case["axis"]], "test_from": most_rows(sizes)},
    }
    found = in_fresh_process(fit_stream, request)
    each = found["train_seconds"] / max(found["iterations"], 1)
    return {"d": sizes["d"], "seconds_per_iteration": each, **found}


def exponents(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return how costs grow along each axis, as powers of the size.

    For each axis and cost, ``all`` is the least-squares slope of the logarithms, and
    ``last`` is the slope between the two largest points, where constant costs matter
    least. None with fewer than two points; 1 is linear.
    """
    slopes: dict[str, dict[str, Any]] = {}
    for axis in _AXES:
        own = sorted(of(records, axis=axis), key=lambda record: record[axis])
        slopes[axis] = {
            cost: {
                name: fitted_power([r[axis] for r in some], [r[cost] for r in some])
                for name, some in (("all", own), ("last", own[-2:]))
            }
            for cost in _COSTS
        }
    return slopes
