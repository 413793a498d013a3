"""A self-contained HTML report on a fitted tabular model.

Names load on first use: scores need neither baselines nor the page.
"""

from randkern._lazy import loader

_MODULES = {
    "EvaluatedModel": ".scores",
    "Panel": ".page",
    "baselines": ".baseline_models",
    "contents": ".page",
    "evaluate": ".scores",
    "logarithm_advice": ".learning_curve",
    "panels": ".page",
    "render": ".page",
    "report": ".public",
    "summarise": ".summary",
}

__all__ = list(_MODULES)
__getattr__ = loader(__name__, _MODULES)
