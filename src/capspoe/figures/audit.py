"""What routing does in a layer: its weights beside controls, and the use of the capsules."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from capspoe.figures.sheet import ACCENT, BAR, DPI, LINE, PAPER, QUIET, TEXT
from capspoe.infer.audit import RoutingAudit


def draw_audit(audit: RoutingAudit, title: str = "Routing audit") -> Figure:
    """Bars for each control, the use of each upper capsule, and the findings in words."""
    layout = ConstrainedLayoutEngine(h_pad=0.15, w_pad=0.2)
    figure = Figure((13.2, 7.6), dpi=DPI, facecolor=PAPER, layout=layout)
    figure.suptitle(f"{title}, {audit.inputs:,} inputs", x=0.02, ha="left", color=TEXT, fontsize=17, weight="bold")
    panels: SubFigure
    words: SubFigure
    panels, words = figure.subfigures(2, 1, height_ratios=(3.4, 1))  # type: ignore[misc]  # an array of two
    axes = panels.subplots(1, 3 if audit.controls["routing"].accuracy is None else 4)
    names = list(audit.controls)
    controls = list(audit.controls.values())
    _bars(axes[0], "same capsule as with routing", names, [control.same_winner for control in controls], "{:.1%}")
    _bars(axes[1], "error of reconstructions", names, [control.reconstruction for control in controls], "{:.4f}")
    accuracy = [control.accuracy for control in controls if control.accuracy is not None]
    if accuracy:
        _bars(axes[2], "linear classifier", names, accuracy, "{:.3f}")
    for others in axes[1:-1]:  # they share the names of the first
        others.set_yticklabels([])
    _draw_use(axes[-1], audit)
    for k, line in enumerate(audit.summary()):
        words.text(0.02, 0.92 - 0.19 * k, line, color=TEXT, fontsize=12, va="top")
    return figure


def _bars(axes: Axes, title: str, names: Sequence[str], values: Sequence[float], form: str) -> None:
    """One bar for each control, the layer's own weights in another colour."""
    colours = [ACCENT] + [BAR] * (len(names) - 1)
    axes.barh(range(len(names)), values, color=colours, height=0.62)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    largest = max(values, default=0) or 1.0
    axes.set_xlim(0, 1.28 * largest)  # room for the numbers
    for k, value in enumerate(values):
        axes.text(value + 0.02 * largest, k, form.format(value), va="center", color=TEXT, fontsize=10)
    _plain(axes, title)
    axes.set_xticks([])


def _draw_use(axes: Axes, audit: RoutingAudit) -> None:
    use = sorted(audit.use, reverse=True)
    fed = len(use) - len(audit.starved_upper)
    axes.bar(range(len(use)), use, color=[BAR] * fed + [ACCENT] * (len(use) - fed), width=0.8)
    axes.axhline(sum(use) / len(use), color=QUIET, lw=1.2, ls="--")
    _plain(axes, "P(on) of the capsules")
    axes.set_xticks([])
    axes.grid(axis="y", color=LINE)
    axes.set_axisbelow(True)


def _plain(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", color=TEXT, fontsize=12, weight="bold")
    axes.set_facecolor(PAPER)
    axes.tick_params(length=0, labelcolor=QUIET)
    axes.spines[:].set_visible(False)
