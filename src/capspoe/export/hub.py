"""The layout of a model on the Hugging Face Hub; `CapsulePoE.load` reads it like a run folder.

README.md            the model card: settings, scores, a picture
config.json          the settings, as in a run folder, and the SHA-256 of the weights
model.safetensors    the weights
samples.png          the paper's Figure 3
"""

import dataclasses
import hashlib
import json
from pathlib import Path

from capspoe import __version__
from capspoe.errors import RunError
from capspoe.run.atomic import disk_errors, write_atomic
from capspoe.run.checkpoint import EXPORTED, json_bytes, settings, tensor_bytes
from capspoe.run.model import CapsulePoE
from capspoe.run.pictures import write_sample_grid

CARD = """\
---
library_name: capspoe
pipeline_tag: unconditional-image-generation
{datasets}tags: [capsule-networks, routing-by-agreement, energy-based-model, unsupervised-learning]
---

# Capsules trained without labels on {name}

{I}x{M} lower and {J}x{N} upper capsules on images of {image}, trained by capspoe {version} after Hauser 2019,
*Training capsules as a routing-weighted product of expert neurons* (arXiv 1907.11639).

![Samples, one column for each capsule](samples.png)

Each column is one capsule, switched on alone. Nothing is hand-picked.

## Use

```python
import capspoe

model = capspoe.CapsulePoE.load("path/to/this/folder")
images = model.sample(20).images
on, hidden = model.encode(images)
```

## Scores

{scores}

## Settings

| setting | value |
|---|---|
{settings}

## Limits

The network was trained on one data set at one size; it encodes other images poorly. It may generate images close to
those it was trained on.
"""


def write(model: CapsulePoE, run: Path, folder: Path) -> list[Path]:
    """Write the network of a run with its model card."""
    if (folder / "checkpoints").exists():
        raise RunError(f"{folder} is a run folder; export to another one")
    weights = tensor_bytes(model.state_dict(), {"format": "pt"})
    config = settings(model.config, model.image, weights_sha256=hashlib.sha256(weights).hexdigest())
    with disk_errors(folder):
        write_sample_grid(model, folder / "samples.png")
        write_atomic(folder / EXPORTED, weights)
        write_atomic(folder / "config.json", json_bytes(config))
        write_atomic(folder / "README.md", card(model, run).encode(errors="replace"))
    return [folder / name for name in ("README.md", "config.json", EXPORTED, "samples.png")]


def card(model: CapsulePoE, run: Path) -> str:
    """The model card."""
    name, (height, width, channels) = Path(model.config.data).name, model.image
    (I, M), (J, N) = model.stack[0].lower, model.top.upper
    public = name in ("mnist", "fashion-mnist", "cifar10")
    rows = {key: value for key, value in dataclasses.asdict(model.config).items() if key != "data"}
    return CARD.format(
        datasets=f"datasets: [{name}]\n" if public else "",
        name=name,
        I=I,
        M=M,
        J=J,
        N=N,
        image=f"{height}x{width} with {channels} channel{'s' if channels > 1 else ''}",
        version=__version__,
        scores=scores(run) or "None: `capspoe evaluate` had not been run before the export.",
        settings="\n".join(f"| {key} | {value} |" for key, value in rows.items()),
    )


def scores(run: Path) -> str:
    """The table of `capspoe evaluate`; empty if it has not been run."""
    try:
        rows = json.loads((run / "evaluation.json").read_text(encoding="utf-8"))["rows"]
        rows = [row for row in rows if "failed" not in row]
        keys = [key for key in dict.fromkeys(k for row in rows for k in row) if key != "name"]
        lines = [[row["name"], *(_cell(row.get(key)) for key in keys)] for row in rows]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""
    if not lines:
        return ""
    table = [["model", *keys], ["---"] * (1 + len(keys)), *lines]
    table_text = "\n".join(f"| {' | '.join(map(str, line))} |" for line in table)
    return f"By `capspoe evaluate`, on the test images:\n\n{table_text}"


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
