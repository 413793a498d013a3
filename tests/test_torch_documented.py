"""The Python blocks of the guide to tensors run, top to bottom."""

import pytest

pytest.importorskip("torch")

from test_documented_code import test_python_blocks_run as run_blocks

pytestmark = pytest.mark.slow


@pytest.mark.slow
def test_python_blocks_run(tmp_path, monkeypatch):
    run_blocks("docs/gpu.md", tmp_path, monkeypatch)
