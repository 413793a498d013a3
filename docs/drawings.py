"""The drawings of the documentation: run it to write them into ``images``.

They are plain SVG, of text and boxes. Text within boxes has a colour that contrasts
with them; text on the page has the page's colour; the logo is drawn twice.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
IMAGES = HERE / "images"
INK, ACCENT, PALE, LINE = "#12384a", "#0b6e99", "#e3f1f7", "#7c9aa8"
WHITE = "#ffffff"
API = "generated/randkern."


def logo(text: str = INK) -> str:
    """Draw a wave that is a sum of few cosines, over the samples it was made of."""
    points = []
    for step in range(121):
        t = step / 120 * 2 * math.pi
        value = math.cos(t) + 0.55 * math.cos(3 * t + 1.1) + 0.3 * math.cos(5 * t + 2.3)
        points.append((8 + step * 0.4, 32 - 13 * value))
    wave = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="#f28e2b"/>'
        for x, y in points[6::18]
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 236 64" role="img" '
        'aria-label="randkern"><title>randkern</title>'
        f'<rect x="2" y="2" width="60" height="60" rx="12" fill="{ACCENT}"/>'
        f'<polyline points="{wave}" fill="none" stroke="{WHITE}" stroke-width="3" '
        f'stroke-linecap="round" stroke-linejoin="round"/>{dots}'
        '<text x="74" y="43" font-family="Helvetica, Arial, sans-serif" '
        f'font-size="33" font-weight="600" fill="{text}" textLength="156" '
        'lengthAdjust="spacingAndGlyphs">randkern</text></svg>\n'
    )


@dataclass(frozen=True)
class Choice:
    """A question, and what to use where the answer is yes.

    `measured` is of the record of that name, in ``benchmarks``.
    """

    question: tuple[str, ...]
    answer: str
    arguments: str
    page: str
    record: str = ""
    measured: str = ""


CHOICES = (
    Choice(
        ("A table with categories", "or missing values?"),
        "TabularRegressor, TabularClassifier",
        "no argument needed; time_limit=60",
        f"{API}TabularRegressor.html",
    ),
    Choice(
        ("Standard deviations needed,", "or little data?"),
        "GaussianProcessRegressor, ...Classifier",
        "predict(X, return_std=True)",
        "gaussian_processes.html",
        "gp-million",
        "1,000,000 rows: 84 s; 94.8 % in 95 % intervals",
    ),
    Choice(
        ("Probabilities of classes?",),
        "KernelLogistic",
        "n_components=2_000; predict_proba",
        f"{API}KernelLogistic.html",
    ),
    Choice(
        ("A support vector machine?",),
        "KernelSVC",
        "C=1.0, or C=math.inf",
        "support_vector_machines.html",
        "svm-mnist",
        "MNIST, 20,000 features: 1.56 % wrong; 61 s",
    ),
    Choice(
        ("Part of a PyTorch network?",),
        "randkern.torch.FeatureMap",
        "a layer; rows may lie on a GPU",
        "gpu.html",
    ),
    Choice(
        ("At most some 20,000 rows?",),
        "KernelRidgeRegressorCV, ...ClassifierCV",
        "n_components=None: the exact kernel",
        f"{API}KernelRidgeRegressorCV.html",
        "ways-mnist",
        "10,000 rows of MNIST: 2.46 % wrong; 9 s",
    ),
    Choice(
        ("Few directions matter", "(images, spectra)?"),
        "KernelRidge...(features='nystrom')",
        "n_components=2_000 landmarks",
        f"{API}NystromFeatures.html",
        "ways-mnist",
        "MNIST, 3,000 landmarks: 2.34 % wrong; 13 s",
    ),
    Choice(
        ("More rows than memory,", "or a cluster?"),
        "RowBlocks, or a Dask array, to any fit",
        "n_components=10_000; solver='pcg'",
        f"{API}RowBlocks.html",
        "ridge-scaling",
        "1,000,000 rows, 2,048 features: 237 s; 0.6 GB",
    ),
    Choice(
        ("Anything else",),
        "KernelRidgeRegressor, ...Classifier",
        "n_components=10_000",
        f"{API}KernelRidgeRegressor.html",
        "ways-mnist",
        "60,000 rows of MNIST: 2.37 % wrong; 11 s",
    ),
)


def fitting(text: str, most: int, narrow: bool) -> str:
    """Return the attribute that keeps a long text in its box, whatever the font."""
    return ' textLength="320" lengthAdjust="spacingAndGlyphs"' * (
        narrow and len(text) > most
    )


def answer(choice: Choice, x: int, middle: int, narrow: bool) -> str:
    """Write what to use, with which arguments, and what was measured of it."""
    size = 14 if narrow else 15
    lines = [
        (choice.answer, ACCENT, 34, f'font-weight="600" font-size="{size + 2}"'),
        (choice.arguments, INK, 40, f'font-size="{size}"'),
        (choice.measured, INK, 46, f'font-size="{size}" font-style="italic"'),
    ]
    lines = [line for line in lines if line[0]]
    first = middle + 6 - 12 * (len(lines) - 1)
    return "".join(
        f'<text x="{x}" y="{first + 24 * k}" fill="{colour}" {font}'
        f"{fitting(text, most, narrow)}>{escape(text)}</text>"
        for k, (text, colour, most, font) in enumerate(lines)
    )


def chart(choices: tuple[Choice, ...] = CHOICES, narrow: bool = False) -> str:
    """Draw questions one below the other, each with what to use to its right.

    For a phone, `narrow`, the answer is below its question.
    """
    box, gap, width = 84, 16, 400 if narrow else 860
    height, left = (2 * (box + gap), 44) if narrow else (box + gap, 430)
    wide, stem = (width - 8, 20) if narrow else (300, 40)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} '
        f'{height * len(choices)}" role="img" aria-label="Which class to use" '
        'font-family="Helvetica, Arial, sans-serif" font-size="17">'
        "<title>Which class to use</title>"
    ]
    for row, choice in enumerate(choices):
        top = row * height + gap // 2
        below = top + box + gap if narrow else top
        middle = top + box // 2
        parts.append(
            f'<rect x="4" y="{top}" width="{wide}" height="{box}" rx="10" '
            f'fill="{WHITE}" stroke="{LINE}"/>'
        )
        first = middle + 6 - 11 * (len(choice.question) - 1)
        parts += [
            f'<text x="20" y="{first + 22 * k}" fill="{INK}">{escape(line)}</text>'
            for k, line in enumerate(choice.question)
        ]
        line, head = f"M{wide + 4} {middle} H{left - 8}", f"M{left - 8} {middle - 6} "
        head, yes = head + "l8 6 l-8 6 z", (left - 84, middle - 8)
        if narrow:
            line, yes = f"M{left + 30} {top + box} V{below - 8}", (left + 44, below - 3)
            head = f"M{left + 24} {below - 8} l6 8 l6 -8 z"
        parts.append(
            f'<path d="{line}" stroke="{LINE}" stroke-width="2"/>'
            f'<path d="{head}" fill="{LINE}"/>'
        )
        if row < len(choices) - 1:
            parts.append(
                f'<text x="{yes[0]}" y="{yes[1]}" fill="currentColor" '
                f'font-size="14">yes</text><path d="M{stem} {top + box} '
                f'V{top + height}" stroke="{LINE}" stroke-width="2"/>'
                f'<text x="{stem + 8}" y="{top + height - 3}" fill="currentColor" '
                'font-size="14">no</text>'
            )
        parts.append(
            f'<a href="{choice.page}" style="text-decoration: none">'
            f'<rect x="{left}" y="{below}" width="{width - left - 4}" height="{box}" '
            f'rx="10" fill="{PALE}" stroke="{ACCENT}"/>'
            + answer(choice, left + 16, below + box // 2, narrow)
            + "</a>"
        )
    return "".join(parts) + "</svg>\n"


def svg(width: int, height: int, title: str, parts: list[str]) -> str:
    """Put parts together to a drawing with a title for those who do not see it."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{title}" font-family="Helvetica, Arial, sans-serif" '
        f'font-size="15"><title>{title}</title>{"".join(parts)}</svg>\n'
    )


