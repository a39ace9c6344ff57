"""docs/results.md from trained and evaluated runs: python benchmarks/results.py [RUN ...]  (default: runs/*)

benchmarks/records/NAME.json keeps what the page needs of each finished run, and the page is written from all records:
results may come from several machines, and stay when the runs are gone. A run belongs to a section if it has the
settings of a preset, whatever its seed. Runs that differ only in their seed are averaged; ± is half the range across
seeds. The text around the tables is in benchmarks/results.md.in; a paragraph whose numbers are missing says so.
"""

import itertools
import json
import os
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from scores import Evaluation, number, table

from capspoe.config import FREE_TO_CHANGE, Config, preset
from capspoe.errors import RunError
from capspoe.evaluate.baselines import ABLATIONS
from capspoe.run import checkpoint

HERE = Path(__file__).parent
DOCS = Path(os.path.relpath(HERE.parent / "docs"))
RECORDS = Path(os.path.relpath(HERE / "records"))
FULL = "evaluation-full.json"  # an evaluation without --quick, kept beside the quick one of every seed
EVALUATIONS = {"quick": "evaluation.json", "full": FULL}
KINDS = {  # what follows a data set's name: small, paper, ...
    "small": {},
    "paper": {"name": "paper"},
    "literal": {"literal": True},
    "stack": {"layers": "64x16,20x16"},
    "chains": {"chains": 32},
}
PART = r"\{\{(.+?)\}\}"  # what the text asks for
Record = dict[str, Any]


def section_of(config: Config) -> str | None:
    """'mnist paper' for the settings of that preset; None when they are others."""
    free = {name: getattr(config, name) for name in ("seed", *FREE_TO_CHANGE)}
    for kind, of_preset in KINDS.items():
        rest = {name: value for name, value in of_preset.items() if name in ("name", "literal")}
        changed = {name: value for name, value in of_preset.items() if name not in rest}
        if config == preset(data=config.data, **rest).replace(**changed, **free):
            return f"{config.data} {kind}"
    return None


def finished(folder: Path) -> bool:
    return bool(checkpoint.numbered(folder)) and checkpoint.newest(folder).state.stage == checkpoint.DONE


def record_of(folder: Path) -> Record:
    """What the page needs of a finished run, with whatever evaluations it has."""
    config = checkpoint.open_run(folder).config
    return {
        "run": folder.name,
        "section": section_of(config),
        "settings": f"{section_of(config) or config.data}, seed {config.seed} "
        f"({config.channels} channels, {config.layers} capsules)",
        "minutes": round(checkpoint.newest(folder).state.seconds / 60, 2),
        **{
            name: shortened(json.loads((folder / file).read_text()))
            for name, file in EVALUATIONS.items()
            if (folder / file).exists()
        },
    }


def shortened(evaluation: Evaluation) -> Evaluation:
    """The part of an evaluation that the page shows."""
    kept = {name: evaluation[name] for name in evaluation if name != "data"}
    long = ("table", "sample_class_entropy")
    kept["clustering"] = {k: v for k, v in evaluation["clustering"].items() if k not in long}
    kept["instantiation"] = {
        basis: {name: found["share_of_capsules"] for name, found in measures.items()}
        for basis, measures in evaluation["instantiation"].items()
    }
    return kept


def keep(folders: list[Path], records: Path) -> None:
    """Write records of the finished runs; a run that cannot be read, such as one of an older version, is left out."""
    records.mkdir(exist_ok=True)
    for folder in folders:
        try:
            if checkpoint.exists(folder) and finished(folder):
                text = json.dumps(record_of(folder), indent=1)
                (records / f"{folder.name}.json").write_text(text + "\n")
        except RunError as error:
            print(f"results: {folder} is left out: {error}", file=sys.stderr)


