"""Configuration of the documentation; `make docs` builds it."""

from __future__ import annotations

import os
import re
import shutil
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

# Examples run one after the other; keep each to the cores it finds.
os.environ.setdefault("MPLBACKEND", "Agg")

sys.path.insert(0, str(Path(__file__).parent))

import figures
import formulas

import randkern

HERE = Path(__file__).parent

project = "randkern"
author = "the randkern developers"
copyright = "2026, the randkern developers"
version = release = randkern.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_parser",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "sphinx-mathjax-offline",  # MathJax's files: readers fetch nothing from elsewhere
]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
exclude_patterns = ["_build", "auto_examples/*.ipynb", "auto_examples/*.py"]
templates_path = ["_templates"]
default_role = "py:obj"  # a link where there is a page, else plain code
nitpicky = False  # no inventory of NumPy or scikit-learn is fetched

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

toc_object_entries_show_parents = "hide"  # long names leave the page at its right
autodoc_typehints = "none"  # numpydoc's sections carry the types
numpydoc_show_class_members = False  # the class template lists them
numpydoc_class_members_toctree = False

html_theme = "pydata_sphinx_theme"
html_title = f"randkern {version}"
html_favicon = "images/logo.svg"
html_theme_options = {
    "logo": {
        "image_light": "images/logo.svg",
        "image_dark": "images/logo-dark.svg",
        "alt_text": "randkern, home",
    },
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 8,
    "navbar_persistent": ["search-button"],  # a field has no room beside the links
    "icon_links": [
        {
            "name": "Repository",
            "url": "https://github.com/randkern/randkern",
            "icon": "fa-brands fa-github",
        }
    ],
}
html_search_scorer = str(HERE / "scorer.js")
html_static_path, html_css_files = ["_static"], ["randkern.css"]
# Pages without others below them have nothing to list at their side.
html_sidebars: dict[str, list[str]] = {name: [] for name in ("get_started", "choose")}

sphinx_gallery_conf = {
    "examples_dirs": [str(HERE.parent / "examples")],
    "gallery_dirs": ["auto_examples"],
    "subsection_order": [
        f"../examples/{part}"
        for part in ("prediction", "processes", "features", "structure", "optics")
    ],
    "nested_sections": False,
    "filename_pattern": r"plot_.*\.py$",
    "image_scrapers": ("figures.scrape",),
    "thumbnail_size": figures.THUMBNAIL,
    "abort_on_example_error": True,
    "remove_config_comments": True,
    "show_memory": False,
    "write_computation_times": False,
    "download_all_examples": False,
    "plot_gallery": True,
}
# Matplotlib's own, of its non-interactive backend: nothing to see on paper.
warnings.filterwarnings("ignore", message=".*is non-interactive.*")

# The rooms of the package, in the order in which a reader meets them.
SECTIONS = {
    "tabular": "Models of tables",
    "regression": "Regression",
    "classification": "Classification",
    "processes": "Gaussian processes",
    "models": "Models",
    "metric": "Learned metrics",
    "hypothesis_tests": "Hypothesis tests",
    "plots": "Figures and reports",
    "reporting": "Figures and reports",
    "kernels": "Kernels",
    "features": "Features",
    "landmarks": "Features",
    "sizing": "How many features?",
    "skeletons": "Skeletons",
    "optics": "Optics",
    "datasets": "Data sets",
    "data": "Rows",
    "solvers": "Solvers",
    "persistence": "Keeping models",
    "onnx": "Deployment",
    "deployment": "Deployment",
    "modules": "Deployment",
    "exceptions": "Errors and warnings",
}


def task_of(name: str) -> str:
    """Return the section of a model, by what it predicts."""
    if name.startswith("GaussianProcess"):
        return "Gaussian processes"
    if name.endswith(("Classifier", "ClassifierCV", "SVC", "Logistic")):
        return "Classification"
    if name.endswith(("Regressor", "RegressorCV", "SVR")):
        return "Regression"
    return "Models"


