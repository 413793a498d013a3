"""``randkern predict``: a model's predictions for the rows of a table."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .console import output, user_messages
from .tables import read

__all__ = ["command"]


def command(
    model: Annotated[Path, typer.Argument(help="A file of randkern fit or save.")],
    data: Annotated[
        str,
        typer.Argument(help="A table with the columns that the model was fitted to."),
    ],
    out: Annotated[
        str, typer.Option(help="A .csv or .parquet file; - for standard output.")
    ] = "-",
    interval: Annotated[
        float | None,
        typer.Option(help="Add low and high, which hold the target so often (0.9)."),
    ] = None,
    probabilities: Annotated[
        bool, typer.Option(help="Add the probability of each class.")
    ] = False,
) -> None:
    """Predict the rows of a table, in their order.

    Writes a column ``prediction``; with --interval ``low`` and ``high``, with
    --probabilities a column per class.
    """
    with user_messages():
        import randkern
        from randkern.datasets.frames import dates_as_days

        fitted = randkern.load(model)
        frame = dates_as_days(_columns(fitted, read(data), data), _texts(fitted))
        predictions = _predictions(fitted, frame, interval, probabilities)
        _write(predictions, out)
    if out != "-":
        output().print(f"wrote {len(predictions):,} predictions to {out}")


def _texts(fitted: Any) -> set[str]:
    """Return the columns that the model takes as categories."""
    first = fitted.steps[0][1] if hasattr(fitted, "steps") else fitted
    if hasattr(first, "model_"):
        first = first.model_.members[0].encoder
    names = getattr(first, "feature_names_in_", ())
    return {names[j] for j in getattr(first, "_categories", ())}


def _columns(fitted: Any, frame: Any, data: str) -> Any:
    """Return the columns that the model was fitted to, in that order."""
    names = getattr(fitted, "feature_names_in_", None)
    if names is None:
        return frame.to_numpy()
    missing = [str(name) for name in names if name not in frame.columns]
    if missing:
        raise ValueError(
            f"{data} lacks {len(missing)} of the {len(names)} columns that the model "
            f"was fitted to: {', '.join(missing[:10])}; it has "
            f"{', '.join(map(str, frame.columns[:20]))}"
        )
    return frame[list(names)]


def _predictions(
    fitted: Any, frame: Any, interval: float | None, probabilities: bool
) -> Any:
    import pandas as pd

    found = pd.DataFrame({"prediction": fitted.predict(frame)})
    if interval is not None:
        if not hasattr(fitted, "predict_interval"):
            raise ValueError(
                f"{type(fitted).__name__} has no intervals; leave --interval out"
                + (", use --probabilities" if hasattr(fitted, "predict_proba") else "")
            )
        bounds = fitted.predict_interval(frame, coverage=interval)
        found["low"], found["high"] = bounds.T
    if probabilities:
        if not hasattr(fitted, "predict_proba"):
            raise ValueError(
                f"{type(fitted).__name__} has no probabilities; leave --probabilities "
                "out"
            )
        shares = fitted.predict_proba(frame)
        for label, column in zip(fitted.classes_, shares.T, strict=True):
            found[f"probability of {label}"] = column
    return found


def _write(predictions: Any, out: str) -> None:
    if out == "-":
        predictions.to_csv(sys.stdout, index=False)
    elif out.lower().endswith(".parquet"):
        predictions.to_parquet(out, index=False)
    elif out.lower().endswith((".csv", ".csv.gz")):
        predictions.to_csv(out, index=False)
    else:
        raise ValueError(f"--out takes a .csv or .parquet file, or -, got {out!r}")