def parts(evaluations: list[Evaluation]) -> dict[str, str]:
    """What the text may ask of a section; what these evaluations do not have is left out."""
    names = list(dict.fromkeys(row["name"] for e in evaluations for row in e["rows"]))
    off = [n for n in names if n.removesuffix(", the paper's sampling") in ABLATIONS]
    first = evaluations[0]
    capsules = [e["clustering"] for e in evaluations]
    found = {
        "models": table(evaluations, [n for n in names if n not in off]),
        "seeds": f"{len(evaluations)} seed{'s' if len(evaluations) > 1 else ''}",
        "samples": f"{first['settings']['samples']:,}",
        "alive": ", ".join(f"{c['alive']} of {c['capsules']}" for c in capsules),
    }
    if off:
        found["ablation"] = table(evaluations, ["capspoe", *off])
    if net := first["feature_net"]:
        found["net"] = f"{100 * net['test_accuracy']:.2f}% test accuracy, sha256 `{net['sha256'][:12]}`"
        found["one_to_one"] = number([c["one_to_one"] for c in capsules], 3)
        found["entropy"] = number([c["mean_sample_class_entropy"] for c in capsules], 3)
        probes = {k: number([e["probe"][k] for e in evaluations], 3) for k in first["probe"]}
        found["probes"] = ", ".join(f"{k} {v}" for k, v in probes.items())
    if first["likelihood"]:
        found["likelihood"] = likelihood_of(first["likelihood"])
    for basis, measures in first["instantiation"].items():
        shares = {m: [100 * e["instantiation"][basis][m] for e in evaluations] for m in measures}
        found[basis] = ", ".join(f"{m} {number(share, 0)}%" for m, share in shares.items())
    return found


def likelihood_of(found: dict[str, Any]) -> str:
    lower, upper, alone = (found[f"log_p_{name}"] for name in ("lower", "upper", "independent"))
    return f"between {lower:.0f} and {upper:.0f} nats a code (independent units: {alone:.0f})"


def all_parts(records: list[Record], docs: Path = DOCS) -> dict[str, str]:
    """Every part by its name in the text: 'mnist small models', 'mnist paper picture', 'minutes', ..."""
    sections: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if record["section"]:
            sections[record["section"]].append(record)
    found = {}
    for section, members in sections.items():
        quick = [r["quick"] for r in members if "quick" in r]
        made = parts(quick) if quick else {}
        if full := [r["full"] for r in members if "full" in r]:
            made["full"] = parts(full)["models"]
            made |= {name: text for name, text in parts(full).items() if name in ("likelihood", "neurons")}
        picture = Path("figures") / f"{section.replace(' ', '-')}.png"
        if (docs / picture).exists():
            made["picture"] = f"![Four samples of each capsule, {section}]({picture})"
        found |= {f"{section} {part}": text for part, text in made.items()}
    if records:
        found["minutes"] = minutes_table(records)
    if "\n| " in (energy := energy_table(records)):
        found["energy"] = energy
    if (docs / "figures" / "routing.svg").exists():
        found["routing"] = "![The paper's Figure 1 from a run](figures/routing.svg)"
    return found


def energy_table(records: list[Record]) -> str:
    """What the energy is worth as a model, after contrastive divergence and with persistent chains."""
    titles = "FID, fitted prior | both scales 1 | the energy's own samples | their recall | log P of a code"
    titles += " | independent units | log Z, difference of both estimates | purity"
    lines = [f"| training | seeds | {titles} |", "|---" * 10 + "|"]
    for data, kind in itertools.product(("mnist", "fashion-mnist"), ("small", "chains")):
        found = [r["quick"] for r in records if r["section"] == f"{data} {kind}" and "quick" in r]
        rows = [{row["name"]: row for row in e["rows"]} for e in found]
        p = [e["likelihood"] for e in found]
        if not found or not all("capspoe, both scales 1" in row for row in rows):
            continue
        names = ("capspoe", "capspoe, both scales 1", "capspoe, the energy's own samples")
        cells = [
            *(number([row[name]["fid"] for row in rows], 1) for name in names),
            number([row[names[2]]["recall"] for row in rows], 3),
            number([(each["log_p_lower"] + each["log_p_upper"]) / 2 for each in p], 0),
            number([each["log_p_independent"] for each in p], 0),
            number([abs(each["log_z_upper"] - each["log_z_lower"]) for each in p], 1),
            number([row["capspoe"]["purity"] for row in rows], 3),
        ]
        how = "`--chains 32`" if kind == "chains" else "contrastive divergence"
        lines.append(f"| {data}, {how} | {len(found)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def clustering_table(rows: list[Record]) -> str:
    """The rows of benchmarks/clustering.py: scores of the clustered training images and of test images."""
    lines = ["| method | seeds | ACC | NMI | ARI | test ACC | test NMI | test ARI |", "|---" * 8 + "|"]
    for name in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == name]
        cells = [str(len(own))]
        for part in ("train", "test"):
            for score in ("acc", "nmi", "ari"):
                cells.append(number([row[part][score] for row in own], 3) if own[0][part] else "")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def completion_parts(rows: list[Record]) -> dict[str, str]:
    """The rows of benchmarks/completion.py."""
    lines = ["| method | seeds | mean of the completions | one completion |", "|---" * 4 + "|"]
    means = {}
    for name in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == name]
        means[name] = sum(row["error"] for row in own) / len(own)
        one = number([row["error_of_one"] for row in own], 1) if own[0]["draws"] > 1 else ""
        lines.append(f"| {name} | {len(own)} | {number([row['error'] for row in own], 1)} | {one} |")
    ours = means["capsules: posterior of the pose"]
    less = {name: f"{abs(1 - ours / means[name]):.0%} {'less' if ours < means[name] else 'more'}" for name in means}
    verdict = (
        f"The posterior of the pose, which `capspoe complete` draws from, has {less['nearest neighbour']} error than "
        f"the nearest neighbour, {less['PCA, conditional Gaussian']} than PCA, and "
        f"{less['20 nearest neighbours']} than the mean of 20 neighbours."
    )
    seeds = sorted({row["seed"] for row in rows})
    return {
        "completion": "\n".join(lines),
        "completion verdict": verdict,
        "completion images": str(rows[0]["images"]),
        "completion seeds": f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}",
    }


