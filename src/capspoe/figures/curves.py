"""The metrics of training, from metrics.jsonl, as line charts."""

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator, NullLocator, StrMethodFormatter

from capspoe.errors import RunError
from capspoe.figures.sheet import ACCENT, BAR, DPI, LINE, PAPER, QUIET, TEXT
from capspoe.run.checkpoint import AUTOENCODER, Stage

_NUMBERS = {  # of a line of metrics.jsonl, by the kind of its stage
    "autoencoder": ("step", "images_per_second", "loss"),
    "capsules": ("step", "images_per_second", "reconstruction", "baseline", "confidence", "temperature"),
}


class Chart(NamedTuple):
    title: str
    step: np.ndarray  # (n,)
    lines: dict[str, np.ndarray]  # name to values (n,); one for each capsule if so named
    logarithmic: bool = False
    level: float | None = None  # equal use of all capsules


def read_metrics(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The lines of metrics.jsonl by stage, in order, without a last line that a kill cut short."""
    path = folder / "metrics.jsonl"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{path} cannot be read: {error}") from error
    stages: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for position, line in enumerate(lines):
        try:
            values = json.loads(line)
            earlier = stages.get(values["stage"], [values])
            kind = values["stage"].partition("-")[0]
            for name in _NUMBERS[kind]:
                float(values[name])
            if kind == "capsules" and np.shape(np.array(values["use"], float)) != (len(earlier[0]["use"]),):
                raise ValueError("use")
            stages[values["stage"]].append(values)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if position < len(lines) - 1:
                raise RunError(f"{path} is damaged in line {position + 1}") from error
    return dict(stages)


def charts(stages: dict[str, list[dict[str, Any]]]) -> list[Chart]:
    """The loss of stage 1; and of stage 2, for each layer: the error, the gate, and the use of each capsule."""
    found = []
    layers = sum(Stage(stage).depth is not None for stage in stages)
    for stage, lines in stages.items():
        of = {name: np.array([line[name] for line in lines]) for name in lines[0] if name != "stage"}
        step, depth = of["step"], Stage(stage).depth
        if stage == AUTOENCODER:
            loss = {"cross-entropy per pixel": of["loss"]}
            found.append(Chart("Stage 1: loss of the autoencoder", step, loss, True))
            continue
        where = "Stage 2" if layers == 1 else f"Stage 2, layer {(depth or 0) + 1}"
        error = {"by the capsules": of["reconstruction"], "by the mean code": of["baseline"]}
        found.append(Chart(f"{where}: reconstruction error of the code", step, error))
        use = {f"capsule {j}": values for j, values in enumerate(of["use"].T)}
        if not np.allclose(of["use"].sum(-1), 1, atol=1e-3):  # no gate
            found.append(Chart(f"{where}: mean probability of each capsule", step, use))
            continue
        found.append(Chart(f"{where}: probability of the winner", step, {"mean": of["confidence"]}))
        if np.ptp(of["temperature"]):
            found.append(Chart(f"{where}: temperature of the gate", step, {"T": of["temperature"]}, True))
        found.append(Chart(f"{where}: use of each capsule", step, use, level=1 / len(use)))
    return found


def draw_charts(found: Sequence[Chart], columns: int = 2) -> Figure:
    """All charts, side by side."""
    rows = -(-len(found) // columns)
    layout = ConstrainedLayoutEngine(h_pad=0.2, w_pad=0.2)
    figure = Figure((6.6 * columns, 3.5 * rows), dpi=DPI, facecolor=PAPER, layout=layout)
    for k, chart in enumerate(found, 1):
        _draw(chart, figure.add_subplot(rows, columns, k))
    return figure


def _draw(chart: Chart, axes: Axes) -> None:
    each = next(iter(chart.lines)).startswith("capsule")
    axes.set_prop_cycle(color=[BAR] if each else [BAR, ACCENT])
    style: dict[str, Any] = {"lw": 1.2, "alpha": 0.45} if each else {"lw": 2.2}
    for name, values in chart.lines.items():
        axes.plot(chart.step, values, label=None if each else f"{name}, final {values[-1]:.3g}", **style)
    if chart.level is not None:
        axes.axhline(chart.level, color=ACCENT, lw=1.6, ls="--", label=f"equal use, {chart.level:.3g}")
    axes.set_title(chart.title, loc="left", color=TEXT, fontsize=15, weight="bold", pad=26)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False, labelcolor=QUIET)
    if chart.logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(0, None)
    axes.set_xlim(0, None)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:.3g}"))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_xlabel("steps", loc="right", color=QUIET)
    axes.grid(axis="y", color=LINE)
    axes.tick_params(length=0, labelcolor=QUIET)
    axes.spines[:].set_visible(False)
