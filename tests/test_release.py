"""What a release names agrees, and the types reach a user's type checker."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import randkern as rk

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

USER = """
import numpy as np
import randkern as rk

kernel: rk.Kernel = rk.Gaussian(2.0) + rk.Linear()
X = np.zeros((5, 2))
model = rk.KernelRidgeRegressor(kernel, alpha=0.1, n_components=10)
prediction = model.fit(X, X[:, 0]).predict(X)
features = rk.RandomFeatures(kernel, n_components=10, random_state=0)
solver: rk.solvers.PCG = rk.solvers.PCG(max_iter=5)
"""
MISTAKES = """
import randkern as rk

rk.Gausian()
rk.KernelRidgeRegressor(n_component=10)
rk.Optical(degree="two")
"""


def found(path, pattern):
    return re.search(pattern, (ROOT / path).read_text(), re.MULTILINE).group(1)


def test_one_version_everywhere():
    version = rk.__version__.removesuffix(".dev0")
    assert found("CITATION.cff", r"^version: (.+)$") == version
    assert found("recipe/meta.yaml", r'^{% set version = "(.+)" %}$') == version
    assert version in re.findall(
        r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )


def test_the_recipe_needs_what_the_package_needs():
    recipe = (ROOT / "recipe" / "meta.yaml").read_text()
    run = recipe.partition("  run:\n")[2].partition("  run_constrained:")[0]
    named = [line.strip(" -").replace(" ", "") for line in run.splitlines()]
    python = f"python{PROJECT['requires-python']}"
    assert sorted(filter(None, named)) == sorted([python, *PROJECT["dependencies"]])
    every = {
        line for extra in PROJECT["optional-dependencies"].values() for line in extra
    }
    constrained = recipe.partition("run_constrained:\n")[2].partition("\n\n")[0]
    for line in constrained.splitlines():
        name = line.strip(" -").replace(" ", "").replace("pytorch", "torch")
        assert name in every


def test_the_table_of_versions_is_that_of_the_package():
    page = (ROOT / "docs" / "policies.md").read_text()
    for line in PROJECT["dependencies"]:
        name, _, least = line.partition(">=")
        if name != "threadpoolctl":
            assert re.search(rf"^\| {name} \| {least} \|", page, re.M | re.I), line


def test_the_stub_names_what_is_public():
    stub = (ROOT / "src" / "randkern" / "__init__.pyi").read_text()
    assert {*re.findall(r"^    (\w+) as \1,$|^__(version)__", stub, re.MULTILINE)} == {
        *((name, "") for name in rk.__all__ if name != "__version__"),
        ("", "version"),
    }


@pytest.mark.nightly
def test_a_type_checker_takes_a_users_file(tmp_path):
    pytest.importorskip("mypy")
    assert (ROOT / "src" / "randkern" / "py.typed").is_file()
    (tmp_path / "user.py").write_text(USER)
    (tmp_path / "mistaken.py").write_text(MISTAKES)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "user.py", "mistaken.py"],
        cwd=tmp_path,
        env={"PATH": "", "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    mistakes = ("Gausian", "n_component", '"str"; expected "float"')
    assert len(errors) == len(mistakes), done.stdout + done.stderr
    for line, mistake in zip(errors, mistakes, strict=True):
        assert line.startswith("mistaken.py")
        assert mistake in line
