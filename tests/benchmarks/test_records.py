"""Records keep their numbers and their origin, and say when they are stale."""

import json
import subprocess

import pytest
from benchmarks.records.__main__ import lines_of

import capspoe
from benchmarks import records
from capspoe.errors import DivergedError

DEPENDS = ("model", "config.py")
CONTENTS = ([{"a": 1.5, "ü": "±"}, {"a": 1e-05}], [], {"rows": [1, 2], "name": None}, {})


@pytest.mark.parametrize("content", CONTENTS)
def test_the_content_comes_back(tmp_path, content):
    path = records.write("some", content, DEPENDS, folder=tmp_path)
    assert records.read("some", folder=tmp_path) == content
    assert json.loads(path.read_text(encoding="utf-8"))["content"] == content
    assert [file.name for file in tmp_path.iterdir()] == ["some.json"]


def test_no_record_is_the_default(tmp_path):
    assert records.read("none", folder=tmp_path) is None
    assert records.read("none", default=[], folder=tmp_path) == []


def test_a_row_is_measured_once(tmp_path):
    measured = []

    def measure():
        measured.append(1)
        return {"fid": 7.0}

    for seed in (0, 1, 0):
        records.add_row("some", {"variant": "a", "seed": seed}, measure, DEPENDS, tmp_path)
    rows = records.read("some", folder=tmp_path)
    assert [(row["seed"], row["fid"]) for row in rows] == [(0, 7.0), (1, 7.0)]
    assert len(measured) == 2


def test_a_row_keeps_those_of_another_process(tmp_path):
    def measure():
        records.add_row("some", {"variant": "b"}, dict, DEPENDS, tmp_path)
        return {}

    records.add_row("some", {"variant": "a"}, measure, DEPENDS, tmp_path)
    assert [row["variant"] for row in records.read("some", folder=tmp_path)] == ["b", "a"]


def test_a_training_that_diverges_has_a_row(tmp_path):
    def diverge():
        raise DivergedError("at step 3")

    records.add_row("some", {"variant": "a"}, diverge, DEPENDS, tmp_path)
    (row,) = records.read("some", folder=tmp_path)
    assert row["diverged"] == "at step 3"


def test_the_header_says_what_made_it(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "CODE", records.Code("1" * 40, True))
    monkeypatch.setattr(records, "command", lambda: "python -m benchmarks.quality.some RUN")
    records.write("some", [1], DEPENDS, folder=tmp_path)
    header = records.read_header("some", tmp_path)
    assert header["depends"] == ["model", "config.py"]
    (session,) = header["sessions"]
    assert len(session.pop("date")) == len("2026-11-18")
    assert session == {
        "commit": "1" * 40,
        "commit_is": "made at",
        "uncommitted_changes": True,
        "command": "python -m benchmarks.quality.some RUN",
        "capspoe": capspoe.__version__,
    }


def test_added_rows_do_not_hide_the_commit_of_the_first(tmp_path, monkeypatch):
    def commits():
        return [session["commit"] for session in records.read_header("some", tmp_path)["sessions"]]

    monkeypatch.setattr(records, "CODE", records.Code("old", False))
    records.write("some", [1], DEPENDS, extends=True, folder=tmp_path)
    monkeypatch.setattr(records, "CODE", records.Code("new", False))
    records.write("some", [1, 2], DEPENDS, extends=True, folder=tmp_path)
    records.write("some", [1, 2, 3], DEPENDS, extends=True, folder=tmp_path)
    assert commits() == ["old", "new"]
    records.write("some", [4], DEPENDS, folder=tmp_path)
    assert commits() == ["new"]


