"""Published experiments by name, and what each of them provides.

An experiment is a module here with four names, and a line in :data:`EXPERIMENTS`:

``Options``
    A frozen dataclass that extends :class:`CommonOptions`. Each field is
    ``Annotated[type, "help text"]`` with a default, and becomes an option of
    ``randkern reproduce NAME``.
``run(options, progress=None)``
    Returns JSON-compatible results, begun by :func:`begin_results`.
``tables(results)``
    Returns what to print, a list of :class:`TextTable`.
``figure(results)``
    Returns the figure.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Protocol, cast

from randkern.study.records import describe_machine, installed_versions

__all__ = [
    "EXPERIMENTS",
    "CommonOptions",
    "Experiment",
    "ExperimentModule",
    "Progress",
    "TextTable",
    "begin_results",
]

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class CommonOptions:
    """What every experiment takes.

    Attributes
    ----------
    data_dir : Path, optional
    quick : bool
    seed : int
    """

    data_dir: Annotated[
        Path | None, "Directory of the data sets' files, or of folders with them."
    ] = None
    quick: Annotated[
        bool, "A smoke run of seconds: small sizes, and bundled data where possible."
    ] = False
    seed: Annotated[int, "Of every random draw."] = 0


@dataclass(frozen=True)
class TextTable:
    """A table to print.

    Attributes
    ----------
    title : str
    columns : tuple of str
        Headings. The first column is left-aligned, the others right-aligned.
    rows : list of tuple of str
    """

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)


class ExperimentModule(Protocol):
    """What the module of an experiment provides, see the module's docstring."""

    Options: type[CommonOptions]

    def run(self, options: Any, progress: Progress | None = None) -> dict[str, Any]:
        """Return the results."""

    def tables(self, results: Mapping[str, Any]) -> list[TextTable]:
        """Return what to print."""

    def figure(self, results: Mapping[str, Any]) -> Any:
        """Return the figure."""


@dataclass(frozen=True)
class Experiment:
    """A published experiment.

    Attributes
    ----------
    module : str
        Its module in this package.
    title : str
        One line.
    """

    module: str
    title: str

    def load(self) -> ExperimentModule:
        """Return the module, imported on use."""
        name = f"{__package__}.{self.module}"
        return cast(ExperimentModule, importlib.import_module(name))


EXPERIMENTS: Mapping[str, Experiment] = {
    "optical-ridge": Experiment(
        "optical_ridge", "Error against D on binarized images (Ohana et al., Fig. 2)."
    ),
    "optical-hyperparameters": Experiment(
        "optical_hyperparameters",
        "Grids of penalty, scale and bias (Ohana et al., Fig. 4).",
    ),
    "transfer-learning": Experiment(
        "transfer_learning",
        "Ridge on convolutional features of CIFAR-10 (Ohana et al., Table 1).",
    ),
    "projection-cost": Experiment(
        "projection_cost",
        "Seconds and joules against D, beside a device (Ohana et al., Fig. 3).",
    ),
    "optical-convergence": Experiment(
        "optical_convergence",
        "Error and tails of optical features by degree (Ohana et al., appendix C).",
    ),
    "compositional-accuracy": Experiment(
        "compositional_accuracy",
        "Gram matrices of compositional features against D (Daniely et al., Fig. 3).",
    ),
    "compositional-structure": Experiment(
        "compositional_structure",
        "Ridge on linear, shallow and deep skeletons (Daniely et al., Theorem 5).",
    ),
    "compositional-cost": Experiment(
        "compositional_cost",
        "Drawing and evaluating deep features against the size of images.",
    ),
    "compositional-tables": Experiment(
        "compositional_tables",
        "Tables of mixed types: bases by column beside one-hot and Gaussian.",
    ),
    "kitchen-sinks-gp": Experiment(
        "kitchen_sinks_gp",
        "Gaussian processes on features, in two conventions (Bonilla, Fig. 1).",
    ),
    "fourier-svm": Experiment(
        "fourier_svm",
        "Hard and soft margins on both feature maps, and their cost (Póczos).",
    ),
}


def begin_results(name: str, options: CommonOptions) -> dict[str, Any]:
    """Return the keys that the results of all experiments have.

    Parameters
    ----------
    name : str
        One of :data:`EXPERIMENTS`.
    options : CommonOptions

    Returns
    -------
    results : dict
        ``command``, ``experiment``, ``arguments``, ``versions``, ``machine``, and to
        be filled: ``dataset`` (None or a dict), ``records`` (a list of dicts),
        ``published`` (a list of dicts) and ``notes`` (sentences to print).

    Examples
    --------
    >>> from randkern_lab.papers.reproductions import CommonOptions, begin_results
    >>> results = begin_results("optical-ridge", CommonOptions(quick=True))
    >>> results["arguments"]
    {'data_dir': None, 'quick': True, 'seed': 0}
    """
    arguments = {
        key: str(value) if isinstance(value, Path) else value
        for key, value in asdict(options).items()
    }
    return {
        "command": "reproduce",
        "experiment": name,
        "arguments": arguments,
        "versions": installed_versions(),
        "machine": describe_machine(),
        "dataset": None,
        "records": [],
        "published": [],
        "notes": [],
    }
