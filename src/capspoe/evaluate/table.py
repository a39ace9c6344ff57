"""An evaluation as text."""

from typing import Any

from rich.console import Console
from rich.table import Table

COLUMNS = {  # title and format
    "fid": ("FID", "{:.1f}"),
    "fid_spread": ("±", "{:.1f}"),
    "kid": ("KID", "{:.2f}"),
    "precision": ("precision", "{:.3f}"),
    "recall": ("recall", "{:.3f}"),
    "density": ("density", "{:.2f}"),
    "coverage": ("coverage", "{:.3f}"),
    "grid": ("grid", "{:.4f}"),
    "purity": ("purity", "{:.3f}"),
    "nmi": ("NMI", "{:.3f}"),
    "probe": ("probe", "{:.3f}"),
    "seconds": ("seconds", "{:.0f}"),
}
WIDE = 125  # characters that all columns need; narrower terminals do without these:
WIDE_ONLY = ("kid", "density", "coverage", "grid")


def cell(row: dict[str, Any], key: str) -> str:
    if row.get(key) is None:
        return ""
    return COLUMNS[key][1].format(row[key])


def lines(result: dict[str, Any]) -> list[str]:
    """The scores that are not in the table."""
    net = result.get("feature_net")
    c = result["clustering"]
    p = result["likelihood"]
    text = [f"{row['name']} failed: {row['failed']}" for row in result["rows"] if "failed" in row]
    alive = f"Capsules: {c['alive']} of {c['capsules']} alive"
    if net:
        accuracy = f"{100 * net['test_accuracy']:.2f}% test accuracy"
        sets = result["settings"]["sets"]
        samples = f"{sets} sets of {result['settings']['samples']} samples, ± is half the range of their FIDs"
        text.append(
            f"Feature net: {accuracy}, sha256 {net['sha256'][:12]}; {samples}. "
            "FIDs compare only within one feature net and sample count."
        )
        text.append(
            f"{alive}, one-to-one accuracy {c['one_to_one']:.3f}, "
            f"class entropy of a capsule's samples {c['mean_sample_class_entropy']:.3f} of 1."
        )
    else:
        text.append("The data has no labels, or only one: no FID, purity, probe or baselines.")
        text.append(f"{alive}.")
    if result.get("probe"):
        accuracies = ", ".join(f"{k} {v:.3f}" for k, v in result["probe"].items())
        text.append(f"Linear probe: {accuracies}.")
    for basis, measures in result["instantiation"].items():
        shares = ", ".join(f"{k} {100 * v['share_of_capsules']:.0f}%" for k, v in measures.items())
        text.append(f"Capsules with a dimension that controls it ({basis}): {shares}.")
    if p:
        text.append(
            f"Code likelihood, mean routing weights: {p['log_p_lower']:.1f} to "
            f"{p['log_p_upper']:.1f} nats per code "
            f"(independent units {p['log_p_independent']:.1f}); "
            f"log Z {p['log_z_lower']:.1f} to {p['log_z_upper']:.1f}."
        )
    return text


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
