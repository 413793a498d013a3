"""Fixtures and the hypothesis profiles of the test suite."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

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
