"""The curves of Fig. 2 of Ohana et al. (2020), ours and published, and their styles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from ..figures import DASHED, Style
from .published import published_rows


@dataclass(frozen=True)
class Curve:
    """A curve: its kernel, its names in published tables, and how it is computed."""

    kernel: str
    style: Style
    published: str = ""  # its features
    published_exact: str = ""  # its kernel, which is also fitted exactly
    fourier: str = "pair"
    device: bool = False  # which shows no bias, as published
    penalty: float = 1.0  # relative to that of the simulation
    features: bool = True
    dot_bias: bool = False  # whether only the dot product has the bias


CURVES: Mapping[str, Curve] = {
    "fourier": Curve(
        "gaussian", Style("Fourier", "black"), "rbf_rff", "rbf_rff", fourier="offset"
    ),
    "fourier-pair": Curve("gaussian", Style("Fourier, pairs", "grey", "P", "-.")),
    "optical-2": Curve(
        "optical:2", Style("optical, m = 2", "blue", "s"), "sim_opu_2", "sim_opu_2"
    ),
    "optical-4": Curve(
        "optical:4", Style("optical, m = 4", "red", "^"), "sim_opu_4", "sim_opu_4"
    ),
    "optical-6": Curve("optical:6", Style("optical, m = 6", "pink", "D"), "sim_opu_6"),
    "optical-2-dot": Curve(
        "optical:2",
        Style("m = 2, bias in the dot product", "blue"),
        published_exact="sim_opu_2",
        features=False,
        dot_bias=True,
    ),
    "optical-4-dot": Curve(
        "optical:4",
        Style("m = 4, bias in the dot product", "red"),
        published_exact="sim_opu_4",
        features=False,
        dot_bias=True,
    ),
    "linear": Curve(
        "linear",
        Style("linear", "grey", "v"),
        published_exact="linear",
        features=False,
    ),
    "device-2-own": Curve(
        "optical:2",
        Style("device, m = 2, no bias", "sky", "x"),
        "real_opu_2",
        device=True,
        penalty=2.0,
    ),
    "device-4-own": Curve(
        "optical:4",
        Style("device, m = 4, no bias", "orange", "+"),
        "real_opu_4",
        device=True,
    ),
    "device-2-new": Curve(
        "optical:2",
        Style("device, m = 2, new penalty", "green", "d"),
        "real_opu_2_new_param",
        device=True,
        penalty=0.1,
    ),
}
# Features of degrees 2 and 4 to compare.
PAIRS = {
    "optical": ("optical-2", "optical-4"),
    "device": ("device-2-own", "device-4-own"),
}
MOST = {"optical-6": 10_000, "fourier-pair": 10_000}  # features
LINEAR_BIAS = 64.0  # published
PUBLISHED_SIZES = (
    *range(10, 100, 10),
    *range(100, 1000, 100),
    *range(1000, 6000, 1000),
    10_000,
    20_000,
    50_000,
    100_000,
)


def shown_records(
    frame: pd.DataFrame, curves: Sequence[str], least: int, most: int, exact: bool
) -> pd.DataFrame:
    """Return our records and the published ones that a panel shows."""
    data = frame.attrs["dataset"]
    rows = frame.assign(source="ours", total_seconds=frame.fit_seconds)
    if data["name"].startswith("fashion-mnist") and data.get("complete"):
        published = published_curves().assign(source="published")
        total = published.projection_seconds + published.regression_seconds
        rows = pd.concat([rows, published.assign(total_seconds=total)])
    shown = rows.n_components.between(least, most)
    shown |= rows.n_components.isna() & exact
    return rows[shown & rows.curve.isin(curves)]


def styles(*curves: str) -> dict[tuple[str, str], Style]:
    """Return the styles of our curves, and of the published ones of the same colour."""
    result = {}
    for name in curves:
        style = CURVES[name].style
        result[name, "ours"] = style
        dashed = replace(style, label="", dashes=DASHED, filled=False)
        result[name, "published"] = dashed
    return result


def explain_dashes(axes: Any, shown: pd.DataFrame) -> None:
    """Explain the dashes of published curves.

    Curves of which only published errors are shown have entries of their own.
    """
    ours = set(shown[shown.source == "ours"].curve)
    look: Mapping[str, Any] = {"linestyle": DASHED, "mfc": "white"}
    for curve in shown.curve.unique():
        if curve not in ours:
            style = CURVES[curve].style
            own = {"color": style.colour, "marker": style.marker}
            axes.plot([], [], label=f"{style.label}, published", **own, **look)
    if (shown.source == "published").any():
        axes.plot([], [], color="0.4", marker="o", label="published", **look)


def published_curves() -> pd.DataFrame:
    """Return the published errors and seconds on Fashion-MNIST, by D and exact."""
    features = published_rows("fashion-mnist-features")
    kernels = published_rows("fashion-mnist-kernels")
    kernels = kernels.rename(columns={"kernel": "features"}).assign(n_components=None)
    parts = []
    for rows, attribute in ((features, "published"), (kernels, "published_exact")):
        for name, curve in CURVES.items():
            own = rows[rows.features == getattr(curve, attribute)]
            parts.append(own.assign(curve=name, test_error=1 - own.test_accuracy))
    seconds = {"projection_s": "projection_seconds"}
    seconds |= {"regression_s": "regression_seconds"}
    every = pd.concat([part for part in parts if len(part)]).rename(columns=seconds)
    columns = ["curve", "n_components", "test_error", *seconds.values()]
    return every[columns].astype({"n_components": float})
