"""What notebooks show of a fitted model above scikit-learn's diagram."""

from __future__ import annotations

import html
from collections.abc import Iterable

_STYLE = """<style>
.randkern-summary td { padding: 0 0.6em; text-align: left; }
.randkern-summary .bar { background: #0072B2; height: 0.8em; display: inline-block; }
</style>"""


def summary_table(
    facts: Iterable[tuple[str, str]], shares: Iterable[tuple[str, float]] = ()
) -> str:
    """Return named texts, and shares as bars, as a table in HTML."""
    lines = [
        f"<tr><td>{name}</td><td><code>{html.escape(text)}</code></td></tr>"
        for name, text in facts
    ]
    lines += [
        f"<tr><td>{html.escape(name)}</td><td>"
        f'<span class="bar" style="width: {12 * share:.2f}em"></span> {share:.1%}'
        "</td></tr>"
        for name, share in shares
    ]
    return f'{_STYLE}<table class="randkern-summary">{"".join(lines)}</table>'
