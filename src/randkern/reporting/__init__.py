"""A self-contained HTML report on a fitted tabular model.

Names load on first use: scores need neither baselines nor the page.
"""

import importlib
from typing import Any

_MODULES = {
    "EvaluatedModel": ".scores",
    "Panel": ".page",
    "baselines": ".baseline_models",
    "contents": ".page",
    "evaluate": ".scores",
    "panels": ".page",
    "render": ".page",
    "report": ".public",
    "summarise": ".summary",
}

__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
