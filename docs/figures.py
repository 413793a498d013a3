"""Figures of the documentation for light and for dark pages.

Examples are run once, and each of their figures is saved twice; figures of records are
drawn from their numbers. A page names the light one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from check_pages import contrast
from docutils import nodes
from matplotlib import pyplot as plt
from matplotlib.collections import Collection
from matplotlib.colors import to_hex, to_rgba_array
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from sphinx_gallery.directives import imgsgnode
from sphinx_gallery.scrapers import figure_rst
from sphinx_gallery.utils import scale_image

from randkern_lab.records import read_records
from randkern_lab.runner import figures_of

INK, PAPER = "#ced6dd", "#14181e"  # of dark pages
THUMBNAIL = (400, 280)
COLOURS = {
    Text: ("color",),
    Line2D: ("color", "markeredgecolor", "markerfacecolor"),
    Patch: ("edgecolor", "facecolor"),
    Collection: ("edgecolor", "facecolor"),
}


def for_dark_pages(colour: Any) -> np.ndarray:
    """Return colours with dark and pale greys exchanged; the others serve both."""
    colours = to_rgba_array(colour)
    (ink, paper), rgb = to_rgba_array([INK, PAPER])[:, :3], colours[:, :3]
    pale = rgb.mean(axis=1, keepdims=True)
    swapped = (np.ptp(rgb, axis=1, keepdims=True) < 0.05) & (abs(pale - 0.5) > 0.2)
    colours[:, :3] = np.where(swapped, ink + (paper - ink) * pale, rgb)
    return colours


def darken(figure: Figure) -> None:
    """Give what is black the ink of dark pages, and what is white their paper."""
    artists = figure.findobj()
    # An annotation does not name its arrow among its children.
    arrows = [getattr(artist, "arrow_patch", None) for artist in artists]
    for artist in [*artists, *arrows]:
        for kind, names in COLOURS.items():
            if isinstance(artist, kind) and not is_mapped(artist):
                for name in names:
                    recolour(artist, name)


def legible(colour: str) -> str:
    """Return a colour of text, as much lighter as dark pages need (WCAG 2.2, AA)."""
    rgba = to_rgba_array(colour)[0]
    for share in np.linspace(0, 1, 11):
        lighter = [*(rgba[:3] + share * (1 - rgba[:3])), rgba[3]]
        if contrast(to_hex(lighter), PAPER) >= 4.5:
            break
    return to_hex(lighter, keep_alpha=True)


def is_mapped(artist: Any) -> bool:
    """Whether an artist's colours stand for numbers."""
    return isinstance(artist, Collection) and artist.get_array() is not None


def recolour(artist: Any, name: str) -> None:
    """Set a colour of an artist, or those of its parts, to that of dark pages."""
    colour = getattr(artist, f"get_{name}")()
    if isinstance(colour, str) and colour in ("none", "auto"):
        return
    colours = [to_hex(each, keep_alpha=True) for each in for_dark_pages(colour)]
    if isinstance(artist, Text):
        colours = [legible(each) for each in colours]
    if colours:
        several = isinstance(artist, Collection)
        getattr(artist, f"set_{name}")(colours if several else colours[0])


def dark(path: Path) -> Path:
    """Return where the figure for dark pages is."""
    return path.with_stem(f"{path.stem}_dark")


def save(figure: Figure, path: Path) -> None:
    """Save a figure for light pages and one for dark pages, both without a ground.

    Of three panels or more beside each other a thumbnail shows the last alone.
    """
    figure.savefig(path, transparent=True)
    panel = last_panel(figure)
    if panel is not None:
        figure.savefig(alone(path), transparent=True, bbox_inches=panel)
    darken(figure)
    figure.savefig(dark(path), transparent=True)
    if panel is not None:
        figure.savefig(dark(alone(path)), transparent=True, bbox_inches=panel)


def alone(path: Path) -> Path:
    """Return where a panel of the figure is."""
    return path.with_stem(f"{path.stem}_panel")


def last_panel(figure: Figure) -> Any:
    """Return the box of the last panel in inches, None with less than three beside."""
    shown = [axes for axes in figure.axes if axes.get_visible()]
    panels = [axes for axes in shown if axes.get_label() != "<colorbar>"]
    columns = {round(axes.get_position().x0, 2) for axes in panels}
    if len(columns) < 3:
        return None
    figure.draw_without_rendering()
    box = panels[-1].get_tightbbox()
    return box.transformed(figure.dpi_scale_trans.inverted()).padded(0.05)


def scrape(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Save the figures of a block of an example, and return what shows them."""
    paths, titles = [], []
    for number, path in zip(
        plt.get_fignums(), block_vars["image_path_iterator"], strict=False
    ):
        figure = plt.figure(number)
        heads = [figure.get_suptitle(), *(axes.get_title() for axes in figure.axes)]
        titles += [head for head in heads if head]
        save(figure, Path(path))
        paths.append(path)
    plt.close("all")
    return figure_rst(paths, gallery_conf["src_dir"], ", ".join(titles))


def draw_records(docs: Path) -> None:
    """Draw the figures of records that pages show: generated/records/NAME/FIGURE."""
    pages = "".join(page.read_text(encoding="utf-8") for page in docs.glob("*.md"))
    shown = set(re.findall(r"generated/records/([\w-]+)/([\w-]+\.png)", pages))
    for record in read_records(docs.parent / "benchmarks"):
        if record.name in {name for name, _ in shown}:
            folder = docs / "generated" / "records" / record.name
            folder.mkdir(parents=True)
            for name, figure in figures_of(record.script, record.frame).items():
                if (record.name, name) in shown:
                    save(figure, folder / name)


def draw_thumbnail(path: Path) -> None:
    """Draw the thumbnails of an example from its first figure, or from its panel."""
    first = path.parent.parent / path.name.replace("_thumb", "_001")
    if alone(first).is_file():
        first = alone(first)
        scale_image(first, path, *THUMBNAIL)
    if dark(first).is_file():
        scale_image(dark(first), dark(path), *THUMBNAIL)


def show_both(app: Any, doctree: nodes.document) -> None:
    """Put the figure for dark pages beside each that has one; styles choose."""
    for node in list(doctree.findall(imgsgnode)):  # of the gallery
        classes = list(node["class"] or ())
        image = nodes.image(uri=node["uri"], alt=node["alt"], classes=classes)
        node.replace_self(image)
    for node in list(doctree.findall(nodes.image)):
        relative, full = app.env.relfn2path(node["uri"], app.env.docname)
        if full.endswith("_thumb.png"):
            draw_thumbnail(Path(full))
        if dark(Path(full)).is_file():
            twin = node.deepcopy()
            twin["uri"] = "/" + dark(Path(relative)).as_posix()
            node["classes"].append("only-light")
            twin["classes"].append("only-dark")
            node.parent.insert(node.parent.index(node) + 1, twin)
