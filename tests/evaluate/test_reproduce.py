"""`make reproduce` in small: a plan of one run, carried out and resumed, and the page it writes."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from short import SETTINGS, short

from capspoe import cli
from capspoe.training import train

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import goals
import reproduce
import results
import routing

TINY = ("--quick", "--samples", "40")
WORDS = [word for name, value in SETTINGS.items() for word in (f"--{name.replace('_', '-')}", str(value))]
PLAN = (reproduce.Run("digits-0", ("digits", *WORDS), 1, TINY, picture="digits-small"),)


def in_this_process(step):
    cli.main(list(step.command))
    return 0


@pytest.fixture(scope="session")
def where(tmp_path_factory, cache):
    """A plan that was carried out."""
    home = tmp_path_factory.mktemp("reproduced")
    (home / "docs" / "figures").mkdir(parents=True)
    places = reproduce.Places(home / "runs", home / "docs", home / "records")
    with pytest.MonkeyPatch.context() as patch, short(cache):
        patch.setattr(reproduce, "call", in_this_process)
        assert reproduce.carry_out(PLAN, places) == []
    return places


def test_a_plan_is_carried_out_once(where, monkeypatch, capsys):
    assert (where.docs / "figures" / "digits-small.png").stat().st_size > 100
    monkeypatch.setattr(reproduce, "call", lambda step: pytest.fail("done again"))
    assert reproduce.carry_out(PLAN, where) == []
    reproduce.print_plan(PLAN, where)
    assert "digits-0               there already" in capsys.readouterr().out
    for other in (("--quick", "--samples", "60"), ("--samples", "40"), (*TINY, "--ablate")):
        assert not reproduce.evaluated(where.runs / "digits-0" / "evaluation.json", other)


def test_the_page_says_what_is_there_and_what_is_missing(where, capsys):
    runs, docs, records = where
    (runs / "strange" / "checkpoints" / "00000001").mkdir(parents=True)
    (runs / "strange" / "config.json").write_text("{}")
    results.write([runs / "digits-0", runs / "nowhere", runs / "strange"], docs, records)
    assert [path.name for path in records.iterdir()] == ["digits-0.json"]
    assert "strange is left out" in capsys.readouterr().err
    record = json.loads((records / "digits-0.json").read_text())
    assert record["section"] is None  # it is no preset, so its numbers are under no heading
    page = (docs / "results.md").read_text()
    assert "| `runs/digits-0` | digits, seed 0 (16 channels, 4x6 capsules) |" in page
    assert "## CIFAR-10\n\n*Not measured yet: cifar10 small. `make reproduce` does it.*" in page
    assert "{{" not in page
    found = results.parts([record["quick"]])
    fid = next(row["fid"] for row in record["quick"]["rows"] if row["name"] == "capspoe")
    assert f"| capspoe | {fid:.1f} | " in found["models"]
    assert "thickness" in found["dimensions"]
    assert results.write([], docs, records).read_text() == page  # the records stay when the run is gone


def test_the_records_of_the_repository_fill_the_page(tmp_path):
    page = results.write([], tmp_path, results.HERE / "records").read_text()
    missing = [line for line in page.splitlines() if "Not measured" in line]
    assert all("picture" in line or "routing" in line for line in missing)  # which are in docs/figures
    assert "| sharpness 1 instead of 0.3 | 9.4" in page


def test_seeds_are_averaged():
    rows = [[{"name": "capspoe", "fid": fid, "purity": None}] for fid in (10.0, 14.0)]
    text = results.table([{"rows": r} for r in rows], ["capspoe"])
    assert text.splitlines()[-1] == "| capspoe | 12.0\u00a0±\u00a02.0 |  |  |  |  |  |"
    assert results.number([0.9, 0.92], 3) == ".910\u00a0±\u00a0.010"
    assert results.number([1.0, 1.0], 3) == "1.000"
    failed = [{"rows": [{"name": "literal", "failed": "step 3"}]}]
    assert "| literal (failed: step 3) |" in results.table(failed, ["literal"])


def evaluation_of(shift=0.0, name=None, score=None, value=None):
    """An evaluation in which every goal is reached, except for one score that is changed."""
    rows = {
        "floor: training images": {"fid": 4.0},
        "capspoe": {"fid": 10.0, "precision": 0.96, "recall": 0.85, "purity": 0.95, "probe": 0.95},
        "capspoe, after 100 Gibbs steps": {"fid": 15.0},
        "k-means + PCA on the codes": {"fid": 62.0, "recall": 0.5, "purity": 0.7},
        "one routing iteration": {"fid": 14.0, "purity": 0.9},
        "RBM on the codes": {"fid": 90.0, "probe": 0.94},
        "binary neurons with the gate, the paper's sampling": {"fid": 200.0},
        "the paper to the letter": {"fid": 1500.0},
    }
    if name:
        rows[name][score] = value
    made = [{"name": n, **{s: v + shift * (s == "fid") for s, v in row.items()}} for n, row in rows.items()]
    return {"rows": made, "clustering": {"alive": 20, "capsules": 20}, "probe": {"raw pixels": 0.92}}


@pytest.mark.parametrize(
    ("changed", "missed"),
    [
        ((), []),
        (("capspoe", "fid", 10.6), ["FID, default sampling"]),
        (("capspoe", "purity", 0.91), ["purity of the winning capsule"]),
        (("one routing iteration", "fid", 10.3), ["what routing adds"]),
        (("capspoe, after 100 Gibbs steps", "fid", 22.0), ["FID after 100 Gibbs steps"]),
        (("RBM on the codes", "probe", 0.96), ["linear probe on the poses"]),
        (
            ("the paper to the letter", "fid", 900.0),
            ["FID of the paper's sampling, binary neurons with the gate"],
        ),
    ],
)
def test_goals_are_reached_only_when_they_are(changed, missed):
    seeds = [evaluation_of(shift, *changed) for shift in (0.0, 0.4)]
    found = goals.goals_on_mnist(seeds, seeds[:1])
    assert [g.what for g in found if not g.reached] == missed
    assert goals.goals_table(found).count("**no**") == len(missed)
    assert all(g.reached for g in goals.goals_on_fashion(seeds))
    assert not goals.goals_on_fashion([evaluation_of(0.0, "capspoe", "recall", 0.4)])[1].reached


def test_a_failure_is_named_and_an_interruption_stops(where, monkeypatch):
    two = tuple(reproduce.Run(name, ("mnist", "--no-such-option"), 1) for name in ("one", "two"))
    failed = reproduce.carry_out(two[:1], where)  # in a process of its own
    assert [f.split()[-1] for f in failed] == ["2)"]
    monkeypatch.setattr(reproduce, "call", lambda _: reproduce.INTERRUPTED)
    assert len(reproduce.carry_out(two, where)) == 1


def test_every_run_of_the_plan_is_understood(monkeypatch):
    seen = []
    monkeypatch.setattr(train, "train_run", lambda config, *_: seen.append(config) or pytest.skip)
    for planned in reproduce.PLAN:
        with pytest.raises(TypeError):  # nothing was trained
            cli.main([*next(reproduce.steps_of(planned)).command, "--debug"])
    sections = [results.section_of(config) for config in seen]
    text = (Path(results.HERE) / "results.md.in").read_text()
    assert all("{{" + section in text for section in set(sections) - {None})
    assert sections.count("mnist small") == 4  # three seeds, and the first one again for its long baselines
    assert sections.count(None) == 1  # the 144 -> 10 run of Figure 1


def test_ways_to_route(trained, monkeypatch, capsys):
    monkeypatch.setattr(routing, "WAYS", {"no routing": {"iterations": 1, "epochs": 1}})
    monkeypatch.setattr(routing, "QUICK", replace(routing.QUICK, probe_images=50))
    rows = routing.rows_of(trained)
    assert [(row["name"], row["run"]) for row in rows] == [("no routing", "digits")]
    assert {"fid", "purity", "probe"} <= set(rows[0])
    assert routing.rows_of(trained) == rows
