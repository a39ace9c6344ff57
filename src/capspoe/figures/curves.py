"""The metrics of training, from metrics.jsonl, as line charts."""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator, NullLocator, StrMethodFormatter

from capspoe.figures.sheet import ACCENT, BAR, DPI, LINE, PAPER, QUIET, TEXT
from capspoe.run.log import readable_lines
from capspoe.train.capsule_stage import depth_of

STAGE = re.compile(r"autoencoder|capsules-[0-9]{1,4}")
NEEDED = {"reconstruction", "baseline", "confidence", "temperature", "use"}  # for the charts of capsules


class Chart(NamedTuple):
    title: str
    step: np.ndarray  # (n,)
    lines: dict[str, np.ndarray]  # name to values (n,); one for each capsule if so named
    logarithmic: bool = False
    level: float | None = None  # equal use of all capsules


def read_metrics(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The lines of metrics.jsonl by stage, in order, without those that cannot be read or are still being written."""
    stages: dict[str, list[dict[str, Any]]] = {}
    with suppress(OSError):
        for line in readable_lines((folder / "metrics.jsonl").read_bytes()).splitlines():
            values = json.loads(line)
            stage, step = str(values.get("stage")), values.get("step")
            if STAGE.fullmatch(stage) and isinstance(step, int) and 0 <= step < 2**53:
                stages.setdefault(stage, []).append(values)
    return stages


def columns(lines: Sequence[dict[str, Any]]) -> dict[str, np.ndarray]:
    """The metrics that are finite in all lines: numbers (n,), and the use of each capsule (n, J)."""
    found = {}
    for name in lines[-1]:
        with suppress(KeyError, TypeError, ValueError, OverflowError):
            values = np.array([line[name] for line in lines], float)
            if values.ndim == (2 if name == "use" else 1) and np.isfinite(values).all():
                found[name] = values
    return found


def charts(stages: dict[str, list[dict[str, Any]]]) -> list[Chart]:
    """The loss of stage 1; and of stage 2, for each layer: the error, the gate, and the use of each capsule."""
    found = []
    layers = sum(depth_of(stage) is not None for stage in stages)
    for stage, lines in stages.items():
        of = columns(lines)
        depth = depth_of(stage)
        if not of.keys() >= (NEEDED if depth is not None else {"loss"}):
            continue
        step = of["step"]
        if depth is None:
            loss = {"cross-entropy per pixel": of["loss"]}
            found.append(Chart("Stage 1: loss of the autoencoder", step, loss, True))
            continue
        where = "Stage 2" if layers == 1 else f"Stage 2, layer {depth + 1}"
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
