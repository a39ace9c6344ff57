"""`make reproduce` in small: a plan of one run, carried out, interrupted and carried on; the page it writes."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from capspoe import cli, kernels
from runs import QUICK, options

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import goals
import reproduce
import results

TINY = ("--quick", "--samples", "40")


@pytest.fixture(scope="module")
def where(tmp_path_factory):
    home = tmp_path_factory.mktemp("reproduced")
    (home / "docs" / "figures").mkdir(parents=True)
    return reproduce.Places(home / "runs", home / "docs", home / "records")


@pytest.fixture
def called(monkeypatch):
    """The commands that were run, in this process: starting Python anew takes longer than they do."""
    seen = []

    def call(step):
        seen.append(step.command[0])
        with kernels.use("reference"):  # nothing to compile
            cli.main(list(step.command))
        return 0

    monkeypatch.setattr(reproduce, "call", call)
    return seen


def plan(evaluate=TINY, **more):
    words = ("digits", *options(QUICK | {"size": 12}))
    return (reproduce.Run("digits-0", words, 1, evaluate, picture="digits-small", routing=True, **more),)


def test_a_plan_is_carried_out_once(where, called, cache, capsys):
    runs, docs, _ = where
    assert reproduce.carry_out(plan(), where) == []
    assert called == ["train", "sample", "routing", "evaluate"]
    for name in ("figures/digits-small.png", "figures/routing.svg", "results.md"):
        assert (docs / name).stat().st_size > 100
    called.clear()
    assert reproduce.carry_out(plan(), where) == []
    assert called == []
    reproduce.print_plan(plan(), where)
    assert "digits-0               there already" in capsys.readouterr().out
    # Other options than the evaluation has: only that is done again.
    assert not reproduce.evaluated(runs / "digits-0" / "evaluation.json", ("--quick", "--samples", "60"))
    assert not reproduce.evaluated(runs / "digits-0" / "evaluation.json", ("--samples", "40"))


def test_the_plan_counts_what_two_runs_share_once(tmp_path, capsys):
    run = reproduce.Run("a", ("mnist",), 60, TINY, 60)
    reproduce.print_plan((run, replace(run, long=True)), reproduce.Places(tmp_path, tmp_path, tmp_path))
    said = capsys.readouterr().out
    assert said.count("capspoe train mnist") == 2
    assert "in all about 2.5 hours" in said  # 60 + 60 + 30 minutes


def test_the_page_says_what_is_there_and_what_is_missing(where, called, cache, capsys):
    runs, docs, records = where
    (runs / "strange").mkdir()
    (runs / "strange" / "config.json").write_text("{}")
    (runs / "strange" / "checkpoints" / "00000001").mkdir(parents=True)
    assert results.write([runs / "digits-0", runs / "nowhere", runs / "strange"], docs, records).exists()
    assert [path.name for path in records.iterdir()] == ["digits-0.json"]
    assert "strange is left out" in capsys.readouterr().err
    record = json.loads((records / "digits-0.json").read_text())
    assert record["section"] is None  # it is no preset, so its numbers stand under no heading
    page = (docs / "results.md").read_text()
    assert "| `runs/digits-0` | digits, seed 0 (8 channels, 4x6 capsules) |" in page
    assert "## CIFAR-10\n\n*Not measured yet: cifar10 small. `make reproduce` does it.*" in page
    assert "{{" not in page
    evaluation = json.loads((runs / "digits-0" / "evaluation.json").read_text())
    made = results.parts([record["quick"]])
    fid = next(row["fid"] for row in evaluation["rows"] if row["name"] == "capspoe")
    assert f"| capspoe | {fid:.1f} | " in made["models"]
    assert "ablation" not in made
    # The page stays when the run is gone: what it needs is kept.
    assert results.write([], docs, records).read_text() == page


def test_runs_of_several_seeds_are_averaged():
    rows = [[{"name": "capspoe", "fid": fid, "purity": None}] for fid in (10.0, 14.0)]
    text = results.table([{"rows": r} for r in rows], ["capspoe"])
    assert text.splitlines()[-1] == "| capspoe | 12.0\u00a0±\u00a02.0 |  |  |  |  |  |"
    assert results.number([0.9, 0.92], 3) == ".910\u00a0±\u00a0.010"
    assert results.number([1.0, 1.0], 3) == "1.000"
    assert results.number([10.0, 10.2], 1) == "10.1\u00a0±\u00a00.1"
    failed = [{"rows": [{"name": "literal", "failed": "step 3"}]}]
    assert "| literal (failed: step 3) |" in results.table(failed, ["literal"])


def evaluation_of(shift=0.0, **changes):
    """An evaluation in which every goal is reached, but for the scores that are changed: name -> (score, value)."""
    rows = {
        "floor: training images": {"fid": 4.0},
        "capspoe": {"fid": 10.0, "precision": 0.96, "recall": 0.85, "purity": 0.95, "probe": 0.95},
        "capspoe, after 100 Gibbs steps": {"fid": 15.0},
        "k-means + PCA on the codes": {"fid": 62.0, "recall": 0.5, "purity": 0.7},
        "one routing iteration": {"fid": 14.0, "purity": 0.9},
        "RBM on the codes": {"fid": 90.0, "probe": 0.94},
        "BernoulliRBM on pixels": {"fid": 300.0, "probe": 0.93},
        "binary neurons with the gate, the paper's sampling": {"fid": 200.0},
        "the paper to the letter": {"fid": 1500.0},
    }
    for name, (score, value) in changes.items():
        rows[name.replace("_", " ")][score] = value
    made = [{"name": n, **{s: v + shift * (s == "fid") for s, v in row.items()}} for n, row in rows.items()]
    return {
        "rows": made,
        "specialisation": {"alive": 20, "capsules": 20},
        "probe": {"raw pixels": 0.92},
    }


@pytest.mark.parametrize(
    ("changed", "missed"),
    [
        ({}, []),
        ({"capspoe": ("fid", 10.6)}, ["FID, default sampling"]),
        ({"RBM_on_the_codes": ("fid", 9.0)}, ["FID, default sampling"]),
        ({"capspoe": ("precision", 0.94)}, ["recall, with precision .95"]),
        ({"capspoe": ("purity", 0.91)}, ["purity of the winning capsule"]),
        ({"one_routing_iteration": ("fid", 10.3)}, ["what routing adds"]),
        ({"one_routing_iteration": ("purity", 0.96)}, ["what routing adds"]),
        ({"capspoe,_after_100_Gibbs_steps": ("fid", 22.0)}, ["FID after 100 Gibbs steps"]),
        ({"RBM_on_the_codes": ("probe", 0.96)}, ["linear probe on the hidden numbers"]),
        ({"BernoulliRBM_on_pixels": ("probe", 0.96)}, ["linear probe on the hidden numbers"]),
        (
            {"the_paper_to_the_letter": ("fid", 900.0)},
            ["FID of the paper's sampling, binary neurons with the gate"],
        ),
    ],
)
def test_goals_are_called_reached_only_when_they_are(changed, missed):
    seeds = [evaluation_of(shift, **changed) for shift in (0.0, 0.4)]
    found = goals.goals_on_mnist(seeds, seeds[:1])
    assert [g.what for g in found if not g.reached] == missed
    assert goals.goals_table(found).count("**no**") == len(missed)


def test_fashion_mnist_is_to_beat_its_rival_in_each_score():
    assert [g.reached for g in goals.goals_on_fashion([evaluation_of()])] == [True] * 3
    worse = evaluation_of(capspoe=("recall", 0.4))
    assert [g.reached for g in goals.goals_on_fashion([worse])] == [True, False, True]


def test_a_preset_is_known_whatever_its_seed_and_threads():
    for kind, of_preset in results.KINDS.items():
        config = results.preset(data="mnist", **of_preset).replace(seed=7, threads=1)
        assert results.section_of(config) == f"mnist {kind}"
    assert results.section_of(config.replace(epochs=1)) is None


def test_an_evaluation_in_full_is_kept_beside_the_quick_one(where, called, monkeypatch):
    """The quick one is made again after it: both commands write evaluation.json."""
    folder = where.runs / "digits-0"

    def call(step):
        command = step.command
        called.append(command)
        settings = {"samples": int(command[command.index("--samples") + 1]), "ablate": False}
        settings["quick"] = "--quick" in command
        (folder / "evaluation.json").write_text(json.dumps({"settings": settings}))
        return 0

    kept = (folder / "evaluation.json").read_text()
    monkeypatch.setattr(reproduce, "call", call)
    monkeypatch.setattr(results, "write", lambda *_: "page")
    assert reproduce.carry_out(plan(long=True), where) == []
    assert [("--quick" in c) for c in called] == [False, True]
    assert json.loads((folder / results.FULL).read_text())["settings"]["quick"] is False
    (folder / "evaluation.json").write_text(kept)
    (folder / results.FULL).unlink()


def test_a_failure_is_named_and_an_interruption_stops(where, monkeypatch):
    plan_of_two = tuple(reproduce.Run(name, ("mnist", "--no-such-option"), 1) for name in ("one", "two"))
    failed = reproduce.carry_out(plan_of_two, where)  # processes of their own
    assert [f.split()[-1] for f in failed] == ["2)", "2)"]
    monkeypatch.setattr(reproduce, "call", lambda _: reproduce.INTERRUPTED)
    assert len(reproduce.carry_out(plan_of_two, where)) == 1


def test_every_run_of_the_plan_is_understood(monkeypatch):
    from capspoe import training

    seen = []
    monkeypatch.setattr(training, "command", lambda config, folder, resume: seen.append((config, folder)))
    for run in reproduce.PLAN:
        cli.main(list(next(reproduce.steps_of(run)).command))
    sections = [results.section_of(config) for config, _ in seen]
    text = (Path(results.HERE) / "results.md.in").read_text()
    for section in set(sections) - {None}:
        assert "{{" + section in text, section
    assert sections.count("mnist small") == 4  # three seeds, and the first one again for its long baselines
    assert sections.count(None) == 1  # the 144 -> 10 run of Figure 1
