"""Write docs/results.md from trained and evaluated runs.

    python -m benchmarks.pages.results [RUN ...]        (default: all folders in runs/)

Every finished run gets a record, and the page is written from all records: results may come from several machines,
and stay when the runs are gone. A run belongs to a section if it has the settings of a preset, whatever its seed.
Runs that differ only in their seed are averaged; ± is half the range across seeds. The text around the tables is in
benchmarks/pages/results.md.in; a paragraph whose numbers are missing says so.
"""

import argparse
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import records
from benchmarks.pages import runs
from benchmarks.pages.markdown import fill, number, table
from benchmarks.pages.runs import Record
from capspoe.evaluate.baselines import ABLATIONS

# Relative to the working directory, so that printed paths are short.
DOCS = Path(os.path.relpath(records.ROOT / "docs"))
RECORDS = Path(os.path.relpath(records.FOLDER))
TEMPLATE = Path(__file__).parent / "results.md.in"

SCORES = {  # of an evaluation: title and digits
    "fid": ("FID", 1),
    "kid": ("KID", 2),
    "precision": ("precision", 3),
    "density": ("density", 2),
    "recall": ("recall", 3),
    "coverage": ("coverage", 3),
    "purity": ("purity", 3),
    "nmi": ("NMI", 3),
    "probe": ("probe", 3),
    "grid": ("grid", 4),
}
NEW_SCORES = ("grid",)  # of evaluations since version 0.2; tables without them have no such column
ENERGY_ROWS = {  # section: how it was trained
    "mnist cd": "mnist, contrastive divergence",
    "mnist small": "mnist, persistent chains",
    "fashion-mnist cd": "fashion-mnist, contrastive divergence",
    "fashion-mnist small": "fashion-mnist, persistent chains",
}
ENERGY_TITLES = (
    "training",
    "seeds",
    "FID, fitted prior",
    "both scales 1",
    "the energy's own samples",
    "their recall",
    "log P of a code",
    "independent units",
    "log Z, difference of both estimates",
    "purity",
)
Evaluation = dict[str, Any]
Parts = dict[str, str]  # what the template may ask for, by name


def evaluation_table(evaluations: list[Evaluation], models: list[str]) -> str:
    """A row for each model, averaged over the evaluations."""
    every_row = [row for evaluation in evaluations for row in evaluation["rows"]]
    columns = {
        score: about
        for score, about in SCORES.items()
        if score not in NEW_SCORES or any(score in row for row in every_row)
    }
    titles = ["model"]
    for title, _ in columns.values():
        titles.append(title)
    lines = []
    for model in models:
        rows = [row for row in every_row if row["name"] == model]
        failures = [row["failed"] for row in rows if "failed" in row]
        cells = [f"{model} (failed: {failures[0]})" if failures else model]
        for score, (_, digits) in columns.items():
            values = [row[score] for row in rows if row.get(score) is not None]
            cells.append(number(values, digits) if values else "")
        lines.append(cells)
    return table(titles, lines)


def section_parts(evaluations: list[Evaluation]) -> Parts:
    """What the template may ask of a section. Scores that these evaluations lack are left out."""
    models = list(dict.fromkeys(row["name"] for evaluation in evaluations for row in evaluation["rows"]))
    ablations = [model for model in models if model.removesuffix(", the paper's sampling") in ABLATIONS]
    first = evaluations[0]
    clusterings = [evaluation["clustering"] for evaluation in evaluations]
    parts = {
        "models": evaluation_table(evaluations, [model for model in models if model not in ablations]),
        "seeds": plural(len(evaluations), "seed"),
        "samples": samples_of(first["settings"]),
        "alive": ", ".join(f"{scores['alive']} of {scores['capsules']}" for scores in clusterings),
    }
    if ablations:
        parts["ablation"] = evaluation_table(evaluations, ["capspoe", *ablations])
    net = first["feature_net"]
    if net:
        parts["net"] = f"{100 * net['test_accuracy']:.2f}% test accuracy, sha256 `{net['sha256'][:12]}`"
        parts["one_to_one"] = number([scores["one_to_one"] for scores in clusterings], 3)
        parts["entropy"] = number([scores["mean_sample_class_entropy"] for scores in clusterings], 3)
        parts["probes"] = probes_of(evaluations)
    if first["likelihood"]:
        parts["likelihood"] = likelihood_of(first["likelihood"])
    for basis in first["instantiation"]:
        parts[basis] = instantiation_of(evaluations, basis)
    return parts


def samples_of(settings: dict[str, Any]) -> str:
    """How many samples were scored: one set of them, or several."""
    samples = f"{settings['samples']:,}"
    sets = settings.get("sets", 1)
    if sets == 1:
        return samples
    return f"{sets} x {samples}"


