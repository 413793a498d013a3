"""Check the pages that Sphinx has built, without a network: `make docs` runs it.

Links and anchors lead somewhere in the pages, nothing is fetched from elsewhere, each
page has one main heading and skips no level of headings, and every image has a text.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

HEADING = re.compile(r"h[1-6]")
# What Sphinx-Gallery calls a figure without a title: the name of its file.
UNTITLED = re.compile(r"plot [\w ]+")


@dataclass
class Page(HTMLParser):
    """What a page refers to, and what it can be referred to by."""

    path: Path
    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    headings: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        HTMLParser.__init__(self)
        self.feed(self.path.read_text(encoding="utf-8"))
        if self.headings.count(1) != 1:
            self.problems.append(f"{self.headings.count(1)} main headings, not one")
        for above, below in zip(self.headings, self.headings[1:], strict=False):
            if below > above + 1:
                self.problems.append(f"a heading h{below} right below h{above}")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag names, refers to, or lacks."""
        values = {name: value or "" for name, value in attrs}
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        if HEADING.fullmatch(tag):
            self.headings.append(int(tag[1]))
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag in ("img", "link", "script"):
            source = values.get("href" if tag == "link" else "src", "")
            if urlsplit(source).netloc and values.get("rel") != "canonical":
                self.problems.append(f"fetches {source}")
            else:
                self.links.append(source)
        if tag == "img":
            self._check_text(values.get("alt"), values.get("src", ""))
        elif tag == "svg" and values.get("role") == "img":
            hidden = values.get("aria-hidden") == "true"
            self._check_text("icon" if hidden else values.get("aria-label"), tag)

    def _check_text(self, text: str | None, source: str) -> None:
        # A thumbnail stands beside the title that it links to: it is decoration.
        if text is None or not (text.strip() or "_thumb" in source):
            self.problems.append(f"no alternative text for {source}")
        elif UNTITLED.fullmatch(text):
            self.problems.append(f"no title, hence no text, for the figure {source}")


def problems_of(folder: Path) -> list[str]:
    """Return what is wrong with the pages under a folder, each with its page."""
    folder = folder.resolve()
    paths = [p for p in sorted(folder.rglob("*.html")) if p.parent.name != "_static"]
    pages = {path: Page(path) for path in paths}
    return [
        f"{path.relative_to(folder)}: {text}"
        for path, page in pages.items()
        for text in (*page.problems, *broken_links(page, pages))
    ]


def broken_links(page: Page, pages: dict[Path, Page]) -> list[str]:
    """Return the links of a page within the pages that lead nowhere."""
    broken = []
    for link in dict.fromkeys(page.links):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = page.path
        if parts.path:
            target = (page.path.parent / unquote(parts.path)).resolve()
        anchor = unquote(parts.fragment)
        # Sphinx's sources lead back by one public module per file, which may have two.
        known = target not in pages or "_modules" in page.path.parts
        if not target.is_file():
            broken.append(f"no file for the link {link}")
        elif anchor and not known and anchor not in pages[target].anchors:
            broken.append(f"no anchor for the link {link}")
    return broken


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour #rrggbb (WCAG 2.2)."""
    shares = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [
        s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, from 1 to 21 (WCAG 2.2)."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


if __name__ == "__main__":
    sys.exit("\n".join(problems_of(Path(sys.argv[1]))) or None)
