"""Code of a model, shortened for a reader."""

from __future__ import annotations

import io
import re
import tokenize

_WIDTH = 88
# Longer lists of numbers are abbreviated.
_MAX_NUMBERS = 40


def shortened(code: str) -> str:
    """Return code with floats of four digits, short lists, and lines of 88 letters.

    Of long lists, such as the rows of a matrix, the first and the last numbers are
    left, with an ellipsis between them.
    """
    code = re.sub(
        r"\b\d+\.\d{4,}(?:e[+-]?\d+)?\b", lambda number: f"{float(number[0]):.4g}", code
    )
    code = re.sub(r"\[[-+\d.e,\s\[\]]*\]", _abbreviated, code)
    return "\n".join(_wrapped(line) for line in code.splitlines())


def _abbreviated(match: re.Match[str]) -> str:
    numbers = match[0]
    if numbers.count(",") < _MAX_NUMBERS:
        return numbers
    rows = numbers.count("[") - 1
    if rows > 1:  # a matrix
        first = numbers[2 : numbers.index("]")].split(", ")
        return f"[[{', '.join(first[:3])}, ...], ...]"
    row = numbers[1:-1].split(", ")
    return f"[{', '.join(row[:3])}, ..., {row[-1]}]"


def _wrapped(line: str) -> str:
    """Break a long line behind commas in brackets."""
    depth, commas = 0, []
    for token in tokenize.generate_tokens(io.StringIO(line).readline):
        depth += (token.string in {"(", "[", "{"}) - (token.string in {")", "]", "}"})
        if token.string == "," and depth:
            commas.append(token.end[1])
    lines, start, indent = [], 0, ""
    while len(line) - start > _WIDTH - len(indent):
        end = start + _WIDTH - len(indent)
        fitting = [comma for comma in commas if start < comma <= end]
        if not fitting:
            break
        lines.append(indent + line[start : fitting[-1]])
        start, indent = fitting[-1] + 1, "    "
    return "\n".join([*lines, indent + line[start:]])
