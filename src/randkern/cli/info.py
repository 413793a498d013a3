"""``randkern info``: a summary of a model file."""

from pathlib import Path
from typing import Annotated, Any

import typer

from .console import output, printable

_MAX_NAMES = 20
_MAX_COLUMNS = 30
_MAX_IMPORTANCES = 5
# Letters of the bar of a column that explains all.
_BAR = 40


def command(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A file of randkern fit or save.")
    ],
    importances: Annotated[
        bool,
        typer.Option(
            "--importances",
            help="Compute the importances of columns if the file lacks them, which may "
            "take a minute.",
        ),
    ] = False,
) -> None:
    """Show a model: its columns, their importances, and its code."""
    import randkern

    fitted = randkern.load(model)
    console = output()
    for text in (*_lines(fitted, model.stat().st_size), *_shares(fitted, importances)):
        # Names in the file of a stranger may not write to the terminal.
        for line in text.split("\n"):
            console.print(printable(line), soft_wrap=True)


def _lines(fitted: Any, n_bytes: int) -> Any:
    yield f"{fitted!r}, {n_bytes / 1e6:,.1f} MB"
    if hasattr(fitted, "time_limit"):
        yield f"time limit: {fitted.time_limit:g} s"
    names = getattr(fitted, "feature_names_in_", None)
    n_columns = getattr(fitted, "n_features_in_", None)
    if n_columns is None:
        if hasattr(fitted, "fit"):  # a kernel has none
            yield "not fitted"
        return
    schema = getattr(fitted, "table_schema_", None)
    if names is not None and schema is not None:
        yield from _columns_as_read(names, schema)
    else:
        shown = (
            "" if names is None else ": " + ", ".join(map(_quoted, names[:_MAX_NAMES]))
        )
        more = ", ..." if names is not None and len(names) > _MAX_NAMES else ""
        yield f"{n_columns:,} columns{shown}{more}"
    if hasattr(fitted, "classes_"):
        labels = [_quoted(label) for label in fitted.classes_[:_MAX_NAMES]]
        yield f"{len(fitted.classes_):,} classes: {', '.join(labels)}"
    if hasattr(fitted, "model_"):
        for member in fitted.model_.members:
            part = member.to_estimator(fitted.model_.unit)
            yield f"\nweight {member.weight:.2f}:\n{part!r}"


def _shares(fitted: Any, compute: bool) -> Any:
    """Yield lines with the importances of columns, if the model has any."""
    values = vars(fitted)
    shares = values.get("feature_importances_", values.get("_importances"))
    if shares is None and "_importances" in values:  # a model of tables
        if not compute:
            yield "\nimportances: not stored; --importances computes them"
            return
        shares = fitted.feature_importances_
    if shares is None:
        return
    names = getattr(fitted, "feature_names_in_", range(len(shares)))
    best = sorted(range(len(shares)), key=lambda j: -shares[j])[:_MAX_IMPORTANCES]
    best = [j for j in best if shares[j] > 0]
    shown = [_quoted(names[j]) for j in best]
    width = max(map(len, shown), default=0)
    yield "\nimportances:"
    for name, share in zip(shown, shares[best], strict=True):
        bar = "#" * round(_BAR * share)
        yield f"  {name:{width}}  {share:4.0%}  {bar}".rstrip()


def _quoted(name: Any) -> str:
    """Return a name, in quotes if it has line ends, or spaces around it."""
    text = str(name)
    return text if text == text.strip() and text.isprintable() else repr(text)


def _columns_as_read(names: Any, schema: Any) -> Any:
    """Yield the types of columns, and how another fit takes others."""
    yield (
        f"{len(names):,} columns, as they were read (another randkern fit may take "
        "--categorical, --numeric or --drop):"
    )
    width = max(len(_quoted(name)) for name in names[:_MAX_COLUMNS])
    for name in names[:_MAX_COLUMNS]:
        text = schema.kinds[name]
        if unit := schema.units.get(name):
            text += f" in {unit}"
        if share := schema.missing_shares.get(name, 0.0):
            text += f", {share:.1%} missing" if share >= 0.001 else ", <0.1% missing"
        if texts := schema.placeholders(name):
            text += f" (also {texts})"
        yield f"  {_quoted(name):{width}}  {text}"
    if len(names) > _MAX_COLUMNS:
        yield f"  and {len(names) - _MAX_COLUMNS:,} more"
