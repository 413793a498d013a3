"""``randkern bench NAME``: time and accuracy of features, beside peers."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from randkern.cli.console import NamingGroup, output, progress_bar, user_messages
from randkern.cli.options import (
    Data,
    DataDir,
    Target,
    parse_lengthscale,
    parse_names,
    parse_penalty,
    parse_sizes,
)

from ..benchmarks.contenders import FAMILIES
from .bench_gp_tables import gp_notes, gp_table
from .bench_gpu import gpu_command
from .bench_ridge_tables import ridge_tables, scaling_notes, scaling_tables
from .bench_svm import svm_command
from .bench_tables import (
    accuracy_tables,
    cost_table,
    features_tables,
    notes,
    sweep_tables,
)

__all__ = ["application"]

_PROJECTIONS = Annotated[
    str | None,
    typer.Option(help="Comma-separated projections; default: all there are."),
]
_MEMORY_LIMIT = Annotated[
    str | None,
    typer.Option(
        help='What one contender may use, such as "8GB"; more is skipped. Default: '
        "half of the free memory."
    ),
]


class _Benchmarks(NamingGroup):
    """The group of benchmarks."""

    kind = "benchmark"


application = typer.Typer(
    cls=_Benchmarks,
    help="Time and accuracy of random features, beside peers.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@application.command("features")
def features_command(
    d: Annotated[int, typer.Option("--d", help="Input columns.")] = 784,
    n_components: Annotated[int, typer.Option(help="Features.")] = 10240,
    n: Annotated[int, typer.Option("--n", help="Rows.")] = 6000,
    repeats: Annotated[int, typer.Option(help="Rounds of the timing.")] = 5,
    degree: Annotated[float, typer.Option(help="Of the optical kernel.")] = 2.0,
    projections: _PROJECTIONS = None,
    families: Annotated[
        str, typer.Option(help="Of gaussian, optical.")
    ] = "gaussian,optical",
    memory: Annotated[
        bool,
        typer.Option(help="Measure peak memory, each method in its own process."),
    ] = True,
    cold: Annotated[
        bool, typer.Option(help="Measure first calls without cached code.")
    ] = True,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Also time against d and against D.")
    ] = False,
    sweep_d: Annotated[
        str, typer.Option(help="Values of d of the sweep.")
    ] = "64,256,1024,4096,16384",
    sweep_n_components: Annotated[
        str, typer.Option(help="Values of D of the sweep.")
    ] = "1024,4096,16384,65536",
    memory_limit: _MEMORY_LIMIT = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    out: Annotated[
        Path, typer.Option(help="Directory for results.json and figures.")
    ] = Path("randkern-bench/features"),
) -> None:
    """Nanoseconds a feature: every projection, scikit-learn and NumPy, in one run.

    The Gaussian kernel beside RBFSampler in float32 and in its default float64; the
    optical kernel beside two dense products in NumPy. Repeats are interleaved;
    bounds of the machine are measured in the same run.
    """
    with user_messages():
        from ..benchmarks import features

        names = parse_names(projections)
        dimensions, sizes = (
            parse_sizes(sweep_d, "--sweep-d"),
            parse_sizes(sweep_n_components, "--sweep-n-components"),
        )
        out.mkdir(parents=True, exist_ok=True)
        with progress_bar() as progress:
            results = features.run(
                *(d, n_components, n),
                repeats=repeats,
                degree=degree,
                projections=names,
                families=parse_names(families) or FAMILIES,
                memory=memory,
                cold=cold,
                memory_limit=memory_limit,
                seed=seed,
                progress=progress,
            )
            if sweep:
                results["sweep"] = features.sweep(
                    *(dimensions, sizes),
                    d=d,
                    n_components=n_components,
                    projections=names,
                    memory_limit=memory_limit,
                    seed=seed,
                    progress=progress,
                )
        written = _write(results, out, _feature_figures(results))
    _print([*features_tables(results), *sweep_tables(results)], notes(results), written)


@application.command("accuracy")
def accuracy_command(
    data: Data = "digits",
    data_dir: DataDir = None,
    target: Target = None,
    n: Annotated[int, typer.Option("--n", help="Training rows at most.")] = 2000,
    n_test: Annotated[int, typer.Option(help="Test rows at most.")] = 5000,
    lengthscale: Annotated[
        str, typer.Option(help="Of the Gaussian kernel: a number, scale or median.")
    ] = "5",
    n_components: Annotated[
        str, typer.Option(help="Numbers of features.")
    ] = "196,392,784,1568,3136",
    alpha: Annotated[
        str,
        typer.Option(
            help="Ridge penalties; one is chosen for each method and number of "
            "features, by leave-one-out on training rows."
        ),
    ] = "1e-3,1e-2,1e-1,1,10",
    seeds: Annotated[int, typer.Option(help="Draws of the features.")] = 10,
    projections: _PROJECTIONS = None,
    optical: Annotated[
        bool, typer.Option(help="Also the optical kernel, plain and centred.")
    ] = True,
    out: Annotated[
        Path, typer.Option(help="Directory for results.json and figures.")
    ] = Path("randkern-bench/accuracy"),
) -> None:
    """Error of the Gram matrix and of ridge against D: all projections and peers.

    The relative Frobenius error off the diagonal, its ratio to dense over paired
    seeds, and the test error of ridge, beside scikit-learn's RBFSampler and
    Nystroem at equal D; then Nystroem beside what its time affords.
    """
    with user_messages():
        from randkern.datasets import load_dataset

        from ..benchmarks import accuracy

        names, sizes = parse_names(projections), parse_sizes(n_components)
        scale = parse_lengthscale(lengthscale)
        penalties = [parse_penalty(part) for part in parse_names(alpha) or ()]
        dataset = load_dataset(data, data_dir=data_dir, target=target)
        out.mkdir(parents=True, exist_ok=True)
        with progress_bar() as progress:
            results = accuracy.run(
                *(dataset, sizes),
                n=n,
                n_test=n_test,
                lengthscale=scale,
                alphas=penalties,
                n_seeds=seeds,
                projections=names,
                optical=optical,
                progress=progress,
            )
        results["arguments"]["data"] = data
        written = _write(results, out, _accuracy_figures(results))
    _print([*accuracy_tables(results), *cost_table(results)], notes(results), written)


@application.command("ridge")
def ridge_command(
    data: Data = "digits",
    data_dir: DataDir = None,
    target: Target = None,
    n: Annotated[
        int | None, typer.Option("--n", help="Training rows at most; default: all.")
    ] = None,
    n_test: Annotated[
        int | None, typer.Option(help="Test rows at most; default: all.")
    ] = None,
    kernel: Annotated[str, typer.Option(help="gaussian or optical.")] = "gaussian",
    lengthscale: Annotated[
        str, typer.Option(help="Of the Gaussian kernel: a number, scale or median.")
    ] = "5",
    degree: Annotated[float, typer.Option(help="Of the optical kernel.")] = 2.0,
    alpha: Annotated[str, typer.Option(help="The ridge penalty.")] = "1e-3",
    intercept: Annotated[
        bool, typer.Option(help="Fit an intercept, in both libraries.")
    ] = True,
    n_components: Annotated[
        str, typer.Option(help="Numbers of features.")
    ] = "1000,3000,10240",
    solvers: Annotated[
        str, typer.Option(help="Of randkern: pcg, cholesky, auto.")
    ] = "pcg,cholesky",
    peers: Annotated[
        bool,
        typer.Option(help="Beside RBFSampler (optical: NumPy) and RidgeClassifier."),
    ] = True,
    nystroem: Annotated[
        bool, typer.Option("--nystroem", help="Also Nystroem and RidgeClassifier.")
    ] = False,
    repeats: Annotated[int, typer.Option(help="Seeds; medians are shown.")] = 1,
    memory_limit: Annotated[
        str | None, typer.Option(help='Of randkern\'s models, such as "3GB".')
    ] = None,
    no_peer_above: Annotated[
        int | None,
        typer.Option(
            help="Largest D of the peers; those that do not fit in memory are "
            "skipped in any case."
        ),
    ] = None,
    no_cholesky_above: Annotated[
        int | None, typer.Option(help="Largest D of the solver cholesky.")
    ] = None,
    comparison: Annotated[bool, typer.Option(help="Measure all of the above.")] = True,
    scaling: Annotated[
        bool, typer.Option("--scaling", help="Also measure cost against D and n.")
    ] = False,
    scaling_n_components: Annotated[
        str, typer.Option(help="Values of D of the scaling.")
    ] = "1000,3000,10000,30000,100000",
    scaling_n: Annotated[
        str, typer.Option(help="Values of n of the scaling.")
    ] = "1000,10000,100000,1000000",
    scaling_fixed_n: Annotated[int, typer.Option(help="Rows while D varies.")] = 10_000,
    scaling_fixed_n_components: Annotated[
        int, typer.Option(help="Features while n varies.")
    ] = 2048,
    scaling_d: Annotated[int, typer.Option(help="Columns of the scaling.")] = 64,
    scaling_memory_limit: Annotated[
        str, typer.Option(help="Memory limit while n varies.")
    ] = "200MB",
    out: Annotated[
        Path, typer.Option(help="Directory for results.json and figures.")
    ] = Path("randkern-bench/ridge"),
) -> None:
    """Accuracy of ridge against seconds, beside scikit-learn, each in its own process.

    KernelRidgeClassifier beside RBFSampler and RidgeClassifier, with the same rows,
    kernel and penalty: seconds of features, fit and prediction, accuracy, peak
    memory. With --scaling also conjugate gradients on rows that are streamed from
    disk, against D and against n.
    """
    with user_messages():
        from randkern.datasets import load_dataset

        from ..benchmarks import ridge, ridge_scaling

        sizes, penalty = parse_sizes(n_components), parse_penalty(alpha)
        scale, names = parse_lengthscale(lengthscale), parse_names(solvers)
        axes = (
            parse_sizes(scaling_n_components, "--scaling-n-components"),
            parse_sizes(scaling_n, "--scaling-n"),
        )
        if not (comparison or scaling):
            raise ValueError("--no-comparison leaves nothing to do without --scaling")
        results = ridge.environment() | {"records": [], "skipped": []}
        if comparison:
            dataset = load_dataset(data, data_dir=data_dir, target=target)
        out.mkdir(parents=True, exist_ok=True)
        with progress_bar() as progress:
            if comparison:
                results = ridge.run(
                    *(dataset, sizes),
                    kernel=kernel,
                    lengthscale=scale,
                    degree=degree,
                    alpha=penalty,
                    fit_intercept=intercept,
                    solvers=names,
                    peers=peers,
                    nystroem=nystroem,
                    n=n,
                    n_test=n_test,
                    repeats=repeats,
                    memory_limit=memory_limit,
                    no_peer_above=no_peer_above,
                    no_cholesky_above=no_cholesky_above,
                    progress=progress,
                )
                results["arguments"]["data"] = data
            if scaling:
                results["scaling"] = ridge_scaling.run(
                    *axes,
                    fixed_n=scaling_fixed_n,
                    fixed_n_components=scaling_fixed_n_components,
                    d=scaling_d,
                    alpha=penalty,
                    memory_limit=memory_limit,
                    streaming_memory_limit=scaling_memory_limit,
                    progress=progress,
                )
        written = _write(results, out, _ridge_figures(results))
    tables = [*ridge_tables(results), *scaling_tables(results)]
    _print(tables, [*notes(results), *scaling_notes(results)], written)


@application.command("gp")
def gp_command(
    n: Annotated[int, typer.Option("--n", help="Generated training rows.")] = 100_000,
    columns: Annotated[int, typer.Option(help="Of generated rows; 5 matter.")] = 10,
    n_components: Annotated[
        int, typer.Option(help="Features, or inducing points.")
    ] = 256,
    exact_rows: Annotated[
        int, typer.Option(help="Training rows of exact processes at most.")
    ] = 1000,
    steps: Annotated[int, typer.Option(help="Of Adam, for RFFKernel.")] = 50,
    epochs: Annotated[int, typer.Option(help="Of SVGP.")] = 10,
    methods: Annotated[
        str | None,
        typer.Option(help="Of features, exact, scikit-learn, rff, svgp; default: all."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    out: Annotated[
        Path, typer.Option(help="Directory for results.json and figures.")
    ] = Path("randkern-bench/gp"),
) -> None:
    """Error, predictive density and seconds of Gaussian processes, beside GPyTorch.

    On scikit-learn's diabetes and on generated rows: randkern's features and exact
    process, scikit-learn's, and GPyTorch's RFFKernel and SVGP where it is installed.
    """
    with user_messages():
        from ..benchmarks import gaussian_process
        from ..benchmarks.gp_figures import plot_gaussian_processes

        out.mkdir(parents=True, exist_ok=True)
        with progress_bar() as progress:
            results = gaussian_process.run(
                n,
                n_features=columns,
                n_components=n_components,
                exact_rows=exact_rows,
                steps=steps,
                epochs=epochs,
                methods=parse_names(methods),
                seed=seed,
                progress=progress,
            )
        written = _write(results, out, {"gp.png": plot_gaussian_processes(results)})
    _print([gp_table(results)], gp_notes(results), written)


application.command("gpu")(gpu_command)
application.command("svm")(svm_command)


def _feature_figures(results: Mapping[str, Any]) -> dict[str, Any]:
    from ..benchmarks.figures import plot_features, plot_sweep

    figures = {"features.png": plot_features(results)}
    if "sweep" in results:
        figures["sweep.png"] = plot_sweep(results["sweep"])
    return figures


def _accuracy_figures(results: Mapping[str, Any]) -> dict[str, Any]:
    from ..benchmarks.figures import plot_accuracy, plot_cost

    return {"accuracy.png": plot_accuracy(results), "cost.png": plot_cost(results)}


def _ridge_figures(results: Mapping[str, Any]) -> dict[str, Any]:
    from ..benchmarks.ridge_figures import plot_ridge, plot_ridge_scaling

    figures = {"ridge.png": plot_ridge(results)} if results["records"] else {}
    if results.get("scaling", {}).get("records"):
        figures["scaling.png"] = plot_ridge_scaling(results["scaling"])
    return figures


def _write(
    results: Mapping[str, Any], out: Path, figures: Mapping[str, Any]
) -> list[Path]:
    from randkern.plots import save_figure
    from randkern.study.records import write_results

    written = [write_results(results, out / "results.json")]
    return written + [save_figure(fig, out / name) for name, fig in figures.items()]


def _print(tables: list[Any], lines: Iterable[str], written: list[Path]) -> None:
    """Print tables, notes such as what was skipped, and the files."""
    console = output()
    for table in tables:
        console.print(table)
    for note in lines:
        console.print(note, soft_wrap=True)
    console.print(f"wrote {', '.join(str(path) for path in written)}", soft_wrap=True)
