"""docs/results.md from trained and evaluated runs: python benchmarks/results.py [RUN ...]  (default: runs/*)

A run belongs to a section of the page when its settings are those of a preset, whatever its seed. Runs that differ
in their seed alone are averaged; the number after ± is half of what they span. The text around the tables stands in
benchmarks/results.md.in; a paragraph whose numbers are not there says so.
"""

import json
import os
import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any

from capspoe import checkpoint
from capspoe.config import Config, preset
from capspoe.errors import RunError
from capspoe.evaluate.ablation import DRAWN, TRAINED
from capspoe.training import FREE_TO_CHANGE, finished

HERE = Path(__file__).parent
DOCS = Path(os.path.relpath(HERE.parent / "docs"))
FULL = "evaluation-full.json"  # an evaluation without --quick, kept beside the quick one of every seed
COLUMNS = {
    "fid": ("FID", 1),
    "precision": ("precision", 3),
    "recall": ("recall", 3),
    "purity": ("purity", 3),
    "nmi": ("NMI", 3),
    "probe": ("probe", 3),
}
KINDS = {  # what follows a data set's name: small, paper, ...
    "small": {},
    "paper": {"name": "paper"},
    "literal": {"literal": True},
    "paper-literal": {"name": "paper", "literal": True},
}
PART = r"\{\{(.+?)\}\}"  # what the text asks for
Evaluation = dict[str, Any]


@dataclass(frozen=True)
class Finished:
    """A run that came to its end."""

    folder: Path
    config: Config

    @cached_property
    def section(self) -> str | None:
        """'mnist paper' for a run with the settings of that preset; None when they are others."""
        data, own = self.config.data.data, self.config.training
        for kind, of_preset in KINDS.items():
            free = {name: getattr(own, name) for name in ("seed", *FREE_TO_CHANGE)}
            if self.config == preset(data=data, **of_preset).replace(**free):
                return f"{data} {kind}"
        return None

    @property
    def minutes(self) -> float:
        return checkpoint.newest(self.folder).state.seconds / 60

    def evaluation(self, name: str = "evaluation.json") -> Evaluation | None:
        path = self.folder / name
        return json.loads(path.read_text()) if path.exists() else None


def find(folders: list[Path]) -> list[Finished]:
    """The finished runs among the folders; what cannot be read, such as one of an older version, is left out."""
    found = []
    for folder in folders:
        try:
            if checkpoint.exists(folder) and finished(folder):
                found.append(Finished(folder, checkpoint.open_run(folder).config))
        except RunError as error:
            print(f"results: {folder} is left out: {error}", file=sys.stderr)
    return found


def number(values: list[float], digits: int) -> str:
    """The mean, and half the span where there are several values."""
    spread = f" ± {(max(values) - min(values)) / 2:.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{spread}"