def link_to_record(record: Record) -> str:
    return f"[{record['run']}](../benchmarks/records/{record['run']}.json)"


def plural(count: int, noun: str) -> str:
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}s"


def probes_of(evaluations: list[Evaluation]) -> str:
    words = []
    for name in evaluations[0]["probe"]:
        accuracies = [evaluation["probe"][name] for evaluation in evaluations]
        words.append(f"{name} {number(accuracies, 3)}")
    return ", ".join(words)


def likelihood_of(likelihood: dict[str, float]) -> str:
    lower = likelihood["log_p_lower"]
    upper = likelihood["log_p_upper"]
    independent = likelihood["log_p_independent"]
    return f"between {lower:.1f} and {upper:.1f} nats a code (independent units: {independent:.1f})"


def instantiation_of(evaluations: list[Evaluation], basis: str) -> str:
    """The share of capsules in which an axis of the basis controls a measure, such as thickness."""
    words = []
    for measure in evaluations[0]["instantiation"][basis]:
        percent = [100 * evaluation["instantiation"][basis][measure] for evaluation in evaluations]
        words.append(f"{measure} {number(percent, 0)}%")
    return ", ".join(words)


def run_parts(run_records: list[Record], docs: Path = DOCS) -> Parts:
    """Every part that comes from runs: 'mnist small models', 'mnist paper picture', 'minutes', ..."""
    sections: dict[str, list[Record]] = defaultdict(list)
    for record in run_records:
        if record["section"]:
            sections[record["section"]].append(record)
    parts: Parts = {}
    for section, members in sections.items():
        own: Parts = {}
        quick = [record["quick"] for record in members if "quick" in record]
        if quick:
            own = section_parts(quick)
            own["seeds"] += f" ({', '.join(link_to_record(record) for record in members)})"
        full = [record["full"] for record in members if "full" in record]
        if full:
            full_parts = section_parts(full)
            own["full"] = full_parts["models"]
            for name in ("likelihood", "neurons"):
                if name in full_parts:
                    own[name] = full_parts[name]
        picture = Path("figures") / f"{section.replace(' ', '-')}.png"
        if (docs / picture).exists():
            own["picture"] = f"![Samples, {section}]({picture})"
        floors = picture.with_stem(f"{picture.stem}-floors")
        if (docs / floors).exists():
            own["floors"] = f"![Test images and their reconstructions, {section}]({floors})"
        for name, text in own.items():
            parts[f"{section} {name}"] = text
    if run_records:
        parts["minutes"] = minutes_table(run_records)
    energy = energy_rows(sections)
    if energy:
        parts["energy"] = table(ENERGY_TITLES, energy)
    if (docs / "figures" / "routing.svg").exists():
        parts["routing"] = "![The paper's Figure 1 from a run](figures/routing.svg)"
    return parts


def energy_rows(sections: dict[str, list[Record]]) -> list[list[str]]:
    """What the energy is worth as a model, after contrastive divergence and with persistent chains."""
    rows = []
    for section, training in ENERGY_ROWS.items():
        evaluations = [record["quick"] for record in sections.get(section, []) if "quick" in record]
        models = [{row["name"]: row for row in evaluation["rows"]} for evaluation in evaluations]
        likelihoods = [evaluation["likelihood"] for evaluation in evaluations]
        if not models or not all("capspoe, both scales 1" in named for named in models):
            continue
        fitted = [named["capspoe"] for named in models]
        unscaled = [named["capspoe, both scales 1"] for named in models]
        own_samples = [named["capspoe, the energy's own samples"] for named in models]
        log_p = [(one["log_p_lower"] + one["log_p_upper"]) / 2 for one in likelihoods]
        log_z_difference = [abs(one["log_z_upper"] - one["log_z_lower"]) for one in likelihoods]
        cells = [
            training,
            str(len(evaluations)),
            number([row["fid"] for row in fitted], 1),
            number([row["fid"] for row in unscaled], 1),
            number([row["fid"] for row in own_samples], 1),
            number([row["recall"] for row in own_samples], 3),
            number(log_p, 0),
            number([one["log_p_independent"] for one in likelihoods], 0),
            number(log_z_difference, 1),
            number([row["purity"] for row in fitted], 3),
        ]
        rows.append(cells)
    return rows


def minutes_table(run_records: list[Record]) -> str:
    rows = []
    for record in run_records:
        evaluation = "none"
        if "quick" in record:
            evaluation = f"{record['quick']['seconds'] / 60:.1f} min"
        rows.append([f"`runs/{record['run']}`", record["settings"], f"{record['minutes']:.1f} min", evaluation])
    return table(["run", "settings", "training", "evaluation"], rows)


