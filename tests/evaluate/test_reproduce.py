"""`make reproduce` in small: a plan of one run, carried out, interrupted and carried on; the page it writes."""

import json
import sys
from pathlib import Path

import pytest

from capspoe import cli, kernels
from runs import QUICK, options

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
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

    def call(command):
        seen.append(command[0])
        with kernels.use("reference"):  # nothing to compile
            cli.main(list(command))
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
    assert text.splitlines()[-1] == "| capspoe | 12.0 ± 2.0 |  |  |  |  |  |"
    failed = [{"rows": [{"name": "literal", "failed": "step 3"}]}]
    assert "| literal (failed: step 3) |" in results.table(failed, ["literal"])


def test_a_preset_is_known_whatever_its_seed_and_threads():
    for kind, of_preset in results.KINDS.items():
        config = results.preset(data="mnist", **of_preset).replace(seed=7, threads=1)
        assert results.section_of(config) == f"mnist {kind}"
    assert results.section_of(config.replace(epochs=1)) is None


def test_an_evaluation_in_full_is_kept_beside_the_quick_one(where, called, monkeypatch):
    """The quick one is made again after it: both commands write evaluation.json."""
    folder = where.runs / "digits-0"

    def call(command):
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