def table(evaluations: list[Evaluation], names: list[str]) -> str:
    lines = ["| model | " + " | ".join(title for title, _ in COLUMNS.values()) + " |", "|---" * 7 + "|"]
    for name in names:
        rows = [row for e in evaluations for row in e["rows"] if row["name"] == name]
        cells = []
        for key, (_, digits) in COLUMNS.items():
            values = [row[key] for row in rows if row.get(key) is not None]
            cells.append(number(values, digits) if values else "")
        failed = [row["failed"] for row in rows if "failed" in row]
        lines.append(f"| {name}{f' (failed: {failed[0]})' if failed else ''} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def parts(evaluations: list[Evaluation]) -> dict[str, str]:
    """What the text may ask of a section; what these evaluations do not have is left out."""
    names = list(dict.fromkeys(row["name"] for e in evaluations for row in e["rows"]))
    off = [n for n in names if n in TRAINED or n in DRAWN]
    plain = [n for n in names if n not in off and n.removesuffix(", the paper's sampling") not in off]
    first = evaluations[0]
    capsules = [e["specialisation"] for e in evaluations]
    found = {
        "models": table(evaluations, plain),
        "seeds": f"{len(evaluations)} seed{'s' if len(evaluations) > 1 else ''}",
        "samples": f"{first['settings']['samples']:,}",
        "alive": ", ".join(f"{c['alive']} of {c['capsules']}" for c in capsules),
    }
    if off:
        found["ablation"] = table(evaluations, ["capspoe", *off])
    if net := first["feature_net"]:
        found["net"] = f"{100 * net['test_accuracy']:.2f} % test accuracy, sha256 `{net['sha256'][:12]}`"
        found["one_to_one"] = number([c["one_to_one"] for c in capsules], 3)
        found["entropy"] = number([c["mean_sample_class_entropy"] for c in capsules], 3)
        probes = {k: number([e["probe"][k] for e in evaluations], 3) for k in first["probe"]}
        found["probes"] = ", ".join(f"{k} {v}" for k, v in probes.items())
    axes = [e["instantiation"].get("axes") for e in evaluations]
    if all(axes):
        shares = {m: [a["measures"][m]["share_of_capsules"] for a in axes] for m in axes[0]["measures"]}
        found["dimensions"] = ", ".join(f"{m} {number([100 * s for s in v], 0)} %" for m, v in shares.items())
    return found


def all_parts(runs: list[Finished], docs: Path = DOCS) -> dict[str, str]:
    """Every part by its name in the text: 'mnist small models', 'mnist paper picture', 'minutes', ..."""
    sections: dict[str, list[Finished]] = defaultdict(list)
    for run in runs:
        if run.section:
            sections[run.section].append(run)
    found = {}
    for section, members in sections.items():
        data, kind = section.split()
        made = parts(evaluations) if (evaluations := [e for r in members if (e := r.evaluation())]) else {}
        if full := next((e for r in members if (e := r.evaluation(FULL))), None):
            made["full"] = parts([full])["models"]
        picture = Path("figures") / f"{data}-{kind}.png"
        if (docs / picture).exists():
            made["picture"] = f"![Four samples of each capsule, {data}, {kind}]({picture})"
        found |= {f"{section} {part}": text for part, text in made.items()}
    if runs:
        found["minutes"] = minutes_table(runs)
    if (docs / "figures" / "routing.svg").exists():
        found["routing"] = "![The paper's Figure 1 from a run](figures/routing.svg)"
    return found


def minutes_table(runs: list[Finished]) -> str:
    lines = ["| run | settings | training | evaluation |", "|---|---|---|---|"]
    for run in runs:
        config, spent = run.config, [e["seconds"] / 60 for e in [run.evaluation()] if e]
        size = f"{config.autoencoder.channels} channels, {config.capsules.layers} capsules"
        known = f"{run.section or config.data.data}, seed {config.training.seed} ({size})"
        evaluated = f"{spent[0]:.1f} min" if spent else "none yet"
        lines.append(f"| `runs/{run.folder.name}` | {known} | {run.minutes:.1f} min | {evaluated} |")
    return "\n".join(lines)


def fill(text: str, found: dict[str, str]) -> str:
    """The text with its parts; paragraphs that lack one become a line that says what is missing."""
    paragraphs: list[str] = []
    missing: list[str] = []
    for paragraph in [*text.split("\n\n"), ""]:
        absent = [name for name in re.findall(PART, paragraph) if name not in found]
        missing += absent
        if absent:
            continue
        if missing:
            sections = dict.fromkeys(" ".join(name.split()[:2]) for name in missing)
            told = missing if len(missing) == 1 else sections
            paragraphs.append(f"*Not measured yet: {', '.join(told)}. `make reproduce` does it.*")
            missing = []
        paragraphs.append(re.sub(PART, lambda match: found[match.group(1)], paragraph))
    return "\n\n".join(paragraphs).rstrip() + "\n"


def write(folders: list[Path], docs: Path = DOCS) -> Path:
    text = (HERE / "results.md.in").read_text()
    page = docs / "results.md"
    page.write_text(fill(text, all_parts(find(folders), docs)))
    return page


if __name__ == "__main__":
    print(write([Path(a) for a in sys.argv[1:]] or sorted(p for p in Path("runs").glob("*") if p.is_dir())))
