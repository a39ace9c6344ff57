"""Records of finished runs: settings, minutes and evaluations, which stay when the run folders are gone."""

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks import records
from capspoe.config import FREE_TO_CHANGE, Config, preset
from capspoe.errors import RunError
from capspoe.run import checkpoint

DEPENDS = (*records.TRAINING, "evaluate", "infer")
QUICK = "evaluation.json"
FULL = "evaluation-full.json"  # an evaluation without --quick, beside the quick one of every seed
PRESETS: dict[str, dict[str, Any]] = {  # arguments of `preset` for the second word of a section
    "small": {},
    "paper": {"name": "paper"},
    "literal": {"literal": True},
    "stack": {},
    "cd": {},
    "chains": {},
    "twenty": {},
}
CHANGES: dict[str, dict[str, Any]] = {  # settings that differ from the preset
    "stack": {"layers": "64x16,20x16"},
    "cd": {"chains": 0, "learning_rate": 3e-3, "epochs": 10},
    "chains": {"chains": 4, "learning_rate": 1e-3},
    "twenty": {"layers": "20x16"},
}
Record = dict[str, Any]


def section_of(config: Config) -> str | None:
    """The section of docs/results.md that a run belongs to, such as 'mnist paper'; None for other settings."""
    free = {name: getattr(config, name) for name in ("seed", *FREE_TO_CHANGE)}
    for kind, arguments in PRESETS.items():
        settings = preset(data=config.data, **arguments).replace(**CHANGES.get(kind, {}), **free)
        if config == settings:
            return f"{config.data} {kind}"
    return None


def finished(folder: Path) -> bool:
    if not checkpoint.numbered(folder):
        return False
    return checkpoint.newest(folder).state.stage == checkpoint.DONE


def record_of(folder: Path) -> Record:
    """What docs/results.md needs of a finished run, with the evaluations that exist."""
    config = checkpoint.open_run(folder).config
    section = section_of(config)
    sizes = f"{config.channels} channels, {config.layers} capsules"
    record = {
        "run": folder.name,
        "section": section,
        "settings": f"{section or config.data}, seed {config.seed} ({sizes})",
        "minutes": round(checkpoint.newest(folder).state.seconds / 60, 2),
    }
    for name, file in (("quick", QUICK), ("full", FULL)):
        if (folder / file).exists():
            record[name] = shortened(json.loads((folder / file).read_text()))
    return record


def shortened(evaluation: Record) -> Record:
    """An evaluation without its long tables."""
    short = {name: value for name, value in evaluation.items() if name != "data"}
    short["clustering"] = {
        name: value
        for name, value in evaluation["clustering"].items()
        if name not in ("table", "sample_class_entropy")
    }
    short["instantiation"] = {}
    for basis, measures in evaluation["instantiation"].items():
        shares = {name: measure["share_of_capsules"] for name, measure in measures.items()}
        short["instantiation"][basis] = shares
    return short


def keep(folders: list[Path], folder_of_records: Path) -> None:
    """Write records of the finished runs; a run that cannot be read, such as one of an older version, is left out."""
    folder_of_records.mkdir(exist_ok=True)
    for folder in folders:
        try:
            if not checkpoint.exists(folder) or not finished(folder):
                continue
            record = record_of(folder)
        except RunError as error:
            print(f"results: {folder} is left out: {error}", file=sys.stderr)
            continue
        # A run that is on record already was made by the commit that its header names, not by this one.
        if record != records.read(folder.name, folder=folder_of_records):
            records.write(folder.name, record, DEPENDS, commit_is=records.AT_OR_BEFORE, folder=folder_of_records)
