"""Formulas of docstrings, in Unicode for a terminal, as LaTeX for pages."""

from __future__ import annotations

import re

POWERS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻ⁿᵐᵀ", [*"0123456789-nm", r"\top"], strict=True))
LETTERS = {"ŷ": r"\hat y", "σ̂": r"\hat\sigma", "½": r"\tfrac12 "}
SIGNS = {"Σ": r"\sum", "·": r"\cdot ", "−": "-", "≥": r"\ge ", "≤": r"\le "}
SIGNS |= {"Π": r"\prod ", "∘": r"\circ ", "τ": r"\tau ", "ω": r"\omega "}
SIGNS |= {"₂F₁": r"{}_2F_1", "∈": r"\in ", "≈": r"\approx ", "→": r"\to "}
SIGNS |= {"₁": "_1"}
FUNCTIONS = r"exp|log|min|max|cos|sin"
NAMES = r"Var|Re|conj|clip|round"
# An indented paragraph with one of these is a formula.
MATHEMATICAL = re.compile(r"[ΣΠ√²½‖≥≤·₂]|⁻¹")


def latex(text: str) -> str:
    r"""Return a formula in Unicode as LaTeX; words of it are set as text.

    >>> print(latex("min Σ_i s_i ρ_τ(y_i − b) + ½‖w‖²"))
    \min \sum_i s_i ρ_τ(y_i - b) + \tfrac12 \lVert w\rVert ^{2}
    >>> print(latex("√(x² + noise)"))
    \sqrt{x^{2} +\text{ noise}}
    """
    text = re.sub(rf"(?<![A-Za-z\\])({FUNCTIONS})(?![A-Za-z])", r"\\\1", text)
    text = re.sub(rf"(?<![A-Za-z\\])({NAMES})(?![A-Za-z])", r"\\operatorname{\1}", text)
    words = r" ?(?<![\\A-Za-z_{])[a-z]{2,}(?: [a-z]{2,})*(?![A-Za-z}]) ?"
    text = re.sub(words, lambda found: rf"\text{{{found[0]}}}", text)
    for sign, command in (LETTERS | SIGNS).items():
        text = text.replace(sign, command)
    powers = "".join(POWERS)
    text = re.sub(
        f"[{powers}]+",
        lambda found: "^{" + "".join(POWERS[sign] for sign in found[0]) + "}",
        text,
    )
    text = re.sub(r"_([A-Za-z]{2})(?![A-Za-z])", r"_{\1}", text)
    text = re.sub(r"(?<![A-Za-z])‖([^‖]*)‖", r"\\lVert \1\\rVert ", text)
    return roots(text)


def roots(text: str) -> str:
    """Replace √(...) by a root over what the parentheses hold."""
    while (start := text.find("√(")) >= 0:
        depth, end = 1, start + 2
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        text = text[:start] + r"\sqrt{" + text[start + 2 : end - 1] + "}" + text[end:]
    return re.sub(r"√(\w)", r"\\sqrt{\1}", text)


def show(lines: list[str]) -> list[str]:
    """Return a docstring with its indented formulas as directives."""
    paragraphs = re.split(r"\n{2,}", "\n".join(lines))
    for k, paragraph in enumerate(paragraphs):
        parts = paragraph.split("\n")
        indented = all(part.startswith("    ") for part in parts)
        follows = k and not paragraphs[k - 1].rstrip().endswith("::")
        if indented and follows and MATHEMATICAL.search(paragraph) and is_bare(parts):
            formula = r" \\ ".join(latex(part.strip()) for part in parts)
            paragraphs[k] = f".. math:: {formula}"
    return "\n\n".join(paragraphs).split("\n")


def is_bare(parts: list[str]) -> bool:
    """Whether a paragraph is neither an example nor a list of a section."""
    return not any(">>>" in part or re.match(r"\s+\S+ : ", part) for part in parts)
