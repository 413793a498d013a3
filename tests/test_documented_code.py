"""The Python blocks of the README and the guides run, top to bottom."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


BLOCKS = {
    str(path.relative_to(ROOT)): FENCE.findall(path.read_text(encoding="utf-8"))
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
}
# Those of tensors are run by test_torch_documented.py.
PAGES = [page for page, blocks in BLOCKS.items() if blocks and page != "docs/gpu.md"]


def test_there_are_pages_with_code():
    assert {"README.md", "docs/index.md", "docs/get_started.md"} <= set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    blocks = BLOCKS[page]
    if find_spec("torch") is None:
        blocks = [block for block in blocks if "import torch" not in block]
    monkeypatch.chdir(tmp_path)
    text, settings = (ROOT / page).read_text(encoding="utf-8"), {"__name__": page}
    # Later blocks use what earlier ones define, as a reader would; lines are numbered
    # as on the page, which tracebacks quote.
    for block in blocks:
        above = text.partition(block)[0].count("\n")
        exec(compile("\n" * above + block, page, "exec"), settings)
