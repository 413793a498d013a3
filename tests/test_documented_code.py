"""The Python blocks of the README and the guides run, top to bottom."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    *("README.md", "docs/index.md", "docs/user_guide.md", "docs/datasets.md"),
    *("docs/optics.md", "docs/skeletons.md", "docs/gaussian_processes.md"),
    "docs/support_vector_machines.md",
)
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = FENCE.findall(text)
    assert blocks, f"{page} has no Python block"
    monkeypatch.chdir(tmp_path)
    # Later blocks use what earlier ones define, as a reader would.
    exec(compile("\n".join(blocks), page, "exec"), {"__name__": page})
