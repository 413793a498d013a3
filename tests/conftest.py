"""Fixtures and the hypothesis profiles of the test suite."""

import os
import random
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numba
import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from randkern import _random
from randkern.backend import compiled_loops

# The same examples on every run, and no deadline: the first call of a compiled
# function takes as long as its compilation.
settings.register_profile(
    "randkern",
    deadline=None,
    derandomize=True,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
# Nightly, a new seed: what fails is printed as a decorator that brings it back.
settings.register_profile(
    "random",
    settings.get_profile("randkern"),
    derandomize=False,
    max_examples=300,
    print_blob=True,
)
settings.load_profile("randkern")


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator with a fixed seed, fresh for every test."""
    return np.random.default_rng(20_240_607)


@pytest.fixture(autouse=True)
def _entropy_of_the_test(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Derive what ``random_state=None`` draws from the test's name.

    So that a test passes on every run or on none.
    """
    seed = zlib.crc32(request.node.name.encode())
    monkeypatch.setattr(_random, "randbits", random.Random(seed).getrandbits)


class Meetings:
    """Two threads, neither of which goes on before both have work in their hands.

    It stands in for ``compiled_loops._work``, which every thread of a call runs.

    Attributes
    ----------
    tasks : set of str
        Modules of the tasks that two threads have shared.
    """

    def __init__(self) -> None:
        self.tasks: set[str] = set()
        self._lock = threading.Lock()
        self._gates: list[tuple[list[tuple[int, int]], threading.Barrier]] = []
        self._work = compiled_loops._work

    def work(
        self, task: Callable[[int, int], object], ranges: list[tuple[int, int]]
    ) -> None:
        """Take ranges until none is left, the first when both threads have one."""
        gate = self._gate(ranges)
        waiting = [gate]

        def meet_first(start: int, stop: int) -> None:
            while waiting:
                waiting.pop().wait(timeout=60)
                function = getattr(task, "func", task)  # of a partial
                self.tasks.add(function.__module__.rpartition(".")[2])
            task(start, stop)

        self._work(meet_first, ranges)

    def _gate(self, ranges: list[tuple[int, int]]) -> threading.Barrier:
        with self._lock:
            for known, gate in self._gates:
                if known is ranges:
                    return gate
            # Not the order of one thread: no range may need the one before it.
            ranges.reverse()
            self._gates.append((ranges, threading.Barrier(2)))
            return self._gates[-1][1]


@pytest.fixture
def two_threads() -> Callable[[], AbstractContextManager[Meetings]]:
    """Make contexts in which compiled loops are run by two threads at once.

    However small the work: each thread takes ranges, from last to first, and neither
    begins before the other has one. A context in which nothing was shared fails.
    """
    if numba.config.NUMBA_NUM_THREADS < 2:
        pytest.skip("Numba has one thread")

    @contextmanager
    def force() -> Iterator[Meetings]:
        meetings, before = Meetings(), numba.get_num_threads()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compiled_loops, "_NANOSECONDS_PER_THREAD", 1e-30)
            patch.setattr(compiled_loops, "_work", meetings.work)
            numba.set_num_threads(2)
            try:
                yield meetings
            finally:
                numba.set_num_threads(before)
        assert meetings.tasks, "no work was shared by two threads"

    return force


@pytest.fixture(autouse=True)
def _width_of_redirected_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the width of the terminal, which runners of tests pass on."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The directory that RANDKERN_DATA names; without one the test is skipped."""
    value = os.environ.get("RANDKERN_DATA")
    if not value:
        pytest.skip(
            "RANDKERN_DATA is not set: point it to a directory that holds "
            "mnist/, fashion-mnist-sample/ and cifar10/"
        )
    path = Path(value)
    if not path.is_dir():
        pytest.skip(f"RANDKERN_DATA={value!r} is not a directory")
    return path


def pytest_make_parametrize_id(
    config: pytest.Config, val: object, argname: str
) -> str | None:
    """Name byte contents by their argument: the bytes of an archive hold the time.

    The workers of pytest-xdist must collect the same names.
    """
    return argname if isinstance(val, bytes) else None
