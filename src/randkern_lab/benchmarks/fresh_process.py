"""Peak memory and first calls, each measured in a process of its own.

Within one process, memory that an earlier contender freed may serve the next, and
code is compiled or loaded only once. So each measurement starts
``python -m randkern_lab.benchmarks.fresh_process``, which reads a request from standard input
and answers on standard output, both JSON.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Any

from randkern.study.measure import Measurement

from .contenders import Contender, make_rows

__all__ = ["FreshMeasurement", "measure_afresh"]

# The first call is made on a few rows and features: it is compilation, or the
# loading of compiled code, that it shows.
_FIRST_ROWS = 16
_FIRST_COMPONENTS = 64


@dataclass(frozen=True)
class FreshMeasurement:
    """What a process of its own has measured.

    Attributes
    ----------
    first_call_seconds : float
        Fit and transform of 16 rows with at most 64 features, the library having
        been imported and nothing compiled or loaded.
    peak_memory_bytes : int or None
        Resident memory that fit and transform add at their peak, the output
        included and the input not; None if only the first call was asked for.
    output_bytes : int or None
        Size of the output.
    """

    first_call_seconds: float
    peak_memory_bytes: int | None
    output_bytes: int | None


def measure_afresh(
    contender: Contender,
    n: int,
    d: int,
    n_components: int,
    *,
    seed: int = 0,
    first_call_only: bool = False,
    cold: bool = False,
) -> FreshMeasurement:
    """Fit and transform in a new process, and return what it took.

    Parameters
    ----------
    contender : Contender
    n, d, n_components : int
        Rows, input columns, features.
    seed : int, default=0
    first_call_only : bool, default=False
        Leave the peak memory out.
    cold : bool, default=False
        Begin without any compiled code on disk.

    Raises
    ------
    ValueError
        If the contender cannot do it, or the process was ended by the system, for
        instance for want of memory.

    Examples
    --------
    >>> from randkern_lab.benchmarks.contenders import Contender
    >>> from randkern_lab.benchmarks.fresh_process import measure_afresh
    >>> numpy = Contender("optical", "numpy", "two products", "float32")
    >>> measure_afresh(numpy, 500, 8, 2000).output_bytes
    4000000
    """
    request = {
        "contender": contender.to_dict(),
        "n": n,
        "d": d,
        "n_components": n_components,
        "seed": seed,
        "first_call_only": first_call_only,
    }
    with tempfile.TemporaryDirectory(prefix="randkern-bench-") as empty:
        environment = dict(os.environ)
        if cold:
            environment["NUMBA_CACHE_DIR"] = empty
        finished = subprocess.run(
            [sys.executable, "-m", __name__],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
    if finished.returncode != 0:
        lines = finished.stderr.strip().splitlines() or ["no message"]
        raise ValueError(
            f"its own process ended with status {finished.returncode}: {lines[-1]}"
        )
    return FreshMeasurement(**json.loads(finished.stdout))


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    """Do in this process what :func:`measure_afresh` asks for."""
    contender = Contender(**request["contender"])
    d, n_components, seed = request["d"], request["n_components"], request["seed"]
    few = make_rows(_FIRST_ROWS, d, contender.dtype, seed)
    # Building imports what is needed; compiled code is loaded by the first use.
    feature_map = contender.build(d, min(n_components, _FIRST_COMPONENTS), seed)
    start = time.perf_counter()
    feature_map.fit(few).transform(few)
    answer: dict[str, Any] = {
        "first_call_seconds": time.perf_counter() - start,
        "peak_memory_bytes": None,
        "output_bytes": None,
    }
    if request["first_call_only"]:
        return answer
    X = make_rows(request["n"], d, contender.dtype, seed)
    del few, feature_map
    gc.collect()
    with Measurement() as measured:
        Z = contender.build(d, n_components, seed).fit(X).transform(X)
    answer["peak_memory_bytes"] = measured.peak_bytes - measured.before_bytes
    answer["output_bytes"] = int(Z.nbytes)
    return answer


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_answer(json.load(sys.stdin))))
