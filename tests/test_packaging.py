"""What is around the code agrees with it: versions, workflows, the container, the notebook's badge."""

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

import capspoe

ROOT = Path(__file__).parents[1]
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github/workflows").glob("*.yml")}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_version_is_written_once():
    assert PROJECT["dynamic"] == ["version"]
    assert f"version: {capspoe.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    newest = re.search(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert newest[1] == capspoe.__version__


def test_the_changelog_keeps_the_usual_form():
    text = (ROOT / "CHANGELOG.md").read_text()
    for version in re.split(r"^## ", text, flags=re.M)[1:]:
        assert re.match(r"\[\d+\.\d+\.\d+\] - (\d{4}-\d\d-\d\d|unreleased|never released)\n", version)
        kinds = re.findall(r"^### (.*)", version, re.M)
        assert set(kinds) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
        assert len(kinds) == len(set(kinds))


def test_workflows_run_make_and_nothing_else():
    steps = [s for w in WORKFLOWS.values() for job in w["jobs"].values() for s in job["steps"]]
    commands = [step["run"] for step in steps if "run" in step]
    assert {"make test", "make test CONSTRAINTS=", "make docs", "make dist", "make bench"} == set(commands)
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{command.split()[1]}:", makefile, re.M) for command in commands)


def test_workflows_may_only_read_unless_a_job_says_more():
    for name, workflow in WORKFLOWS.items():
        assert workflow["permissions"] == {"contents": "read"}, name
        assert all("timeout-minutes" in job for job in workflow["jobs"].values()), name


def test_every_python_version_of_the_metadata_is_tested():
    claimed = re.findall(r":: Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert PROJECT["requires-python"] == f">={claimed[0]}"
    assert WORKFLOWS["test"]["jobs"]["test"]["strategy"]["matrix"]["python"] == claimed
    pythons = re.search(r"^PYTHONS \?= (.*)", (ROOT / "Makefile").read_text(), re.M)[1]
    assert pythons.split() == [f"python{version}" for version in claimed]
    setup = WORKFLOWS["release"]["jobs"]["build"]["steps"][1]
    assert sorted(setup["with"]["python-version"].split()) == claimed


def test_the_container_has_no_root_and_no_open_port():
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER")]
    assert users == ["1000"]
    assert not [line for line in lines if line.startswith(("EXPOSE", "ADD"))]
    assert 'ENTRYPOINT ["capspoe"]' in lines
    copied = {name for line in lines if line.startswith("COPY") for name in line.split()[1:-1]}
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"}
    assert copied == allowed
    assert all((ROOT / name).exists() for name in copied)


def test_the_devcontainer_uses_make():
    assert json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())["postCreateCommand"] == "make setup"


@pytest.mark.parametrize("path", [".github", ".devcontainer", "Dockerfile", "Makefile", ".ci"])
def test_no_package_index_is_named(path):
    files = [ROOT / path] if (ROOT / path).is_file() else [p for p in (ROOT / path).rglob("*") if p.is_file()]
    assert files
    for file in files:
        if file.suffix != ".pyc":
            assert not re.search(r"index-url\s*=?\s*http|https?://(?!127\.0\.0\.1)", file.read_text()), file