def box(x: int, y: int, width: int, height: int, name: str, note: str = "") -> str:
    """Draw a box with a name, and below it what it does."""
    middle, lines = x + width // 2, [name, *filter(None, note.split("\n"))]
    first = y + height // 2 + 5 - 9 * (len(lines) - 1)
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" '
        f'fill="{PALE}" stroke="{ACCENT}"/>'
    ) + "".join(
        f'<text x="{middle}" y="{first + 18 * k}" text-anchor="middle" '
        + (
            f'fill="{INK}" font-size="13"'
            if k
            else f'fill="{ACCENT}" font-weight="600"'
        )
        + f">{escape(line)}</text>"
        for k, line in enumerate(lines)
    )


def arrow(x: int, y: int, end: int, across: bool = False) -> str:
    """Draw an arrow down to a height, or across, to the left."""
    line, head = f"V{end - 8}", f"M{x - 6} {end - 8} l6 8 l6 -8 z"
    if across:
        line, head = f"H{end + 8}", f"M{end + 8} {y - 6} l-8 6 l8 6 z"
    return (
        f'<path d="M{x} {y} {line}" stroke="{LINE}" stroke-width="2"/>'
        f'<path d="{head}" fill="{LINE}"/>'
    )


def read_floors() -> dict[int, list[str]]:
    """Return the rooms of each floor, as the table of the architecture has them."""
    found: dict[int, list[str]] = {}
    text = (HERE / "architecture.md").read_text(encoding="utf-8")
    for floor, rooms in re.findall(r"^\| (\d+) \| ([^|]+) \|", text, re.M):
        found.setdefault(int(floor), []).extend(re.findall(r"`(\w+)`", rooms))
    return found


