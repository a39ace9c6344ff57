"""Time and memory of routing against B, I and J, from the results of benchmarks/run.py."""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

NAMES = {"B": "images in a batch", "I": "lower capsules", "J": "upper capsules"}


def draw(scaling: dict[str, list[dict[str, float]]], path: Path) -> None:
    figure, axes = plt.subplots(2, 3, figsize=(9, 4.6), sharey="row", layout="constrained")
    for column, (axis, points) in enumerate(scaling.items()):
        sizes = [point[axis] for point in points]
        top, bottom = axes[0, column], axes[1, column]
        top.plot(sizes, [point["microseconds"] for point in points], "o-", color="#0072b2")
        known = [point for point in points if "kernel_bytes" in point]
        for side, colour, mark in (("reference", "#d55e00", "s--"), ("kernel", "#0072b2", "o-")):
            values = [max(point[f"{side}_bytes"], 1) / 2**20 for point in known]
            bottom.plot([point[axis] for point in known], values, mark, color=colour, label=side)
        for panel in (top, bottom):
            panel.set_xscale("log", base=2)
            panel.set_yscale("log")
            panel.set_xticks(sizes, [f"{size:g}" for size in sizes])
            panel.grid(alpha=0.3)
        bottom.set_xlabel(f"{axis}: {NAMES[axis]}")
    axes[0, 0].set_ylabel("µs per image, kernel")
    axes[1, 0].set_ylabel("extra memory, MB")
    axes[1, 0].legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text())["scaling"], Path(sys.argv[2]))
