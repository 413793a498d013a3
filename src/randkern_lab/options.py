"""Options of scripts: one declaration sets default, help text and check."""

from collections.abc import Iterable
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any


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
    `among` are the names allowed, which are added to the help text; members of a tuple
    are put in their order, and numbers are sorted.
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
            value, quick = getattr(self, item.name), item.metadata["quick"]
            if self.quick and quick is not MISSING and value == item.default:
                value = quick
            _check(item, value)
            names = item.metadata["among"]
            if isinstance(value, tuple) and names:
                value = tuple(name for name in names if name in value)
            elif isinstance(value, tuple) and not any(
                isinstance(m, str) for m in value
            ):
                value = tuple(sorted(set(value)))
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


def _check(option: Field[Any], value: Any) -> None:
    """Raise if a name is unknown, or a number is too small or not finite."""
    least, names = option.metadata["least"], option.metadata["among"]
    members = value if isinstance(value, tuple) else (value,)
    if names and not members:
        raise ValueError(f"{option.name} must be some of {', '.join(names)}, got none")
    for member in members:
        if names and member not in names:
            listed = ", ".join(names)
            raise ValueError(f"{option.name} must be of {listed}, got {member!r}")
        if isinstance(member, bool) or not isinstance(member, int | float):
            continue
        if isinstance(member, int):
            bound = 1 if least is None else least
            allowed, expected = member >= bound, f"{bound:g} or more"
        elif least is None:
            allowed, expected = 0 < member < float("inf"), "a positive number"
        else:
            allowed = least <= member < float("inf")
            expected = f"finite and {least:g} or more"
        if not allowed:
            raise ValueError(f"{option.name} must be {expected}, got {member}")
