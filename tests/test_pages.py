"""The checks of built pages find defects; drawings and docstrings can be read."""

import inspect
import re
import subprocess
import sys
from dataclasses import is_dataclass
from enum import Enum
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

import pytest

import randkern as rk
from _docs import ROOT, script

LIGHT, DARK = "#ffffff", "#14181e"  # the pages of pydata-sphinx-theme
LEAST = 4.5  # of WCAG 2.2, level AA


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


#: What readers search, and the page that answers it.
SEARCHED = {
    "rbf": "kernels",
    "drift": "hypothesis_tests",
    "two-sample test": "hypothesis_tests",
    "feature importance": "inspection",
    "kernel ridge": "exact_limit",
    "confidence interval": "probabilities",
    "prediction interval": "probabilities",
    "calibration": "probabilities",
    "time series": "groups_and_time",
    "missing values": "tables",
    "anomaly": "without_labels",
    "cross validation": "penalties",
    "out of memory": "out_of_core",
    "one-hot": "tables",
    "text column": "tables",
    "sample weight": "exact_limit",
    "imbalanced": "support_vector_machines",
}


@pytest.mark.parametrize(("term", "page"), SEARCHED.items())
def test_searches_lead_to_their_page(term, page):
    """Sphinx shows main entries of the index first; a query is half of one or more."""
    leading = {
        path.stem
        for path in (ROOT / "docs").glob("*.md")
        for line in re.findall(r"```\{index\} (.+)", path.read_text(encoding="utf-8"))
        for entry in re.findall(r"! ([^,]+)", line.lower())
        if term in entry and 2 * len(term) >= len(entry)
    }
    assert leading == {page}


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
        *(("fit", [LIGHT, DARK]), ("floors", [LIGHT, DARK])),
        *(("logo", [LIGHT]), ("logo-dark", [DARK])),
    ],
)
def test_texts_of_drawings_can_be_read(name, backgrounds):
    pairs = list(texts(drawings.drawings()[name], backgrounds))
    assert pairs
    assert all(pages.contrast(*pair) >= LEAST for pair in pairs), set(pairs)


def test_colours_of_reports_can_be_read():
    template = Path(rk.__file__).parent / "reporting" / "page.html"
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


# All but errors, values of an enumeration, protocols and names of types.
WITH_PARAMETERS = [
    public
    for public in documented()
    if inspect.isfunction(value := public.values[0])
    or (
        inspect.isclass(value)
        and not issubclass(value, Exception | Enum)
        and not getattr(value, "_is_protocol", False)
    )
]
# What users call; the methods of a protocol, for those who extend the package, have
# their explanation in its base class.
VERBS = (
    "fit partial_fit predict predict_proba predict_log_proba decision_function score "
    "transform linear_transform get_feature_names_out calibrate acquire sample_y "
    "sample_paths condition_on predict_interval"
).split()
ELSEWHERE = re.compile(
    r"\b[Ss]ee (?!Notes)|\bas in scikit-learn|by the rules of|explains"
    r"|(?:^A|, a|^a)s (?:in|by|for|of) (?::\w+:)?`"
)


def with_methods(public):
    """A class or function, and of a class the methods that users call."""
    yield public
    for verb in VERBS if inspect.isclass(public) else ():
        method = getattr(public, verb, None)
        if getattr(method, "__module__", "").startswith("randkern"):
            yield method


def parameters_of(public):
    """{name or names: (type, explanation)} of the parameters, or of the attributes.

    Records explain their attributes, which are their parameters.
    """
    text = inspect.getdoc(public) or ""
    titles = re.split(r"^(\w[\w ]+)\n-{3,}\n", text, flags=re.M)
    sections = dict(zip(titles[1::2], titles[2::2], strict=True))
    other = sections.get("Attributes", "") if is_dataclass(public) else ""
    section = sections.get("Parameters", other)
    entries = re.findall(r"^(\S.*)\n((?:(?: .*)?(?:\n|$))*)", section + "\n", re.M)
    return {
        head.partition(" : ")[0]: (head.partition(" : ")[2], " ".join(body.split()))
        for head, body in entries
    }


def unexplained(public):
    """What is wrong with the parameters of a class or a function."""
    result = parameters_of(public)
    named = {name.strip(" *") for names in result for name in names.split(",")}
    taken = set(inspect.signature(public).parameters) - {"self"}
    yield from (f"{name}: nothing" for name in sorted(taken - named))
    for name, (kind, text) in result.items():
        if inspect.isclass(public) and not (text or is_dataclass(public)):
            yield f"{name}: no text"
        if message := ELSEWHERE.search(kind) or ELSEWHERE.search(text):
            yield f"{name}: {message[0]!r}, rather than what it is"
        options = re.findall(r'"([\w-]+)"', kind.partition("{")[2].partition("}")[0])
        left = [option for option in options if f'"{option}"' not in text]
        if len(options) > 1 and left and name not in ("dtype", "task"):
            yield f"{name}: nothing of {left}"


@pytest.mark.parametrize("public", WITH_PARAMETERS)
def test_parameters_are_explained_where_they_stand(public):
    """And not by the page of another class; each option by its name."""
    problems = {
        item.__qualname__: list(unexplained(item)) for item in with_methods(public)
    }
    assert not {name: result for name, result in problems.items() if result}
