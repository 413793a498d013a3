"""What every test and every docstring example shares: threads, printing, skips.

It sits at the root so that the examples in ``src/`` get it too.
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import time
from pathlib import Path

ROOT = Path(__file__).parent


def _numba_cache() -> Path:
    """Return the folder of compiled code, named after all sources of the backend.

    Numba stamps compiled code by the file of the outermost function alone: a change
    to what is inlined into it from another file would go unnoticed. Folders that were
    not used for a week are removed.
    """
    sources = hashlib.sha256(importlib.metadata.version("numba").encode())
    for path in sorted((ROOT / "src/randkern/backend").glob("*.py")):
        sources.update(path.read_bytes())
    folder = ROOT / ".numba_cache" / sources.hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder)
    for other in folder.parent.iterdir():
        if time.time() - other.stat().st_mtime > 7 * 86_400:
            shutil.rmtree(other, ignore_errors=True)
    return folder


# Before anything loads Numba. It may use two threads: tests compare one thread with
# two, and `set_num_threads` cannot exceed what the pool began with.
os.environ.setdefault("NUMBA_NUM_THREADS", "2")
os.environ.setdefault("MPLBACKEND", "Agg")
if "NUMBA_CACHE_DIR" not in os.environ:  # The workers inherit it.
    os.environ["NUMBA_CACHE_DIR"] = str(_numba_cache())
# Tensors are tested where PyTorch is installed; SciPy reads this when it is imported.
if importlib.util.find_spec("torch"):
    os.environ.setdefault("SCIPY_ARRAY_API", "1")

from collections.abc import Iterator

import numpy as np
import pytest

# Modules that import PyTorch at their top, or in their examples, have these only where
# it is installed.
collect_ignore_glob = (
    []
    if importlib.util.find_spec("torch")
    else [
        "src/randkern/backend/torch_*.py",
        "src/randkern/data/devices.py",
        "src/randkern/deployment.py",
        "src/randkern/torch.py",
    ]
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Keep BLAS to one thread in the workers, which share the cores.

    They load it before this file, so it is said before they start.
    """
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")


@pytest.fixture(autouse=True)
def _repeatable() -> Iterator[None]:
    """Seed NumPy's global state and pin how arrays print.

    Nothing in randkern draws from the global state, but scikit-learn's common
    checks do, and a failure must come back on the next run.
    """
    np.random.seed(0)  # noqa: NPY002
    with np.printoptions(precision=8, threshold=1000, linewidth=75, suppress=False):
        yield


@pytest.fixture(scope="module")
def whole_reports():
    """Reports of commands with all figures, however slow the machine is."""
    with pytest.MonkeyPatch.context() as patched:
        if importlib.util.find_spec("typer") is not None:
            patched.setattr("randkern.reporting.deadline.Deadline.left", 100.0)
        yield


@pytest.fixture(scope="module")
def no_deadline(whole_reports):
    """Tabular fits by a clock that stands still: load ends nothing, work decides."""
    from randkern.tabular.presets import Deadline

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Deadline, "of", lambda *_: Deadline(float("inf")))
        yield


@pytest.fixture
def planned(monkeypatch):
    """Return a function that changes some numbers in the plans of tables."""
    from dataclasses import replace

    from randkern.tabular import base
    from randkern.tabular.presets import plan_of

    def change(**numbers):
        monkeypatch.setattr(
            base, "plan_of", lambda *sizes: replace(plan_of(*sizes), **numbers)
        )

    return change


@pytest.fixture(autouse=True)
def _examples_have_time(request: pytest.FixtureRequest) -> None:
    """Let no deadline cut the fits of docstrings: their results are compared."""
    if request.node.nodeid.startswith("src/randkern/tabular"):
        request.getfixturevalue("no_deadline")


# -- marks ---------------------------------------------------------------------------


# Of a marked test with so many cases one in as many stays in the tier below.
CASES_PER_SAMPLE = 16
# Seconds that a nightly test may take: it ends one that hangs. Whole fits and commands
# need two minutes of a processor, which beside other work of the night may be a tenth
# of one; what must not take long is asserted in processor time.
NIGHTLY_TIMEOUT = 3600
# Examples in docstrings there run experiments, or fit models of tables.
SLOW_EXAMPLES = (
    "src/randkern_lab",
    "src/randkern/metric",
    "src/randkern/study",
    "src/randkern/tabular",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark examples that take long; leave samples of long tests in the tier below."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
        if item.nodeid.startswith(SLOW_EXAMPLES):
            item.add_marker("slow")
    for tests in cases.values():
        sample = tests[::CASES_PER_SAMPLE] if len(tests) >= CASES_PER_SAMPLE else []
        for item in sample:
            tiers = {mark.name for mark in item.own_markers} & {"slow", "nightly"}
            item.own_markers = [m for m in item.own_markers if m.name not in tiers]
            if "nightly" in tiers:
                item.add_marker("slow")
    for item in items:
        if item.get_closest_marker("nightly") and not item.get_closest_marker(
            "timeout"
        ):
            item.add_marker(pytest.mark.timeout(NIGHTLY_TIMEOUT))


def pytest_report_header() -> str:
    """Name the kernels of BLAS that were loaded, which depend on the processor."""
    import scipy.linalg  # noqa: F401  (it has a library of its own)
    from threadpoolctl import threadpool_info

    kernels = {
        f"{pool['internal_api']} {pool.get('architecture', '')}, "
        f"{pool['num_threads']} threads"
        for pool in threadpool_info()
        if pool["user_api"] == "blas"
    }
    return "BLAS: " + "; ".join(sorted(kernels))


# -- skips ---------------------------------------------------------------------------

ALLOWED_SKIPS = ROOT / "tests" / "allowed_skips.txt"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--strict-skips",
        action="store_true",
        help=f"fail what skips for a reason that {ALLOWED_SKIPS.name} does not list",
    )


def _check_skip(
    config: pytest.Config, report: pytest.TestReport | pytest.CollectReport
) -> None:
    """Turn a skip that is not on the list into a failure."""
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    if not config.getoption("--strict-skips"):
        return
    reason = report.longrepr[2].removeprefix("Skipped: ")
    lines = ALLOWED_SKIPS.read_text(encoding="utf-8").splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    if not any(re.fullmatch(pattern, reason) for pattern in patterns):
        report.outcome = "failed"
        report.longrepr = (
            f"{report.nodeid} was skipped ({reason!r}), which "
            f"tests/{ALLOWED_SKIPS.name} does not allow: install what it needs, or "
            "run without --strict-skips"
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    report = yield
    _check_skip(item.config, report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector):
    report = yield
    _check_skip(collector.config, report)
    return report