def by_method(rows: list[Record]) -> dict[str, list[Record]]:
    """The rows of each method, in the order of the record."""
    methods: dict[str, list[Record]] = {}
    for row in rows:
        methods.setdefault(row["method"], []).append(row)
    return methods


def clustering_table(rows: list[Record]) -> str:
    """The rows of benchmarks/quality/clustering.py: scores of the clustered training images and of test images."""
    lines = []
    for method, seeds in by_method(rows).items():
        cells = [method, str(len(seeds))]
        for split in ("train", "test"):
            for score in ("acc", "nmi", "ari"):
                # Some methods cannot assign new images.
                measured = seeds[0][split] is not None
                cells.append(number([row[split][score] for row in seeds], 3) if measured else "")
        lines.append(cells)
    titles = ["method", "seeds", "ACC", "NMI", "ARI", "test ACC", "test NMI", "test ARI"]
    return table(titles, lines)


def sorting_table(rows: list[Record]) -> str:
    """The rows of benchmarks/quality/sorting.py with scores: each set by each kind of points, `sort` first."""
    lines = []
    for row in rows:
        if "acc" in row:
            images = f"{row['images']:,} {row['set']}"
            scores = [number([row[score]], 3) for score in ("acc", "purity", "nmi")]
            lines.append([images, row["features"], row["method"], str(row["groups"]), *scores])
    lines.sort(key=lambda cells: cells[:2])  # stable: methods stay in the order of the record
    return table(["images", "points", "method", "groups", "ACC", "purity", "NMI"], lines)


SORTED = {
    "large": "photographs of 12 megapixels",
    "more": "more images in the sorted folder of emoji",
    "mixed": "mixed pictures, 90 of them of 12 megapixels",
    "thumbnails-10000": "thumbnails",
    "thumbnails-100000": "thumbnails",
}


def sorting_times(rows: list[Record]) -> str:
    """Seconds and memory of `capspoe sort` on the sets of benchmarks/quality/sorting.py."""
    lines = []
    for row in rows:
        if row["method"] == "capspoe sort":
            images = f"{row['images']:,} {SORTED.get(row['set'], row['set'])}"
            seconds = [f"{row[name]:.0f}" for name in ("seconds", "cpu_seconds")]
            lines.append([images, row["features"], str(row["threads"]), *seconds, f"{row['megabytes']:,}"])
    return table(["images", "features", "threads", "seconds", "of CPU time", "peak memory, MB"], lines)


def completion_parts(rows: list[Record]) -> Parts:
    """The rows of benchmarks/quality/completion.py."""
    lines = []
    means = {}
    for method, seeds in by_method(rows).items():
        errors = [row["error"] for row in seeds]
        means[method] = sum(errors) / len(errors)
        one_completion = ""
        if seeds[0]["draws"] > 1:
            one_completion = number([row["error_of_one"] for row in seeds], 1)
        lines.append([method, str(len(seeds)), number(errors, 1), one_completion])

    def compared_with(method: str) -> str:
        ratio = means["capsules: posterior of the pose"] / means[method]
        return f"{1 - ratio:.0%} less" if ratio < 1 else f"{ratio - 1:.0%} more"

    verdict = (
        "The posterior of the pose, which `capspoe complete` draws from, has "
        f"{compared_with('nearest neighbour')} error than the nearest neighbour, "
        f"{compared_with('PCA, conditional Gaussian')} than PCA, and "
        f"{compared_with('20 nearest neighbours')} than the mean of 20 neighbours."
    )
    seeds = sorted({row["seed"] for row in rows})
    noun = "seed" if len(seeds) == 1 else "seeds"
    return {
        "completion": table(["method", "seeds", "mean of the completions", "one completion"], lines),
        "completion verdict": verdict,
        "completion images": str(rows[0]["images"]),
        "completion seeds": f"{noun} {', '.join(map(str, seeds))}",
    }


def anomaly_parts(rows: list[Record]) -> Parts:
    """The rows of benchmarks/quality/anomaly.py."""
    columns = []
    for row in rows:
        some_scores = next(iter(row["auroc"].values()))
        for odd in some_scores:
            if (row["data"], odd) not in columns:
                columns.append((row["data"], odd))
    lines = []
    for score in rows[0]["auroc"]:
        cells = [score]
        for data, odd in columns:
            cells.append(number([row["auroc"][score][odd] for row in rows if row["data"] == data], 4))
        lines.append(cells)
    titles = ["score"]
    for data, odd in columns:
        titles.append(f"{data} against {odd}")

    estimates = []
    for row in rows:
        name = f"{row['data']}, seed {row['seed']}"
        lower = f"{row['log_z']['lower']:.1f}"
        upper = f"{row['log_z']['upper']:.1f}"
        largest = f"{max(map(abs, row['gaps'])):.2f}"
        estimates.append([name, lower, upper, largest])
    return {
        "anomaly": table(titles, lines),
        "anomaly images": f"{rows[0]['images']:,}",
        "log z": table(["run", "lower", "upper", "largest difference in a capsule"], estimates),
    }


