"""Options of scripts: one declaration sets default, help text and check."""

from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any


def option(
    default: Any, text: str, *, quick: Any = MISSING, least: float | None = None
) -> Any:
    """Declare an option of a script: a field of its dataclass.

    `text` is the help text of the command, `quick` the value in a quick run if the
    option is left at its default, and `least` the smallest number allowed, also for
    every member of a tuple; by default integers are at least 1, other numbers positive.
    """
    return field(
        default=default, metadata={"text": text, "quick": quick, "least": least}
    )


@dataclass(frozen=True)
class CommonOptions:
    """Common options of all scripts."""

    quick: bool = option(
        False,
        "A smoke run (minutes at most): small sizes, bundled data where possible.",
    )
    seed: int = option(0, "Of every random draw.", least=0)

    def __post_init__(self) -> None:
        """Substitute small sizes in a quick run, and check all numbers."""
        for item in fields(self):
            value, quick = getattr(self, item.name), item.metadata["quick"]
            if self.quick and quick is not MISSING and value == item.default:
                object.__setattr__(self, item.name, quick)
            _check(item, getattr(self, item.name))

    def arguments(self) -> dict[str, Any]:
        """Return the values as JSON: paths as strings, tuples as lists."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {
            name: str(value)
            if isinstance(value, Path)
            else list(value)
            if isinstance(value, tuple)
            else value
            for name, value in values.items()
        }


@dataclass(frozen=True)
class DataOptions(CommonOptions):
    """Options for data sets in files."""

    data_dir: Path | None = option(
        None, "Directory of the data sets' files, or of folders with them."
    )


def _check(option: Field[Any], value: Any) -> None:
    """Raise if a number, or a member of a tuple, is too small or not finite."""
    least = option.metadata["least"]
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, bool) or not isinstance(number, int | float):
            continue
        if isinstance(number, int):
            bound = 1 if least is None else least
            allowed, expected = number >= bound, f"{bound:g} or more"
        elif least is None:
            allowed, expected = 0 < number < float("inf"), "a positive number"
        else:
            allowed = least <= number < float("inf")
            expected = f"finite and {least:g} or more"
        if not allowed:
            raise ValueError(f"{option.name} must be {expected}, got {number}")
