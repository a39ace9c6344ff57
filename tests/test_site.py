"""The documentation site is built without a warning, holds its equations, and asks the network for nothing."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return {str(page.relative_to(folder)): page.read_text() for page in folder.rglob("*.html")}


def test_every_page_is_there(site):
    pages = [p.relative_to(ROOT / "docs").with_suffix(".html") for p in (ROOT / "docs").rglob("*.md")]
    assert {str(page) for page in pages} | {"contributing.html"} <= set(site)
    assert "How to add a data set" in site["contributing.html"]


def test_equations_are_mathml(site):
    assert site["model.html"].count("<math ") > 80
    assert '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">' in site["model.html"]
    for name, page in site.items():
        assert "arithmatex" not in page, name
        assert "<merror" not in page, name


def test_the_reference_has_signatures_and_docstrings(site):
    for words in ("capspoe.train", "capspoe.CapsulePoE", "capspoe.sklearn", "Route the lower capsules x"):
        assert words in site["api.html"]


def test_equations_and_lists_of_docstrings_are_rendered(site):
    assert ".. math::" not in site["api.html"]
    assert site["api.html"].count("<math ") >= 1
    assert "<li><code>mu</code> the mean code (I, M), subtracted when centred</li>" in site["api.html"]


def test_nothing_is_fetched_from_elsewhere(site):
    for name, page in site.items():
        for tag in re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", page):
            assert not re.search(r'(?:src|href)="(?:https?:)?//', tag), f"{name}: {tag}"