def one_label_parts(rows: list[Record]) -> Parts:
    """The rows of benchmarks/quality/one_label.py."""
    return {"one label": number([row["accuracy"] for row in rows if row["data"] == "mnist"], 3)}


LIKELIHOOD_SETTINGS = {
    "ridge": "ridge",
    "temperature": "temperature",
    "rounds": "rounds",
    "epochs": "epochs",
    "learning_rate": "learning rate",
}


def likelihood_parts(rows: list[Record]) -> Parts:
    """The rows of benchmarks/quality/likelihood.py: bounds of the mean log-likelihood, the best model first."""
    drawn = [row for row in rows if row["binarisation"] == "drawn"]
    parts = {"likelihood": likelihood_table(drawn)}
    parts["likelihood images"] = " or ".join(f"{count:,}" for count in sorted({row["images"] for row in drawn}))
    return parts


def likelihood_table(rows: list[Record]) -> str:
    shown_rows = []
    for row in sorted(rows, key=lambda row: -row["test"][0]):
        middles = [f"{sum(row[split]) / 2:.1f}" for split in ("train", "test")]
        apart = f"{abs(row['test'][1] - row['test'][0]):.2f}"
        shown_rows.append([likelihood_name(row["model"]), str(row["seed"]), *middles, apart, str(row["seconds"])])
    titles = ["model", "seed", "training images", "test images", "difference of both estimates", "seconds"]
    return table(titles, shown_rows)


def likelihood_choices(rows: list[Record]) -> Parts:
    """The rows of benchmarks/quality/likelihood.py --held-out: images that no model was fitted to."""
    shown_rows = []
    for row in sorted(rows, key=lambda row: -row["test"][0]):
        settings = [f"{title} {row[name]:g}" for name, title in LIKELIHOOD_SETTINGS.items() if name in row]
        middles = [f"{sum(row[split]) / 2:.1f}" for split in ("train", "test")]
        apart = f"{abs(row['test'][1] - row['test'][0]):.2f}"
        shown_rows.append([likelihood_name(row["model"]), ", ".join(settings), *middles, apart])
    titles = ["model", "settings", "training images", "held-out training images", "difference of both estimates"]
    return {"likelihood choices": table(titles, shown_rows)}


def likelihood_name(model: str) -> str:
    """What the page calls a model of benchmarks/quality/likelihood.py."""
    names = {
        "bernoulli-rbm": "scikit-learn's BernoulliRBM, 500 hidden units",
        "factor-analysers": "20 factor analysers of 16 factors (a lower bound)",
    }
    if model.startswith("bernoullis-"):
        return f"mixture of {model.removeprefix('bernoullis-')} Bernoullis"
    if model.endswith("-chains"):
        return f"capspoe, {model.removesuffix('-chains')}, start and chains"
    return names.get(model, f"capspoe, {model}, start alone")


def vae_parts(record: Record) -> Parts:
    """The record of benchmarks/quality/vae.py."""
    return {"vae": evaluation_table([record], [row["name"] for row in record["rows"]])}


OTHER_PARTS: dict[str, Callable[[Any], Parts]] = {  # of records that are not of runs
    "clustering-mnist": lambda rows: {"clustering": clustering_table(rows)},
    "clustering-fashion-mnist": lambda rows: {"clustering of fashion": clustering_table(rows)},
    "sorting": lambda rows: {"sorting": sorting_table(rows), "sorting times": sorting_times(rows)},
    "completion-mnist": completion_parts,
    "anomaly": anomaly_parts,
    "one_label": one_label_parts,
    "likelihood": likelihood_parts,
    "likelihood-held-out": likelihood_choices,
    "vae": vae_parts,
}


def write(folders: list[Path], docs: Path = DOCS, folder_of_records: Path = RECORDS) -> Path:
    """Write records of the runs in `folders`, and the page from all records."""
    runs.keep(folders, folder_of_records)
    contents = {name: records.read(name, folder=folder_of_records) for name in records.names(folder_of_records)}
    run_records = [content for content in contents.values() if "section" in content]
    parts = run_parts(run_records, docs)
    for name, make_parts in OTHER_PARTS.items():
        if name in contents:
            parts |= make_parts(contents[name])
    page = docs / "results.md"
    page.write_text(fill(TEMPLATE.read_text(), parts))
    return page


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="*", metavar="RUN")
    options = parser.parse_args(arguments)
    folders = options.runs or sorted(path for path in Path("runs").glob("*") if path.is_dir())
    print(write(folders))


if __name__ == "__main__":
    main()
