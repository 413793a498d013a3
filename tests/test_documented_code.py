"""The Python blocks of the README and the guides run, top to bottom."""

import contextlib
import io
import re
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_deadline")]

ROOT = Path(__file__).resolve().parents[1]
# A block, and what it prints if the page shows it.
FENCE = re.compile(
    r"^```python\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL
)
NUMBER = re.compile(r"\d+(?:\.\d+)?")

BLOCKS = {
    str(path.relative_to(ROOT)): FENCE.findall(path.read_text(encoding="utf-8"))
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
}
PAGES = [page for page, blocks in BLOCKS.items() if blocks]
# Of many fits.
LONG = {
    f"docs/{name}.md"
    for name in (
        *("gaussian_process_recipes", "gaussian_processes", "groups_and_time"),
        *("get_started", "learned_metrics", "optics", "skeletons", "tables"),
    )
}


def test_there_are_pages_with_code():
    assert {"README.md", "docs/index.md", "docs/get_started.md"} <= set(PAGES)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.nightly] * (page in LONG))
        for page in PAGES
    ],
)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    if page == "docs/gpu.md":
        pytest.importorskip("torch")
    blocks = BLOCKS[page]
    if find_spec("torch") is None:
        blocks = [block for block in blocks if "import torch" not in block[0]]
    monkeypatch.chdir(tmp_path)
    text, settings = (ROOT / page).read_text(encoding="utf-8"), {"__name__": page}
    # Later blocks use what earlier ones define, as a reader would; lines are numbered
    # as on the page, which tracebacks quote.
    for block, shown in blocks:
        above = text.partition(block)[0].count("\n")
        code = compile("\n" * above + block, page, "exec")
        printed = io.StringIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with contextlib.redirect_stdout(printed):
                exec(code, settings)
        assert not shown or agree(printed.getvalue(), shown)


def agree(printed, shown):
    """Whether words are the same, and numbers to a tenth: machines round otherwise."""
    words = [NUMBER.sub("#", text) for text in (printed, shown)]
    numbers = [list(map(float, NUMBER.findall(text))) for text in (printed, shown)]
    return words[0] == words[1] and numbers[0] == pytest.approx(numbers[1], rel=0.1)
