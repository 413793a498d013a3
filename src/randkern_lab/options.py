"""Options of scripts: one declaration sets default, help text and check."""

from collections.abc import Iterable
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias

from randkern.cli.options import parse_sizes

Sizes: TypeAlias = tuple[int, ...]
Names: TypeAlias = tuple[str, ...]


def option(
    default: Any,
    text: str,
    *,
    quick: Any = MISSING,
    least: float | None = None,
    among: Iterable[str] = (),
) -> Any:
    """Declare an option of a script: a field of its dataclass.

    `text` is the help text of the command, and `quick` the value in a quick run if the
    option is left at its default. `least` is the smallest number allowed, also for
    every member of a tuple; by default integers are at least 1, other numbers positive.
    `among` are the names allowed, which are added to the help text. Members of a tuple
    may be given as a text, separated by commas; names are put in the order of `among`,
    and numbers are sorted.
    """
    names = tuple(among)
    if names:
        text = f"{text} Of {', '.join(names)}.".strip()
    metadata = {"text": text, "quick": quick, "least": least, "among": names}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class CommonOptions:
    """Common options of all scripts."""

    quick: bool = option(
        False,
        "A smoke run (minutes at most): small sizes, bundled data where possible.",
    )
    seed: int = option(0, "Of every random draw.", least=0)
    out: Path | None = option(
        None, "Directory for results.json and figures; default: one of this name."
    )

    def __post_init__(self) -> None:
        """Substitute small sizes in a quick run; sort and check all values."""
        for item in fields(self):
            value, default = getattr(self, item.name), item.default
            if isinstance(default, tuple):
                value, default = _members(item, value), _members(item, default)
            quick = item.metadata["quick"]
            if self.quick and quick is not MISSING and value == default:
                value = quick
            _check(item, value)
            object.__setattr__(self, item.name, value)

    def arguments(self) -> dict[str, Any]:
        """Return the values as JSON: tuples as lists, and DIR for private paths.

        Where the results are written does not change them.
        """
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        del values["out"]
        for name, value in values.items():
            if isinstance(value, Path):
                values[name] = "DIR"
            elif isinstance(value, tuple):
                values[name] = list(value)
        return values


@dataclass(frozen=True)
class DataOptions(CommonOptions):
    """Options for data sets in files."""

    data_dir: Path | None = option(
        None, "Directory of the data sets' files, or of folders with them."
    )


def _members(option: Field[Any], value: Any) -> tuple[Any, ...]:
    """Return the distinct members of a tuple, or of a text, in order."""
    flag, names = "--" + option.name.replace("_", "-"), option.metadata["among"]
    default: Any = option.default
    kind = type(default[0]) if default else str
    if isinstance(value, str) and kind is int:
        value = parse_sizes(value, flag)
    elif isinstance(value, str):
        texts = [text.strip() for text in value.split(",") if text.strip()]
        try:
            value = [kind(text) for text in texts]
        except ValueError as error:
            raise ValueError(
                f"{flag} takes numbers separated by commas, got {value!r}; for "
                "instance 0.1,1,10"
            ) from error
    if kind is not str:
        return tuple(sorted(set(value)))
    known = {name: place for place, name in enumerate(names)}
    return tuple(sorted(dict.fromkeys(value), key=lambda name: known.get(name, 0)))


def _check(option: Field[Any], value: Any) -> None:
    """Raise if a name is unknown, or a number is too small or not finite."""
    least, names = option.metadata["least"], option.metadata["among"]
    listed = ", ".join(names)
    if names and value == ():
        raise ValueError(f"{option.name} must be some of {listed}, got none")
    for member in value if isinstance(value, tuple) else (value,):
        if names and member not in names:
            raise ValueError(f"{option.name} must be of {listed}, got {member!r}")
        if isinstance(member, bool) or not isinstance(member, int | float):
            continue
        positive = least is None and isinstance(member, float)
        bound = 1 - positive if least is None else least
        if not bound <= member < float("inf") or (positive and member == 0):
            expected = "a positive number" if positive else f"{bound:g} or more"
            raise ValueError(f"{option.name} must be {expected}, got {member}")
