"""Skips for reasons that are not on the list are failures, where that is asked for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SKIPS = """
import pytest

def test_of_data():
    pytest.skip("RANDKERN_DATA is not set: point it to a directory")

@pytest.mark.skipif(True, reason="nobody knows")
def test_of_another():
    pass

def test_of_a_known_defect():
    pytest.xfail("known")
"""


def outcomes(folder, *options):
    """Return pytest's last line about the files in a folder."""
    # The root's conftest.py is the plugin.
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "-c", os.devnull]
    done = subprocess.run(
        [*command, "-q", f"--rootdir={folder}", *options, str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.splitlines()[-1].partition(" in ")[0]


@pytest.mark.slow
def test_a_skip_that_is_not_listed_fails(tmp_path):
    (tmp_path / "test_it.py").write_text(SKIPS)
    assert outcomes(tmp_path, "--strict-skips") == "1 skipped, 1 xfailed, 1 error"
