"""The checks of built pages find defects; drawings and docstrings can be read."""

import inspect
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

import pytest

import randkern as rk

ROOT = Path(__file__).resolve().parents[1]
LIGHT, DARK = "#ffffff", "#14181e"  # the pages of pydata-sphinx-theme
LEAST = 4.5  # of WCAG 2.2, level AA


def script(name):
    """A script of the documentation, which is no package."""
    spec = spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = sys.modules[name] = module_from_spec(spec)  # dataclasses look there
    spec.loader.exec_module(module)
    return module


pages, drawings = script("check_pages"), script("drawings")

GOOD = """<h1 id="top">One</h1><h2 id="two">Two</h2><a href="#two">a</a>
<a href="other.html#top">b</a><a href="https://example.org/">c</a>
<img src="x.png" alt="A wave"><svg role="img" aria-label="A chart"></svg>"""


def found(tmp_path, text):
    (tmp_path / "x.png").touch()
    (tmp_path / "other.html").write_text('<h1 id="top">Other</h1>', encoding="utf-8")
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    return pages.problems_of(tmp_path)


def test_a_good_page_passes(tmp_path):
    assert found(tmp_path, GOOD) == []
    command = [sys.executable, pages.__file__, tmp_path]
    assert subprocess.run(command).returncode == 0
    (tmp_path / "x.png").unlink()
    run = subprocess.run(command, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (
        1,
        "page.html: no file for the link x.png\n",
    )


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("#two", "#three", "no anchor for the link #three"),
        ("other.html#top", "other.html#end", "no anchor for the link other.html#end"),
        ("other.html#top", "gone.html", "no file for the link gone.html"),
        ("x.png", "y.png", "no file for the link y.png"),
        ("x.png", "https://example.org/x.png", "fetches https://example.org/x.png"),
        ("h2", "h3", "a heading h3 right below h1"),
        ("h2", "h1", "2 main headings, not one"),
        ('alt="A wave"', 'alt=""', "no alternative text for x.png"),
        (' alt="A wave"', "", "no alternative text for x.png"),
        ("A wave", "plot waves", "no title, hence no text, for the figure x.png"),
        (' aria-label="A chart"', "", "no alternative text for svg"),
    ],
)
def test_defects_of_pages_are_found(tmp_path, old, new, problem):
    assert found(tmp_path, GOOD.replace(old, new)) == [f"page.html: {problem}"]


def test_contrasts_are_those_of_the_standard():
    assert pages.contrast("#000000", "#ffffff") == pytest.approx(21)
    assert pages.contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)


def texts(drawing, backgrounds):
    """(colour, background) of every text of a drawing that has a colour of its own."""
    boxes = []
    for node in ElementTree.fromstring(drawing).iter():
        at = {name: float(node.get(name, 0)) for name in ("x", "y")}
        if node.tag.endswith("rect"):
            ends = (
                at["x"] + float(node.get("width")),
                at["y"] + float(node.get("height")),
            )
            boxes.append((at["x"], at["y"], *ends, node.get("fill")))
        elif node.tag.endswith("text") and node.get("fill") != "currentColor":
            behind = [
                fill
                for left, top, right, bottom, fill in boxes
                if left <= at["x"] <= right and top <= at["y"] <= bottom
            ]
            yield from product([node.get("fill")], behind[-1:] or backgrounds)


@pytest.mark.parametrize(
    ("name", "backgrounds"),
    [
        *(("choose", [LIGHT, DARK]), ("choose-narrow", [LIGHT, DARK])),
        *(("logo", [LIGHT]), ("logo-dark", [DARK])),
    ],
)
def test_texts_of_drawings_can_be_read(name, backgrounds):
    pairs = list(texts(drawings.drawings()[name], backgrounds))
    assert pairs
    assert all(pages.contrast(*pair) >= LEAST for pair in pairs), set(pairs)


def test_colours_of_reports_can_be_read():
    template = Path(rk.__file__).parent / "report" / "page.html"
    schemes = re.findall(r":root \{(.*?)\}", template.read_text(encoding="utf-8"))
    assert len(schemes) == 2  # light and dark
    for scheme in schemes:
        colours = dict(re.findall(r"--(\w+): (#\w{6})", scheme))
        for ink, paper in product(("ink", "soft", "link"), ("page", "card")):
            assert pages.contrast(colours[ink], colours[paper]) >= LEAST, (ink, paper)


def test_drawings_are_those_of_their_script():
    for name, text in drawings.drawings().items():
        assert (drawings.IMAGES / f"{name}.svg").read_text(encoding="utf-8") == text
    public = {f"{drawings.API}{name}.html" for name in rk.__all__}
    for choice in drawings.CHOICES:
        page = ROOT / "docs" / choice.page.replace(".html", ".md")
        assert choice.page in public or page.is_file()


def documented():
    """Public classes and functions, by name."""
    for name in sorted(set(rk.__all__) - {"__version__"}):
        value = getattr(rk, name)
        if not inspect.ismodule(value):
            yield pytest.param(value, id=name)
            continue
        for member in value.__all__:
            if callable(getattr(value, member)):
                yield pytest.param(getattr(value, member), id=f"{name}.{member}")


@pytest.mark.parametrize("public", list(documented()))
def test_parameters_are_explained_where_they_stand(public):
    """And not by the page of another class."""
    text = inspect.getdoc(public) or ""
    sections = re.split(r"^(\w[\w ]+)\n-{3,}\n", text, flags=re.M)
    parameters = dict(zip(sections[1::2], sections[2::2], strict=True)).get(
        "Parameters"
    )
    bare = re.findall(r"^(\w.*)\n(?! +(?!As (?:in|for|of) )\S)", parameters or "", re.M)
    assert not bare, f"explain {bare}"
