"""`make reproduce` in small: a plan of one run, carried out and resumed, and the page it writes."""

import shutil

import pytest
from benchmarks.pages import markdown, reproduce, results, runs
from short import SETTINGS, short

from benchmarks import records
from capspoe import cli
from capspoe.run import train

TINY = ("--quick", "--samples", "40")
WORDS = [word for name, value in SETTINGS.items() for word in (f"--{name.replace('_', '-')}", str(value))]
PLAN = (reproduce.Run("digits-0", ("digits", *WORDS), 1, TINY, picture="digits-small", floors=True),)


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


@pytest.mark.slow
def test_a_plan_is_carried_out_once(where, monkeypatch, capsys):
    for name in ("digits-small.png", "digits-small-floors.png"):
        assert (where.docs / "figures" / name).stat().st_size > 100
    monkeypatch.setattr(reproduce, "call", lambda step: pytest.fail("done again"))
    assert reproduce.carry_out(PLAN, where) == []
    reproduce.print_plan(PLAN, where)
    assert "digits-0               there already" in capsys.readouterr().out
    for other in (("--quick", "--samples", "60"), ("--samples", "40"), (*TINY, "--ablate")):
        assert not reproduce.evaluated(where.runs / "digits-0" / "evaluation.json", other)


@pytest.mark.slow
def test_the_page_says_what_is_there_and_what_is_missing(where, capsys):
    strange = where.runs / "strange"
    (strange / "checkpoints" / "00000001").mkdir(parents=True)
    (strange / "config.json").write_text("{}")
    results.write([where.runs / "digits-0", where.runs / "nowhere", strange], where.docs, where.records)
    assert [path.name for path in where.records.iterdir()] == ["digits-0.json"]
    assert "strange is left out" in capsys.readouterr().err
    record = records.read("digits-0", folder=where.records)
    assert record["section"] is None  # it is no preset, so its numbers are under no heading
    page = (where.docs / "results.md").read_text()
    assert "| `runs/digits-0` | digits, seed 0 (16 channels, 4x6 capsules) |" in page
    assert "## CIFAR-10\n\n*Not measured yet: cifar10 small. `make reproduce` does it.*" in page
    assert "{{" not in page
    parts = results.section_parts([record["quick"]])
    fid = next(row["fid"] for row in record["quick"]["rows"] if row["name"] == "capspoe")
    assert f"| capspoe | {fid:.1f} | " in parts["models"]
    assert "thickness" in parts["principal"]
    # The records stay when the run is gone.
    assert results.write([], where.docs, where.records).read_text() == page


@pytest.mark.slow
def test_a_run_on_record_keeps_the_commit_that_made_it(where, monkeypatch):
    before = records.read_header("digits-0", where.records)
    assert before["sessions"][0]["commit_is"] == records.AT_OR_BEFORE
    monkeypatch.setattr(records, "CODE", records.Code("a later commit", False))
    runs.keep([where.runs / "digits-0"], where.records)
    assert records.read_header("digits-0", where.records) == before


def test_the_page_of_the_repository_is_that_of_its_records(tmp_path):
    """docs/results.md has the tables that its records give."""
    shutil.copytree(results.DOCS / "figures", tmp_path / "figures")
    page = results.write([], tmp_path, results.RECORDS).read_text()
    assert page == (results.DOCS / "results.md").read_text()


def test_seeds_are_averaged():
    rows = [[{"name": "capspoe", "fid": fid, "purity": None}] for fid in (10.0, 14.0)]
    text = results.evaluation_table([{"rows": r} for r in rows], ["capspoe"])
    assert text.splitlines()[-1] == "| capspoe | 12.0\u00a0±\u00a02.0 |" + "  |" * 8
    assert markdown.number([0.9, 0.92], 3) == ".910\u00a0±\u00a0.010"
    assert markdown.number([1.0, 1.0], 3) == "1.000"
    with_grid = results.evaluation_table([{"rows": [{"name": "capspoe", "grid": 0.00264}]}], ["capspoe"])
    assert with_grid.splitlines()[0].endswith("| probe | grid |")
    assert with_grid.splitlines()[-1].endswith("|  | .0026 |")
    assert results.samples_of({"samples": 2000}) == "2,000"
    assert results.samples_of({"samples": 2000, "sets": 5}) == "5 x 2,000"
    failed = [{"rows": [{"name": "literal", "failed": "step 3"}]}]
    assert "| literal (failed: step 3) |" in results.evaluation_table(failed, ["literal"])


@pytest.mark.slow
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
    sections = [runs.section_of(config) for config in seen]
    text = results.TEMPLATE.read_text()
    shown = {section for section in sections if section and not section.endswith(" cd")}  # those have one table
    assert all("{{" + section in text for section in shown)
    # Three seeds, and the first one again for the energy's own samples and for its long baselines.
    assert sections.count("mnist small") == 5
    assert sections.count(None) == 1  # the 144 -> 10 run of Figure 1
