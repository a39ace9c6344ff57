"""The goals of the `small` preset, and whether they were reached."""

from dataclasses import dataclass
from statistics import mean

from scores import COLUMNS, Evaluation, Rows, number

RIVAL = "k-means + PCA on the codes"
RBMS = (("RBM", "the codes"), ("BernoulliRBM", "pixels"))


@dataclass(frozen=True)
class Goal:
    """A goal, the result, and whether it is enough."""

    what: str
    aim: str
    came: str
    reached: bool


def goals_on_mnist(quick: list[Evaluation], full: list[Evaluation]) -> list[Goal]:
    own, long = Rows(quick), Rows(full)
    fid, rival = own.mean("capspoe", "fid"), own.mean(RIVAL, "fid")
    least = min(own.least_of_others("fid"), long.least_of_others("fid"))
    one = "one routing iteration"
    spread = {s: max(own.all("capspoe", s)) - min(own.all("capspoe", s)) for s in ("fid", "purity")}
    gibbs = next(name for name in own.rows if name.endswith("Gibbs steps"))
    poses, pixels = long.mean("capspoe", "probe"), mean(e["probe"]["raw pixels"] for e in full)
    found = {where: long.all(f"{kind} on {where}", "probe") for kind, where in RBMS}
    rbms = {where: mean(probes) for where, probes in found.items() if probes}
    binary, literal = "binary neurons with the gate, the paper's sampling", "the paper to the letter"
    return [
        Goal(
            "FID, default sampling",
            f"a sixth of {RIVAL} ({own.shown(RIVAL, 'fid')}), below all but the floors",
            own.shown("capspoe", "fid"),
            fid <= rival / 6 and fid < least,
        ),
        Goal(
            "recall, with precision .95",
            f".80; {RIVAL} has {own.shown(RIVAL, 'recall')}",
            f"{own.shown('capspoe', 'recall')}, precision {own.shown('capspoe', 'precision')}",
            own.mean("capspoe", "recall") >= 0.8 and own.mean("capspoe", "precision") >= 0.95,
        ),
        Goal(
            "purity of the winning capsule",
            f".92; k-means has {own.shown(RIVAL, 'purity')}",
            own.shown("capspoe", "purity"),
            own.mean("capspoe", "purity") >= 0.92,
        ),
        Goal(
            "what routing adds",
            "three iterations better than one in FID and purity, beyond the spread of seeds",
            f"FID {own.shown('capspoe', 'fid')} against {own.shown(one, 'fid')}, "
            f"purity {own.shown('capspoe', 'purity')} against {own.shown(one, 'purity')}",
            own.mean(one, "fid") - fid > spread["fid"]
            and own.mean("capspoe", "purity") - own.mean(one, "purity") > spread["purity"],
        ),
        Goal(
            "capsules alive",
            "20 of 20",
            ", ".join(str(e["clustering"]["alive"]) for e in quick),
            all(e["clustering"]["alive"] == e["clustering"]["capsules"] for e in quick),
        ),
        Goal(
            "FID after 100 Gibbs steps",
            "at most twice the FID without them",
            own.shown(gibbs, "fid"),
            own.mean(gibbs, "fid") <= 2 * fid,
        ),
        Goal(
            "linear probe on the poses",
            f"above pixels ({number([pixels], 3)}) and RBMs of the same size on "
            + " and ".join(f"{where} ({number([probe], 3)})" for where, probe in rbms.items()),
            number([poses], 3),
            poses > max(*rbms.values(), pixels),
        ),
        Goal(
            "FID of the paper's sampling, binary neurons with the gate",
            f"a fifth of the paper to the letter ({long.shown(literal, 'fid')})",
            long.shown(binary, "fid"),
            long.mean(binary, "fid") <= long.mean(literal, "fid") / 5,
        ),
    ]


def goals_on_fashion(quick: list[Evaluation]) -> list[Goal]:
    own = Rows(quick)
    better = {"fid": -1, "recall": 1, "purity": 1}
    return [
        Goal(
            COLUMNS[score][0],
            f"better than {RIVAL} ({own.shown(RIVAL, score)})",
            own.shown("capspoe", score),
            sign * own.mean("capspoe", score) > sign * own.mean(RIVAL, score),
        )
        for score, sign in better.items()
    ]


def goals_table(goals: list[Goal]) -> str:
    lines = ["| what | aim | came out | reached |", "|---|---|---|---|"]
    lines += [f"| {g.what} | {g.aim} | {g.came} | {'yes' if g.reached else '**no**'} |" for g in goals]
    return "\n".join(lines)
