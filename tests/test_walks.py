"""The walks of ``docs/architecture.md`` are the calls that the code makes."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import randkern as rk

PACKAGE = Path(rk.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
STEP = re.compile(r"^ +(\S+\.py) +([A-Za-z_.]+)", re.MULTILINE)


def walks() -> list[list[tuple[str, str]]]:
    """Return the files and functions of every walk."""
    section = (
        PAGE.read_text(encoding="utf-8").split("## Five walks")[1].split("\n## ")[0]
    )
    return [STEP.findall(block) for block in section.split("```text")[1:]]


def calls_of(function) -> list[tuple[str, str]]:
    """Return the files and names of the library's functions, by their first calls."""
    calls = {}

    def note(frame, event, _):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            name = frame.f_code.co_qualname
            calls.setdefault((path.relative_to(PACKAGE).as_posix(), name))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
    return list(calls)


def fits(rng):
    X = rng.normal(size=(60, 4))
    y = X[:, 0] + rng.normal(size=60)
    options = {"n_components": 20, "random_state": 0}
    features = rk.RandomFeatures(**options).fit(X)
    direct = rk.KernelRidgeRegressor(**options, solver="cholesky")
    iterative = rk.KernelRidgeRegressor(**options, solver="pcg")
    process = rk.GaussianProcessRegressor(**options)
    machine = rk.KernelSVC(**options)
    return [
        lambda: features.transform(X),
        lambda: direct.fit(X, y),
        lambda: iterative.fit(X, y),
        lambda: process.fit(X, y),
        lambda: machine.fit(X, y > 0),
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", range(5))
def test_walks_are_the_calls(number, rng):
    fit = fits(rng)[number]
    fit()  # compiles: the profiler would slow that down
    walk, calls = walks()[number], calls_of(fit)
    assert len(walk) >= 5
    missing = [step for step in walk if step not in calls]
    assert not missing, f"not called: {missing}"
    assert walk == [step for step in calls if step in walk]


def sizes() -> None:
    """Print how many files and functions each walk, and a fit of a table, enters."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    number = rk.TabularRegressor(2, random_state=0)
    label = rk.TabularClassifier(2, random_state=0)
    tables = [lambda: number.fit(X, X[:, 0]), lambda: label.fit(X, X[:, 0] > 0)]
    names = ("transform", "cholesky", "pcg", "process", "margins", "numbers", "labels")
    for name, fit in zip(names, fits(rng) + tables, strict=True):
        fit()
        calls = calls_of(fit)
        files = {file for file, _ in calls}
        sys.stdout.write(f"{name}: {len(files)} files, {len(calls)} functions\n")


if __name__ == "__main__":
    sizes()
