"""The course of training, from metrics.jsonl, as small line charts.

Drawn by hand rather than by a plotting library, so that a page can show them in its own light or dark colours.
"""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capspoe.errors import RunError
from capspoe.figures.svg import document, number, tag, text

WIDTH, HEIGHT, _GAP = 560, 260, 24
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 16, 58, 40
_POINTS = 400  # of a line; more cannot be told apart
_NUMBERS = {  # that a line of metrics.jsonl has, by the stage it is of
    "autoencoder": ("step", "images_per_second", "loss"),
    "capsules": ("step", "images_per_second", "reconstruction", "baseline", "confidence", "temperature"),
}


class Series(NamedTuple):
    name: str
    values: np.ndarray  # (n,)


class Chart(NamedTuple):
    title: str
    step: np.ndarray  # (n,)
    series: list[Series]  # one or two that are named, or many that are alike
    logarithmic: bool = False
    many: bool = False
    level: float | None = None  # where equal use would be


def read_metrics(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The lines of metrics.jsonl by stage, in order; a last line cut short by a kill is left out."""
    stages: dict[str, list[dict[str, Any]]] = defaultdict(list)
    try:
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{folder / 'metrics.jsonl'} cannot be read: {error}") from error
    for position, line in enumerate(lines):
        try:
            values = json.loads(line)
            check_line(values)
            earlier = stages[values["stage"]]
            if earlier and len(values.get("use", ())) != len(earlier[0].get("use", ())):
                raise ValueError("another number of capsules")
            earlier.append(values)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if position < len(lines) - 1:
                raise RunError(f"{folder / 'metrics.jsonl'} is damaged in line {position + 1}") from error
    return dict(stages)


def check_line(values: dict[str, Any]) -> None:
    """Refuse a line without the numbers that are drawn."""
    kind = values["stage"].partition("-")[0]
    for name in _NUMBERS[kind]:
        float(values[name])
    if kind == "capsules" and np.array(values["use"], dtype=float).ndim != 1:
        raise ValueError("use is no list")


def charts(stages: dict[str, list[dict[str, Any]]]) -> list[Chart]:
    """Stage 1: its loss. Stage 2, for each layer: the error, the gate, and how much each capsule is used."""
    found = []
    for stage, lines in stages.items():
        step = np.array([line["step"] for line in lines])
        columns = {name: np.array([line[name] for line in lines]) for name in lines[0] if name != "stage"}
        if stage == "autoencoder":
            loss = Series("cross-entropy per pixel", columns["loss"])
            found.append(Chart("Stage 1: loss of the autoencoder", step, [loss], logarithmic=True))
            continue
        depth = int(stage.rpartition("-")[2]) + 1
        layers = sum(name.startswith("capsules-") for name in stages)
        where = "Stage 2" if layers == 1 else f"Stage 2, layer {depth}"
        error = [
            Series("through the capsules", columns["reconstruction"]),
            Series("by the mean code", columns["baseline"]),
        ]
        found.append(Chart(f"{where}: error of the code", step, error))
        shares = columns["use"]
        if np.allclose(shares.sum(-1), 1, atol=1e-3):  # exactly one capsule is on
            sure = Series("mean", columns["confidence"])
            found.append(Chart(f"{where}: probability of the winner", step, [sure]))
            heat = Series("T", columns["temperature"])
            found.append(Chart(f"{where}: temperature of the gate", step, [heat], logarithmic=True))
            title, even = f"{where}: share of use, a line a capsule", 1 / shares.shape[1]
        else:
            title, even = f"{where}: mean probability of being on, a line a capsule", None
        use = [Series(f"capsule {j}", values) for j, values in enumerate(shares.T)]
        found.append(Chart(title, step, use, many=True, level=even))
    return found


def ticks(low: float, high: float, logarithmic: bool = False) -> list[float]:
    """About five round numbers within the range."""
    if logarithmic:
        for digits in ((1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7)):
            found = [m * 10.0**e for e in range(-12, 13) for m in digits if low <= m * 10.0**e <= high]
            if len(found) >= 4:
                break
        return found[:: max(1, -(-len(found) // 6))]
    raw = (high - low) / 6
    size = 10.0 ** np.floor(np.log10(raw))
    unit = size * next(m for m in (1, 2, 5, 10) if m * size >= raw * 0.999)
    return [float(unit * k) for k in range(int(np.ceil(low / unit - 1e-9)), int(high / unit + 1e-9) + 1)]


def chart_svg(chart: Chart, x0: float = 0, y0: float = 0) -> str:
    """One chart as a group."""
    values = np.concatenate([s.values for s in chart.series])
    low, high = (
        (float(values.min()), float(values.max())) if chart.logarithmic else (0.0, float(values.max()))
    )
    if high <= low:
        low, high = low - 0.5, high + 0.5
    high = high * 1.02 if not chart.logarithmic else high
    last = max(float(chart.step[-1]), 1.0)

    def px(step: np.ndarray | float) -> Any:
        return x0 + _LEFT + (WIDTH - _LEFT - _RIGHT) * np.asarray(step) / last

    def py(value: np.ndarray | float) -> Any:
        v, a, b = (
            np.log(np.maximum(q, 1e-12)) if chart.logarithmic else np.asarray(q) for q in (value, low, high)
        )
        return y0 + HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * (v - a) / (b - a)

    parts = [text(x0 + 4, y0 + 20, chart.title, 15, font_weight="600")]
    for value in ticks(low, high, chart.logarithmic):
        y = float(py(value))
        line = f"M{number(x0 + _LEFT)} {number(y)}H{number(x0 + WIDTH - _RIGHT)}"
        parts.append(tag("path", d=line, class_="frame"))
        parts.append(text(x0 + _LEFT - 8, y + 4, f"{value:.4g}", 12, "quiet", text_anchor="end"))
    for value in ticks(0, last):
        place = {"text_anchor": "end" if float(px(value)) > x0 + WIDTH - _RIGHT - 20 else "middle"}
        parts.append(
            text(float(px(value)), y0 + HEIGHT - _BOTTOM + 20, f"{value:,.0f}", 12, "quiet", **place)
        )
    parts.append(text(x0 + WIDTH - _RIGHT, y0 + HEIGHT - 4, "steps", 12, "quiet", text_anchor="end"))
    named = not chart.many
    chosen = np.unique(np.linspace(0, len(chart.step) - 1, _POINTS).astype(int))
    legend_x = x0 + _LEFT
    for k, series in enumerate(chart.series):
        points = " ".join(
            f"{number(float(a))},{number(float(b))}"
            for a, b in zip(px(chart.step[chosen]), py(series.values[chosen]), strict=True)
        )
        css = f"series-{k}" if named else "many"
        width = 2.2 if named else 1.2
        parts.append(
            tag("polyline", points=points, class_=css, stroke_width=width, stroke_linejoin="round",
                data_series=series.name)
        )  # fmt: skip
        if named:
            final = f"{series.name}, at last {series.values[-1]:.3g}"
            parts.append(
                tag("path", d=f"M{number(legend_x)} {number(y0 + 38)}h18", class_=css, stroke_width=3)
            )
            parts.append(text(legend_x + 24, y0 + 42, final, 12, "quiet"))
            legend_x += 40 + 6.4 * len(final)
    if chart.level is not None:
        even = chart.level
        line = f"M{number(x0 + _LEFT)} {number(float(py(even)))}H{number(x0 + WIDTH - _RIGHT)}"
        parts.append(tag("path", d=line, class_="series-1", stroke_width=1.6, stroke_dasharray="5 4"))
        parts.append(tag("path", d=f"M{number(legend_x)} {number(y0 + 38)}h18", class_="series-1", stroke_width=2,
                         stroke_dasharray="5 4"))  # fmt: skip
        parts.append(text(legend_x + 24, y0 + 42, f"equal use, {even:.3g}", 12, "quiet"))
    return tag("g", "".join(parts), data_role="chart")


def chart_document(chart: Chart) -> str:
    """One chart that stands alone."""
    ends = ", ".join(f"{s.name} from {s.values[0]:.3g} to {s.values[-1]:.3g}" for s in chart.series[:2])
    many = f"{len(chart.series)} lines, one a capsule" if chart.many else ends
    words = f"{chart.title}, over {int(chart.step[-1])} steps: {many}."
    return document(WIDTH, HEIGHT, chart.title, words, chart_svg(chart))


def curves_document(found: list[Chart]) -> str:
    """All charts, two beside each other."""
    rows = -(-len(found) // 2)
    body = "".join(
        chart_svg(chart, 20 + k % 2 * (WIDTH + _GAP), 16 + k // 2 * (HEIGHT + _GAP))
        for k, chart in enumerate(found)
    )
    size = (2 * WIDTH + _GAP + 40, rows * (HEIGHT + _GAP) + 16)
    titles = "; ".join(chart.title for chart in found)
    return document(*size, "The course of training", f"Line charts: {titles}.", body)
