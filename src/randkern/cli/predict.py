"""``randkern predict``: a model's predictions for the rows of a table."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from randkern._extras import import_extra

from .console import output
from .tables import opened, read

# New categories, and unknown columns, that a warning names.
_MAX_SHOWN = 3
_MAX_NAMES = 10
_SUFFIXES = (".csv", ".csv.gz", ".parquet")
# Of predictions in texts: those of float64 that do not depend on the other rows.
_DIGITS = "%.12g"


def command(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A file of randkern fit or save.")
    ],
    data: Annotated[
        str,
        typer.Argument(
            metavar="ROWS",
            help="A table with the columns that the model was fitted to; - for "
            "standard input.",
        ),
    ],
    out: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="A .csv or .parquet file; - for standard output."
        ),
    ] = "-",
    interval: Annotated[
        float | None,
        typer.Option(
            metavar="COVERAGE",
            help="Add the columns low and high, an interval with this coverage (0.9).",
        ),
    ] = None,
    probabilities: Annotated[
        bool, typer.Option(help="Add the probability of each class.")
    ] = False,
    id_column: Annotated[
        str | None,
        typer.Option("--id", metavar="COLUMN", help="Write this column of ROWS first."),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Write all columns of ROWS first.")
    ] = False,
) -> None:
    """Predict the rows of a table, in their order.

    Writes the column prediction; with --interval also low and high, with
    --probabilities a column per class.
    """
    import pandas as pd

    import randkern
    from randkern.datasets import TableFormat
    from randkern.deployment import as_fitted, known_levels, schema_of

    _check_out(out)
    fitted = randkern.load(model)
    _check_fitted(fitted, interval, probabilities)
    schema = schema_of(fitted)
    with opened(data, TableFormat() if schema is None else schema.form) as path:
        ids = [] if id_column is None else [id_column]
        # Models fitted in Python may know texts with spaces around them.
        rows, frame = read(path, schema, ids, hasattr(fitted, "table_schema_"))
        if missing := {*ids} - {*rows.columns}:
            raise ValueError(
                f"--id: {path} has no column {missing.pop()!r}; it has "
                f"{', '.join(map(repr, rows.columns[:20]))}"
            )
        named = frame.columns.difference(ids, sort=False)
        frame = _columns(fitted, frame, path)
        if not keep:
            _warn_of_others(named, frame.columns, schema)
        frame = as_fitted(fitted, frame)
        _check_numbers(schema, frame)
        _warn_of_new_values(schema, known_levels(fitted), frame)
        predictions = _predictions(fitted, frame, interval, probabilities)
    kept = rows if keep else rows[ids]
    twice = [name for name in kept.columns if name in predictions.columns]
    predictions = predictions.rename(columns={name: f"{name} (new)" for name in twice})
    predictions = pd.concat([kept.reset_index(drop=True), predictions], axis=1)
    _write(predictions, out)
    if out != "-":
        output().print(f"wrote {len(predictions):,} predictions to {out}")


def _check_out(out: str) -> None:
    """Raise if predictions could not be written, before computing any."""
    from .._files import check_writable

    path = Path(out)
    if out == "-":
        return
    if path.is_dir():
        raise ValueError(f"--out {out} is a folder, expected a file; name a file in it")
    if not out.lower().endswith(_SUFFIXES):
        raise ValueError(f"--out takes a .csv or .parquet file, or -, got {out!r}")
    if not path.parent.is_dir():
        raise ValueError(f"the folder of --out {out} does not exist; create it")
    if out.lower().endswith(".parquet"):
        import_extra("pyarrow", "Writing a Parquet file", "data")
    check_writable(path.parent)


def _check_fitted(fitted: Any, interval: float | None, probabilities: bool) -> None:
    """Raise if an estimator does not predict what is asked for."""
    from sklearn.utils.validation import check_is_fitted

    name = type(fitted).__name__
    if not hasattr(fitted, "predict"):
        raise ValueError(
            f"the file holds a {name}, which cannot predict; pass the file of a "
            "fitted regressor or classifier"
        )
    check_is_fitted(fitted)
    if interval is not None and not hasattr(fitted, "predict_interval"):
        raise ValueError(
            f"{name} has no intervals; omit --interval"
            + (", use --probabilities" if hasattr(fitted, "predict_proba") else "")
        )
    if probabilities and not hasattr(fitted, "predict_proba"):
        raise ValueError(f"{name} does not predict probabilities; omit --probabilities")


def _columns(fitted: Any, frame: Any, data: str) -> Any:
    """Return the columns that the model was fitted to, in that order.

    Those of a model that was fitted to an array have no names: all are taken.
    """
    names = getattr(fitted, "feature_names_in_", None)
    if names is None:
        n = getattr(fitted, "n_features_in_", frame.shape[1])
        if frame.shape[1] != n:
            raise ValueError(
                f"the model was fitted to an array of {n:,} columns without names, but "
                f"{data} has {frame.shape[1]:,}: "
                f"{', '.join(map(str, frame.columns[:20]))}; keep only those of the "
                "fit, in the same order"
            )
        return frame
    missing = [str(name) for name in names if name not in frame.columns]
    if missing:
        lower = {str(name).lower() for name in frame.columns}
        alike = lower.issuperset(name.lower() for name in missing)
        raise ValueError(
            f"{data} lacks {len(missing)} of the {len(names)} columns that the model "
            f"was fitted to: {', '.join(map(repr, missing[:10]))}; it has "
            f"{', '.join(repr(str(name)) for name in frame.columns[:20])}"
            + alike
            * "; the names differ only in upper and lower case"
        )
    return frame[list(names)]


def _warn_of_others(names: Any, fitted_to: Any, schema: Any) -> None:
    """Warn of columns that the table of the fit did not have."""
    from .._warnings import warn

    read = () if schema is None else (*schema.kinds, *schema.form.drop)
    known = {*fitted_to, *read}
    others = [str(name) for name in names if name not in known]
    if others:
        more = len(others) - _MAX_NAMES
        warn(
            "ignored columns that the model was not fitted to: "
            + ", ".join(map(repr, others[:_MAX_NAMES]))
            + f" and {more:,} more" * (more > 0),
            UserWarning,
        )


def _check_numbers(schema: Any, frame: Any) -> None:
    """Raise for a text in a column that held numbers at the fit."""
    from .._tables import is_numeric, no_numbers

    for name, kind in ({} if schema is None else schema.kinds).items():
        if kind == "number" and name in frame.columns and not is_numeric(frame[name]):
            raise ValueError(
                f"column {name!r} holds numbers in the table that the model was fitted "
                f"to, but {no_numbers(frame[name])}; fix or clear this value"
            )


def _warn_of_new_values(schema: Any, levels: Any, frame: Any) -> None:
    """Warn of categories, and of missing values, that a column did not have."""
    from .._warnings import warn

    n = len(frame)
    for name, known in levels.items():
        column = frame[name]
        new = column[column.notna() & ~column.isin(list(known))]
        if len(new):
            shown = ", ".join(map(repr, new.unique()[:_MAX_SHOWN]))
            warn(
                f"column {name!r}: {len(new):,} of {n:,} rows {_have(len(new))} a "
                f"category that the model has not seen ({shown})",
                UserWarning,
            )
    n_missing_of = frame.isna().sum()
    for name in () if schema is None else schema.kinds:
        n_missing = int(n_missing_of.get(name, 0))
        if n_missing and not schema.missing_shares.get(name):
            warn(
                f"column {name!r}: {n_missing:,} of {n:,} rows {_have(n_missing)} no "
                "value, and none was missing when the model was fitted",
                UserWarning,
            )


def _have(n: int) -> str:
    return "has" if n == 1 else "have"


def _predictions(
    fitted: Any, frame: Any, interval: float | None, probabilities: bool
) -> Any:
    """Return one column per requested quantity and target."""
    import pandas as pd

    rows = frame if hasattr(fitted, "feature_names_in_") else frame.to_numpy()
    predictions = _point_predictions(fitted, rows)
    if interval is not None:
        bounds = fitted.predict_interval(rows, coverage=interval)
        predictions |= _per_target("low", bounds[..., 0])
        predictions |= _per_target("high", bounds[..., 1])
    if probabilities:
        shares = fitted.predict_proba(rows)
        for label, column in zip(fitted.classes_, shares.T, strict=True):
            predictions[f"probability of {label}"] = column
    return pd.DataFrame(predictions)


def _point_predictions(fitted: Any, rows: Any) -> dict[str, Any]:
    """Return columns of predictions, one per target or per quantile."""
    values = fitted.predict(rows)
    quantiles = getattr(fitted, "quantiles", None)
    if quantiles is None or values.ndim == 1:
        return _per_target("prediction", values)
    names = [f"quantile {quantile:g}" for quantile in quantiles]
    return dict(zip(names, values.T, strict=True))


def _per_target(name: str, values: Any) -> dict[str, Any]:
    """Return columns by name, numbered from 1 if there are several targets."""
    if values.ndim == 1 or values.shape[1] == 1:
        return {name: values.reshape(-1)}
    return {f"{name} {at}": column for at, column in enumerate(values.T, start=1)}


def _write(predictions: Any, out: str) -> None:
    from .._files import atomic_write

    if out == "-":
        predictions.to_csv(sys.stdout, index=False, float_format=_DIGITS)
        return
    with atomic_write(out) as file:
        if out.lower().endswith(".parquet"):
            predictions.to_parquet(file, index=False)
        else:
            packed = "gzip" if out.lower().endswith(".gz") else None
            predictions.to_csv(
                file, index=False, compression=packed, float_format=_DIGITS
            )