class Repository:
    """A git repository with a package like ours."""

    def __init__(self, root):
        self.root = root
        self.git("init", "-q")
        self.commit("src/capspoe/model/layer.py", "1")

    def git(self, *arguments):
        identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
        command = ["git", *identity, *arguments]
        return subprocess.run(command, cwd=self.root, check=True, capture_output=True, text=True).stdout.strip()

    def change(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def commit(self, path, text):
        self.change(path, text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", path)


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path)


def state(repository):
    (line,) = lines_of("some", repository.root, repository.root)
    return line.state


def test_a_record_is_stale_when_what_it_depends_on_changes(repository, monkeypatch):
    root = repository.root
    monkeypatch.setattr(records, "CODE", records.current_code(root))
    records.write("some", [1], DEPENDS, folder=root)
    assert state(repository) == "current"
    repository.commit("docs/page.md", "text")
    repository.commit("src/capspoe/training/cd.py", "other package")
    repository.commit("src/capspoe/model_of_another_name.py", "similar name")
    assert state(repository) == "current"
    repository.commit("src/capspoe/model/layer.py", "2")
    assert state(repository) == "STALE: model"
    repository.commit("src/capspoe/config.py", "new")
    assert state(repository) == "STALE: config.py, model"
    monkeypatch.setattr(records, "CODE", records.current_code(root))
    records.write("some", [1], DEPENDS, folder=root)
    assert state(repository) == "current"


def test_commits_that_change_no_number_do_not_count(repository, monkeypatch):
    monkeypatch.setattr(records, "CODE", records.current_code(repository.root))
    records.write("some", [1], DEPENDS, folder=repository.root)
    repository.change("src/capspoe/model/layer.py", "# a comment")
    repository.git("commit", "-q", "-a", "-m", "Explain it", "-m", "Numbers: unchanged")
    assert state(repository) == "current"
    repository.change("src/capspoe/config.py", "other")
    repository.git("add", "-A")
    repository.git("commit", "-q", "-m", "Change it", "-m", "Some Numbers: unchanged, others not")
    assert state(repository) == "STALE: config.py"


def test_a_deleted_part_makes_it_stale(repository, monkeypatch):
    monkeypatch.setattr(records, "CODE", records.current_code(repository.root))
    records.write("some", [1], DEPENDS, folder=repository.root)
    repository.git("rm", "-q", "-r", "src/capspoe/model")
    repository.git("commit", "-q", "-m", "Remove it")
    assert state(repository) == "STALE: model"


def test_every_session_has_its_own_state(repository, monkeypatch):
    root = repository.root
    monkeypatch.setattr(records, "CODE", records.current_code(root))
    records.write("some", [1], DEPENDS, extends=True, folder=root)
    repository.commit("src/capspoe/model/layer.py", "2")
    monkeypatch.setattr(records, "CODE", records.current_code(root))
    records.write("some", [1, 2], DEPENDS, extends=True, folder=root)
    assert [line.state for line in lines_of("some", root, root)] == ["STALE: model", "current"]


def test_uncommitted_code_is_noticed_but_not_records(repository):
    head = repository.git("rev-parse", "HEAD")
    repository.change("benchmarks/records/some.json", "{}")
    repository.change("docs/page.md", "text")
    assert records.current_code(repository.root) == records.Code(head, False)
    repository.change("src/capspoe/model/layer.py", "3")
    assert records.current_code(repository.root) == records.Code(head, True)


def test_commits_that_git_does_not_know(repository, monkeypatch):
    monkeypatch.setattr(records, "CODE", records.Code("1" * 40, False))
    records.write("some", [1], DEPENDS, folder=repository.root)
    assert state(repository) == "unknown: the commit is not in this history"
    monkeypatch.setattr(records, "CODE", records.Code(None, None))
    records.write("some", [1], DEPENDS, folder=repository.root)
    assert state(repository) == "unknown: made outside a git repository"


def test_without_a_repository_the_commit_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert records.current_code(tmp_path) == records.Code(None, None)


def test_every_record_of_the_repository_has_an_origin():
    for name in records.names():
        header = records.read_header(name)
        assert header["depends"], name
        for session in header["sessions"]:
            assert len(session["commit"]) == 40, name
            assert session["commit_is"] in (records.EXACT, records.AT_OR_BEFORE), name