def public_objects() -> dict[str, list[str]]:
    """Section title -> dotted names, from ``randkern.__all__``."""
    sections: dict[str, list[str]] = {title: [] for title in SECTIONS.values()}
    values = {name: getattr(randkern, name) for name in randkern.__all__}
    modules = {n: v for n, v in values.items() if isinstance(v, ModuleType)}
    documented = {
        id(v): (f"randkern.{n}", v.__module__.split(".")[1])
        for n, v in values.items()
        if hasattr(v, "__module__")
    }
    for room, module in modules.items():
        for member in module.__all__:
            home = getattr(getattr(module, member), "__module__", "")
            if not home.startswith("randkern"):
                continue  # a constant or an alias of a type has no page
            # The short name wins where a module repeats what the package has.
            entry = (f"randkern.{room}.{member}", room)
            documented.setdefault(id(getattr(module, member)), entry)
    for dotted, room in sorted(documented.values()):
        title = SECTIONS.get(room, "Others")
        if room == "models":
            title = task_of(dotted.rpartition(".")[2])
        sections.setdefault(title, []).append(dotted)
    return {title: names for title, names in sections.items() if names}


def write_api_pages() -> list[str]:
    """Write ``generated/api.rst`` and a page per section, and return these pages."""
    folder = HERE / "generated"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    lines, pages = ["API", "===", ""], []
    for title, names in public_objects().items():
        listed = [*(f"   ~{name}" for name in names), ""]
        lines += [title, "-" * len(title), "", ".. autosummary::", "", *listed]
        page = "api_" + re.sub(r"\W+", "_", title.lower()).strip("_")
        own = [title, "=" * len(title), "", ".. autosummary::", "   :toctree: .", ""]
        (folder / f"{page}.rst").write_text("\n".join(own + listed), encoding="utf-8")
        pages.append(f"   {page}")
    lines += [".. toctree::", "   :hidden:", "", *pages, ""]
    (folder / "api.rst").write_text("\n".join(lines), encoding="utf-8")
    return [f"generated/{page.strip()}.rst" for page in pages]


# What authors of kernels define (docs/architecture.md), and users have no need of.
HOOKS = {
    "can_center",
    "doubled_phase",
    "exact_width",
    "inputs",
    "inverse_scale",
    "distribution",
    "learnable",
    "leaves",
    "n_factors",
    "nonlinearity",
    "own_projection",
    "own_variance",
    "parts",
    "positive",
    "projection",
    "projection_like",
    "reads_categories",
    "signed",
    "squared_amplitude",
    "terms",
}


def skip_foreign_members(
    app: Any, what: str, name: str, member: Any, skip: bool, options: Any
) -> bool | None:
    """Leave out hooks, and what a class inherits from elsewhere, but its score."""
    if what == "class" and name in HOOKS:
        return True
    if what != "class" or isinstance(member, property) or name == "score":
        return None
    home = getattr(member, "__module__", None) or ""
    return None if home.startswith("randkern") else True


def show_formulas(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Set the formulas of docstrings, which are written for a terminal."""
    lines[:] = formulas.show(lines)


def escape_formulas(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Keep reStructuredText from reading markup into plain formulas.

    Docstrings write |Ux| for a modulus and refer to fitted attributes such as
    kernel_ in running text; neither is a substitution or a hyperlink here.
    """
    for index, line in enumerate(lines):
        if line.lstrip().startswith((">>>", "...", "..")):
            continue
        # scikit-learn's docstrings refer to its own pages.
        line = re.sub(r":ref:`([^<`]+) <[^`]*>`", r"\1", line)
        parts = re.split(r"(`[^`]*`+)", line)
        for i in range(0, len(parts), 2):  # outside backticks
            parts[i] = re.sub(r"(?<!\\)\|", r"\|", parts[i])
        lines[index] = "".join(parts)


# Named, as a build that continues another one knows only the pages of that one.
autosummary_generate = write_api_pages()
figures.draw_records(HERE)


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", show_formulas)
    app.connect("autodoc-process-docstring", escape_formulas)
    # Before Sphinx collects the images that it copies.
    app.connect("doctree-read", figures.show_both, priority=1)
    app.connect("autodoc-skip-member", skip_foreign_members)
