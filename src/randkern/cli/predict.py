"""``randkern predict``: a model's predictions for the rows of a table."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from randkern._extras import import_extra

from .console import output, progress_bar, user_messages
from .tables import naming, read

_SUFFIXES = (".csv", ".csv.gz", ".parquet")
# Rows predicted per step of the progress bar.
_BLOCK = 10_000


def command(
    model: Annotated[Path, typer.Argument(help="A file of randkern fit or save.")],
    data: Annotated[
        str,
        typer.Argument(
            help="A table with the columns that the model was fitted to; - for "
            "standard input."
        ),
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
        from randkern.deployment import as_fitted, schema_of

        _check_out(out)
        fitted = randkern.load(model)
        with naming(data):
            frame = _columns(fitted, read(data, schema_of(fitted)), data)
            frame = as_fitted(fitted, frame)
            predictions = _predictions(fitted, frame, interval, probabilities)
        _write(predictions, out)
    if out != "-":
        output().print(f"wrote {len(predictions):,} predictions to {out}")


def _check_out(out: str) -> None:
    """Raise if predictions could not be written, before computing any."""
    path = Path(out)
    if out == "-":
        return
    if path.is_dir():
        raise ValueError(f"--out {out} is a folder; name a file in it")
    if not out.lower().endswith(_SUFFIXES):
        raise ValueError(f"--out takes a .csv or .parquet file, or -, got {out!r}")
    if not path.parent.is_dir():
        raise ValueError(f"--out {out}: there is no folder {path.parent}; make it")
    if out.lower().endswith(".parquet"):
        import_extra("pyarrow", "Writing a Parquet file", "data")


def _columns(fitted: Any, frame: Any, data: str) -> Any:
    """Return the columns that the model was fitted to, in that order."""
    names = getattr(fitted, "feature_names_in_", None)
    if names is None:
        return frame.to_numpy()
    missing = [str(name) for name in names if name not in frame.columns]
    if missing:
        stripped = {str(name).strip() for name in frame.columns}
        padded = stripped.issuperset(name.strip() for name in missing)
        raise ValueError(
            f"{data} lacks {len(missing)} of the {len(names)} columns that the model "
            f"was fitted to: {', '.join(map(repr, missing[:10]))}; it has "
            f"{', '.join(repr(str(name)) for name in frame.columns[:20])}"
            + padded
            * "; remove the spaces around names, or fit with --strip"
        )
    return frame[list(names)]


def _predictions(
    fitted: Any, frame: Any, interval: float | None, probabilities: bool
) -> Any:
    """Return one column per requested quantity."""
    import numpy as np
    import pandas as pd

    if interval is not None and not hasattr(fitted, "predict_interval"):
        raise ValueError(
            f"{type(fitted).__name__} has no intervals; leave --interval out"
            + (", use --probabilities" if hasattr(fitted, "predict_proba") else "")
        )
    if probabilities and not hasattr(fitted, "predict_proba"):
        raise ValueError(
            f"{type(fitted).__name__} has no probabilities; leave --probabilities out"
        )

    def columns(rows: Any) -> pd.DataFrame:
        found = {"prediction": fitted.predict(rows)}
        if interval is not None:
            bounds = fitted.predict_interval(rows, coverage=interval)
            found["low"], found["high"] = np.transpose(bounds)
        if probabilities:
            shares = fitted.predict_proba(rows)
            for label, column in zip(fitted.classes_, shares.T, strict=True):
                found[f"probability of {label}"] = column
        return pd.DataFrame(found)

    n, parts = len(frame), []
    with progress_bar() as report:
        for start in range(0, max(n, 1), _BLOCK):
            report(start, n, "rows predicted")
            try:
                parts.append(columns(frame[start : start + _BLOCK]))
            except ValueError:
                columns(frame)  # so that errors count rows from the start of the file
                raise
    return pd.concat(parts, ignore_index=True)


def _write(predictions: Any, out: str) -> None:
    if out == "-":
        predictions.to_csv(sys.stdout, index=False)
    elif out.lower().endswith(".parquet"):
        predictions.to_parquet(out, index=False)
    else:
        predictions.to_csv(out, index=False)
