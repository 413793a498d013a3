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
from numpy.typing import NDArray

import randkern

from ..contenders import Contender
from ..process import in_fresh_process
from ..runner import Case
from ..tables import Fitted, Listing, fitted_power, of, sentences
from .ridge_models import own_ridge, ridge_record
from .rows import RowFile, Rows, warm_trial

__all__ = [
    "FULL",
    "LISTED",
    "QUICK",
    "TEST_ROWS",
    "Sizes",
    "exponents",
    "measure",
    "notes",
]

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


def _exponents(axis: str) -> str:
    told = "{name} {{{slopes}[all]:.2f}}, {{{slopes}[last]:.2f}}"
    slopes = {
        name: f"scaling[exponents][{axis}][{cost}]" for cost, name in _COSTS.items()
    }
    found = (told.format(name=name, slopes=each) for name, each in slopes.items())
    return Fitted(f"exponents (all points, last two): {', '.join(found)}")


LISTED = tuple(
    Listing(
        f"pcg on streamed rows, d = {{d:,}}, {fixed}",
        f"{name} | fit | iterations | an iteration | peak | anonymous | test error | "
        "outcome",
        f"{{{axis}:,}} | {{train_seconds:seconds}} | {{iterations:number}} | "
        "{seconds_per_iteration:seconds} | {peak_memory_bytes:megabytes} | "
        "{peak_anonymous_bytes:megabytes} | {test_error:percent} | {outcome:words}",
        _exponents(axis),
        records=_scaled,
        where={"axis": axis},
    )
    for axis, (name, fixed) in _AXES.items()
)


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


def notes(scaling: Mapping[str, Any]) -> list[str]:
    """Return the skipped cases."""
    told = "skipped {method}, D = {n_components:,}, n = {n:,}: {reason}"
    return sentences(scaling["skipped"], told)
