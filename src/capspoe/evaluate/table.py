"""An evaluation as text."""

from typing import Any

from rich.console import Console
from rich.table import Table

COLUMNS = {  # title and format
    "fid": ("FID", "{:.1f}"),
    "kid": ("KID", "{:.2f}"),
    "precision": ("precision", "{:.3f}"),
    "recall": ("recall", "{:.3f}"),
    "density": ("density", "{:.2f}"),
    "coverage": ("coverage", "{:.3f}"),
    "purity": ("purity", "{:.3f}"),
    "nmi": ("NMI", "{:.3f}"),
    "probe": ("probe", "{:.3f}"),
    "seconds": ("seconds", "{:.0f}"),
}
WIDE = 110  # characters that all columns need; narrower terminals do without these:
WIDE_ONLY = ("kid", "density", "coverage")


def cell(row: dict[str, Any], key: str) -> str:
    return "" if row.get(key) is None else COLUMNS[key][1].format(row[key])


def lines(result: dict[str, Any]) -> list[str]:
    """The scores that are not in the table."""
    net, c, p = result.get("feature_net"), result["clustering"], result["likelihood"]
    found = [f"{row['name']} failed: {row['failed']}" for row in result["rows"] if "failed" in row]
    if net:
        found += [
            f"Feature net: {100 * net['test_accuracy']:.2f}% test accuracy, sha256 {net['sha256'][:12]}; "
            f"{result['settings']['samples']} samples. FIDs compare only within one feature net and sample count.",
            f"Capsules: {c['alive']} of {c['capsules']} alive, one-to-one accuracy {c['one_to_one']:.3f}, "
            f"class entropy of a capsule's samples {c['mean_sample_class_entropy']:.3f} of 1.",
        ]
    else:
        found.append("The data has no labels, or only one: no FID, purity, probe or baselines.")
        found.append(f"Capsules: {c['alive']} of {c['capsules']} alive.")
    if result.get("probe"):
        found.append("Linear probe: " + ", ".join(f"{k} {v:.3f}" for k, v in result["probe"].items()) + ".")
    for basis, measures in result["instantiation"].items():
        shares = ", ".join(f"{k} {100 * v['share_of_capsules']:.0f}%" for k, v in measures.items())
        found.append(f"Capsules with a dimension that controls it ({basis}): {shares}.")
    if p:
        alone, (low, high) = p["log_p_independent"], (p["log_z_lower"], p["log_z_upper"])
        found.append(
            f"Code likelihood, mean routing weights: {p['log_p_lower']:.1f} to {p['log_p_upper']:.1f} nats per code "
            f"(independent units {alone:.1f}); log Z {low:.1f} to {high:.1f}."
        )
    return found


def print_table(result: dict[str, Any], console: Console) -> None:
    columns = [key for key in COLUMNS if console.width >= WIDE or key not in WIDE_ONLY]
    table = Table("model", box=None, pad_edge=False, header_style="bold")
    for key in columns:
        table.add_column(COLUMNS[key][0], justify="right", no_wrap=True)
    for row in result["rows"]:
        table.add_row(row["name"], *(cell(row, key) for key in columns))
    if result["rows"]:
        console.print(table)
    for line in lines(result):
        console.print(line, highlight=False, markup=False)
