"""The documentation site builds without warnings, renders docstrings, and loads nothing from elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return {str(page.relative_to(folder)): page.read_text() for page in folder.rglob("*.html")}


def test_every_page_is_there(site):
    pages = [p.relative_to(ROOT / "docs").with_suffix(".html") for p in (ROOT / "docs").rglob("*.md")]
    assert {*map(str, pages), "contributing.html"} <= set(site)


def test_equations_and_docstrings_are_rendered(site):
    assert site["model.html"].count("<math ") > 80
    for name, page in site.items():
        assert not re.search(r"arithmatex|<merror|\.\. math::", page), name
    assert "<li><code>iterations</code> routing iterations; 1 means uniform weights</li>" in site["api/layers.html"]
    assert (
        "<li><code>use (J,)</code> share of the images for which the capsule is on</li>" in site["api/inference.html"]
    )


def test_nothing_is_loaded_from_elsewhere(site):
    for name, page in site.items():
        for tag in re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", page):
            assert not re.search(r'(?:src|href)="(?:https?:)?//', tag), f"{name}: {tag}"
