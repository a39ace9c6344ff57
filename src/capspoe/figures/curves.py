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
from capspoe.training.capsule_stage import depth_of

STAGE = re.compile(r"autoencoder|capsules-[0-9]{1,4}|recognition")
LOSSES = {  # by stage: the title of the chart, and of its line
    "autoencoder": ("Stage 1: loss of the autoencoder", "cross-entropy per pixel"),
    "recognition": ("Stage 3: loss of the recognition network", "pseudo-likelihood loss per capsule"),
}
LIKELIHOOD = {  # both estimates of persistent chains
    "log_likelihood_lower": "lower estimate",
    "log_likelihood_upper": "upper estimate",
}
NEEDED = {"reconstruction", "baseline", "confidence", "temperature", "use"}  # for the charts of capsules


class Chart(NamedTuple):
    title: str
    step: np.ndarray  # (n,)
    lines: dict[str, np.ndarray]  # name to values (n,); one for each capsule if so named
    logarithmic: bool = False
    level: float | None = None  # equal use of all capsules


def read_metrics(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The lines of metrics.jsonl by stage, in order.

    Lines that cannot be read or are still being written are left out.
    """
    stages: dict[str, list[dict[str, Any]]] = {}
    with suppress(OSError):
        for line in readable_lines((folder / "metrics.jsonl").read_bytes()).splitlines():
            values = json.loads(line)
            stage = str(values.get("stage"))
            step = values.get("step")
            # Larger integers are not exact as the floats that charts need.
            if STAGE.fullmatch(stage) and isinstance(step, int) and 0 <= step < 2**53:
                stages.setdefault(stage, []).append(values)
    return stages


def columns(lines: Sequence[dict[str, Any]]) -> dict[str, np.ndarray]:
    """The metrics that are finite in all lines: numbers (n,), and the use of each capsule (n, J)."""
    finite = {}
    for name in lines[-1]:
        dimensions = 2 if name == "use" else 1
        with suppress(KeyError, TypeError, ValueError, OverflowError):
            values = np.array([line[name] for line in lines], float)
            if values.ndim == dimensions and np.isfinite(values).all():
                finite[name] = values
    return finite


def charts(stages: dict[str, list[dict[str, Any]]], code: str = "a code") -> list[Chart]:
    """The charts of all stages that have the metrics for them; `code` says what likelihoods are of."""
    all_charts = []
    layers = sum(depth_of(stage) is not None for stage in stages)
    for stage, lines in stages.items():
        metrics = columns(lines)
        depth = depth_of(stage)
        if depth is None:
            if "loss" in metrics:
                title, name = LOSSES[stage]
                all_charts.append(Chart(title, metrics["step"], {name: metrics["loss"]}, logarithmic=True))
        elif metrics.keys() >= NEEDED:
            where = "Stage 2" if layers == 1 else f"Stage 2, layer {depth + 1}"
            all_charts += _capsule_charts(where, metrics, code)
    return all_charts


def _capsule_charts(where: str, metrics: dict[str, np.ndarray], code: str) -> list[Chart]:
    """Of one layer: the error, the gate, and the use of each capsule."""
    step = metrics["step"]
    error = {"by the capsules": metrics["reconstruction"], "by the mean code": metrics["baseline"]}
    layer_charts = [Chart(f"{where}: reconstruction error of the code", step, error)]
    if metrics.keys() >= LIKELIHOOD.keys():
        bounds = {title: metrics[name] for name, title in LIKELIHOOD.items()}
        layer_charts.append(Chart(f"{where}: log-likelihood of {code}, in nats", step, bounds))
    use = {f"capsule {j}": values for j, values in enumerate(metrics["use"].T)}
    # Without a gate the uses do not sum to 1, and there is neither a winner nor a temperature.
    if not np.allclose(metrics["use"].sum(-1), 1, atol=1e-3):
        layer_charts.append(Chart(f"{where}: mean probability of each capsule", step, use))
        return layer_charts
    confidence = {"mean": metrics["confidence"]}
    layer_charts.append(Chart(f"{where}: probability of the winner", step, confidence))
    if np.ptp(metrics["temperature"]):
        temperature = {"T": metrics["temperature"]}
        title = f"{where}: temperature of the gate"
        layer_charts.append(Chart(title, step, temperature, logarithmic=True))
    layer_charts.append(Chart(f"{where}: use of each capsule", step, use, level=1 / len(use)))
    return layer_charts


def draw_charts(charts: Sequence[Chart], columns: int = 2) -> Figure:
    """All charts, side by side."""
    rows = -(-len(charts) // columns)
    layout = ConstrainedLayoutEngine(h_pad=0.2, w_pad=0.2)
    figure = Figure((6.6 * columns, 3.5 * rows), dpi=DPI, facecolor=PAPER, layout=layout)
    for k, chart in enumerate(charts, 1):
        _draw(chart, figure.add_subplot(rows, columns, k))
    return figure


def _draw(chart: Chart, axes: Axes) -> None:
    if next(iter(chart.lines)).startswith("capsule"):
        # One line for each capsule: too many for a legend, so all look the same.
        axes.set_prop_cycle(color=[BAR])
        for values in chart.lines.values():
            axes.plot(chart.step, values, label=None, lw=1.2, alpha=0.45)
    else:
        axes.set_prop_cycle(color=[BAR, ACCENT])
        for name, values in chart.lines.items():
            axes.plot(chart.step, values, label=f"{name}, final {values[-1]:.4g}", lw=2.2)
    if chart.level is not None:
        label = f"equal use, {chart.level:.3g}"
        axes.axhline(chart.level, color=ACCENT, lw=1.6, ls="--", label=label)
    axes.set_title(chart.title, loc="left", color=TEXT, fontsize=15, weight="bold", pad=26)
    if axes.get_legend_handles_labels()[0]:
        # Between the title and the axes, where no line can run through it.
        axes.legend(
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=2,
            frameon=False,
            labelcolor=QUIET,
        )
    if chart.logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_minor_locator(NullLocator())
    elif min(values.min() for values in chart.lines.values()) >= 0:
        axes.set_ylim(0, None)
    axes.set_xlim(0, None)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:.3g}"))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_xlabel("steps", loc="right", color=QUIET)
    axes.grid(axis="y", color=LINE)
    axes.tick_params(length=0, labelcolor=QUIET)
    axes.spines[:].set_visible(False)
