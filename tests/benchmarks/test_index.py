"""benchmarks/README.md lists every script and every record, and the scripts can be run."""

import ast
import fnmatch
import importlib
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks import records

ROOT = records.ROOT
BENCHMARKS = ROOT / "benchmarks"
INDEX = (BENCHMARKS / "README.md").read_text()
LISTED = re.findall(r"^\| `python -m (benchmarks[\w.]+)", INDEX, re.M)


PATHS = sorted(BENCHMARKS.rglob("*.py"))
OURS = ("capspoe", "benchmarks")


def name_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def scripts():
    """Every module below benchmarks/ that does something when it is run."""
    modules = []
    for path in PATHS:
        if '\nif __name__ == "__main__":\n' in path.read_text():
            modules.append(name_of(path).removesuffix(".__main__"))
    return modules


def module_of(script):
    package = BENCHMARKS.joinpath(*script.split(".")[1:])
    return importlib.import_module(f"{script}.__main__" if package.is_dir() else script)


@pytest.mark.parametrize("path", PATHS, ids=name_of)
def test_every_module_imports_and_uses_names_that_exist(path):
    """Names that are imported, and those that are looked up in a module of ours, such as `spectral.nearest`."""
    module = importlib.import_module(name_of(path))
    for node in ast.walk(ast.parse(path.read_text())):
        if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)):
            continue
        owner = getattr(module, node.value.id, None)
        if isinstance(owner, ModuleType) and owner.__name__.split(".")[0] in OURS:
            assert hasattr(owner, node.attr), f"{owner.__name__} has no {node.attr} (line {node.lineno})"


def test_the_index_lists_every_script_once():
    assert sorted(LISTED) == sorted(scripts())


@pytest.mark.parametrize("script", LISTED)
def test_every_script_answers_help(script, capsys):
    with pytest.raises(SystemExit) as end:
        module_of(script).main(["--help"])
    assert end.value.code == 0
    words = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert f"python -m {script}" in words


@pytest.mark.parametrize("script", LISTED)
def test_what_a_script_depends_on_exists(script):
    for part in getattr(module_of(script), "DEPENDS", ()):
        assert (ROOT / "src" / "capspoe" / part).exists(), part


def test_scripts_run_as_modules_from_the_root():
    command = [sys.executable, "-m", "benchmarks.records"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in records.names())


def test_the_index_names_every_record():
    patterns = set()
    for row in re.findall(r"^\|.*\|$", INDEX, re.M):
        cells = [cell.strip() for cell in row.split("|")]
        column = cells[1] if len(cells) == 5 else cells[3]
        patterns |= set(re.findall(r"`([\w*-]+)`", column))
    names = records.names()
    assert [name for name in names if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns)] == []
    assert [pattern for pattern in patterns if not fnmatch.filter(names, pattern)] == []


def test_links_of_the_index_lead_somewhere():
    targets = re.findall(r"\]\(([^)]+)\)", INDEX)
    assert targets
    assert [target for target in targets if not (BENCHMARKS / target).exists()] == []


def test_the_documentation_names_scripts_that_exist():
    pages = [*(ROOT / "docs").rglob("*.md"), *BENCHMARKS.rglob("*.md.in"), *ROOT.glob("*.md"), ROOT / "Makefile"]
    named = set()
    for page in pages:
        named |= set(re.findall(r"python -m (benchmarks[\w.]+\w)", page.read_text()))
    assert len(named) > 10
    assert named <= set(scripts())


def test_no_script_changes_the_search_path():
    for path in BENCHMARKS.rglob("*.py"):
        assert "sys.path" not in path.read_text(), path
        assert Path(path.parent / "__init__.py").exists(), path
