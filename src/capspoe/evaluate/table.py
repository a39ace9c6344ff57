"""An evaluation for people to read."""

from typing import Any

from rich.console import Console
from rich.table import Table

COLUMNS = {
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


def cell(row: dict[str, Any], key: str) -> str:
    value = row.get(key)
    if value is None:
        return ""
    return COLUMNS[key][1].format(value)


def lines(result: dict[str, Any]) -> list[str]:
    """What does not fit the table."""
    said = []
    net, s = result.get("feature_net"), result["specialisation"]
    if net:
        said.append(
            f"Feature net: {100 * net['test_accuracy']:.2f} % test accuracy, sha256 {net['sha256'][:12]}; "
            f"{result['settings']['samples']} samples. FIDs compare only within one feature net and sample count."
        )
        said.append(
            f"Capsules: {s['alive']} of {s['capsules']} alive, one-to-one accuracy {s['one_to_one']:.3f}, "
            f"class entropy of a capsule's samples {s['mean_sample_class_entropy']:.3f} of 1."
        )
    else:
        said.append(
            "The data has no labels, or one: no feature net, so no FID, purity or probe, and no baselines."
        )
        said.append(f"Capsules: {s['alive']} of {s['capsules']} alive.")
    if result.get("probe"):
        said.append("Linear probe: " + ", ".join(f"{k} {v:.3f}" for k, v in result["probe"].items()) + ".")
    for basis, found in result["instantiation"].items():
        if basis != "skipped":
            shares = ", ".join(
                f"{k} {100 * v['share_of_capsules']:.0f} %" for k, v in found["measures"].items()
            )
            said.append(f"Capsules with a dimension that controls it ({basis}): {shares}.")
    p = result["likelihood"]
    said.append(
        f"Code likelihood, routing frozen: {p['log_p_lower']:.1f} to {p['log_p_upper']:.1f} nats per code "
        f"(independent units {p['log_p_independent']:.1f}); log Z {p['log_z_lower']:.1f} to {p['log_z_upper']:.1f}, "
        f"near the data {p['log_z_near_data']:.1f}."
    )
    return said


def print_table(result: dict[str, Any], console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("model", min_width=24)
    for title, _ in COLUMNS.values():
        table.add_column(title, justify="right")
    for row in result["rows"]:
        if "failed" in row:
            table.add_row(f"{row['name']}: {row['failed']}")
        else:
            table.add_row(row["name"], *(cell(row, key) for key in COLUMNS))
    if result["rows"]:
        console.print(table)
    for line in lines(result):
        console.print(line, highlight=False)