def anomaly_parts(rows: list[Record]) -> dict[str, str]:
    """The rows of benchmarks/anomaly.py."""
    columns = list(dict.fromkeys((row["data"], kind) for row in rows for kind in next(iter(row["auroc"].values()))))
    lines = [f"| score | {' | '.join(f'{data} against {kind}' for data, kind in columns)} |"]
    lines.append("|---" * (1 + len(columns)) + "|")
    for name in rows[0]["auroc"]:
        cells = [number([r["auroc"][name][kind] for r in rows if r["data"] == data], 4) for data, kind in columns]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    z = ["| run | lower | upper | largest difference in a capsule |", "|---" * 4 + "|"]
    for row in rows:
        worst, (lower, upper) = max(map(abs, row["gaps"])), row["log_z"].values()
        z.append(f"| {row['data']}, seed {row['seed']} | {lower:.1f} | {upper:.1f} | {worst:.2f} |")
    return {"anomaly": "\n".join(lines), "anomaly images": f"{rows[0]['images']:,}", "log z": "\n".join(z)}


def vae_parts(record: Record) -> dict[str, str]:
    """The rows of benchmarks/vae.py."""
    return {"vae": table([record], [row["name"] for row in record["rows"]])}


def minutes_table(records: list[Record]) -> str:
    lines = ["| run | settings | training | evaluation |", "|---|---|---|---|"]
    for record in records:
        evaluated = f"{record['quick']['seconds'] / 60:.1f} min" if "quick" in record else "none"
        lines.append(f"| `runs/{record['run']}` | {record['settings']} | {record['minutes']:.1f} min | {evaluated} |")
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
            named = missing if len(missing) == 1 else sections
            paragraphs.append(f"*Not measured yet: {', '.join(named)}. `make reproduce` does it.*")
            missing = []
        paragraphs.append(re.sub(PART, lambda match: found[match.group(1)], paragraph))
    return "\n\n".join(paragraphs).rstrip() + "\n"


def write(folders: list[Path], docs: Path = DOCS, records: Path = RECORDS) -> Path:
    keep(folders, records)
    text = (HERE / "results.md.in").read_text()
    page = docs / "results.md"
    stored = [json.loads(path.read_text()) for path in sorted(records.glob("*.json"))]
    known = [record for record in stored if "section" in record]  # the others are not of runs
    found = all_parts(known, docs)
    if (records / "clustering.json").exists():
        found["clustering"] = clustering_table(json.loads((records / "clustering.json").read_text()))
    parts_of = {"completion-mnist": completion_parts, "anomaly": anomaly_parts, "vae": vae_parts}
    for name, make in parts_of.items():
        if (records / f"{name}.json").exists():
            found |= make(json.loads((records / f"{name}.json").read_text()))
    page.write_text(fill(text, found))
    return page


if __name__ == "__main__":
    print(write([Path(a) for a in sys.argv[1:]] or sorted(p for p in Path("runs").glob("*") if p.is_dir())))