def floors(width: int = 480) -> str:
    """Draw the floors, the highest above, with their rooms."""
    parts, y = [], 0
    for floor, rooms in sorted(read_floors().items(), reverse=True):
        x, top = 48, y + 8
        for room in rooms:
            wide = 20 + 9 * len(room)
            if x + wide > width - 8:
                x, top = 48, top + 42
            parts.append(box(x, top, wide, 34, room))
            x += wide + 8
        parts.append(
            f'<text x="24" y="{(y + top + 42) // 2 + 9}" fill="currentColor" '
            f'text-anchor="middle" font-weight="600">{floor}</text>'
        )
        y = top + 42
        if floor:
            parts.append(f'<path d="M8 {y} H{width - 8}" stroke="{LINE}"/>')
    return svg(width, y + 4, "The floors of the package, and the rooms on them", parts)


def fit() -> str:
    """Draw what a fit does with rows, from above."""
    steps = (
        ("rows", "arrays, memory maps, sparse matrices,\ntables, blocks of rows"),
        ("data", "a block of rows at a time"),
        ("evaluate(plan, X)", "features of the block"),
        ("sums over blocks", "Gram matrix, or product with features"),
        ("solver", "Cholesky, conjugate or stochastic gradients"),
        ("weights", "to predict: evaluate(plan, X) @ weights"),
    )
    parts, height, gap = [], 70, 20
    for row, (name, note) in enumerate(steps):
        top = 4 + row * (height + gap)
        parts.append(box(4, top, 270, height, name, note))
        if row < len(steps) - 1:
            parts.append(arrow(139, top + height, top + height + gap))
    second, third = (4 + row * (height + gap) for row in (1, 2))
    parts += [
        box(310, second, 86, height, "kernel", "draw(stream)"),
        arrow(353, second + height, third),
        box(310, third, 86, height, "plan", "of features"),
        arrow(310, third + height // 2, 274, across=True),
    ]
    high = len(steps) * (height + gap) - gap + 8
    return svg(400, high, "What a fit does with rows", parts)


def drawings() -> dict[str, str]:
    """Return all of them, by the names of their files."""
    charts = {"choose": chart(), "choose-narrow": chart(narrow=True), "fit": fit()}
    return {"logo": logo(), "logo-dark": logo(PALE), **charts, "floors": floors()}


def main() -> None:
    """Write the drawings."""
    for name, text in drawings().items():
        (IMAGES / f"{name}.svg").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
