"""The documentation site builds without warnings, renders docstrings, and loads nothing from elsewhere."""

import os
import re
import subprocess
import sys
from html import unescape
from inspect import signature
from pathlib import Path
from urllib.parse import unquote

import pytest

from capspoe import CapsulePoE
from capspoe.cli import COMMANDS
from capspoe.config import FIELDS
from capspoe.infer.complete import complete
from capspoe.infer.likelihood import score
from capspoe.infer.sample import sample

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


def test_functions_and_primes_in_equations_are_legible(site):
    assert '<mi>s</mi><mspace width="0.17em"/><mi>cos</mi><mo' in site["model.html"]
    assert '<mi>log</mi><mspace width="0.17em"/><mi>P</mi>' in site["model.html"]
    assert (
        "<msub><mo>&#x02211;</mo><mrow><mrow><mi>i</mi><mo>&#x02032;</mo></mrow></mrow></msub>" in site["model.html"]
    )


def test_links_within_a_page_have_targets(site):
    for name, page in site.items():
        targets = {unquote(target) for target in re.findall(r'href="#([^"]+)"', page)}
        assert targets <= {unescape(anchor) for anchor in re.findall(r'\bid="?([^">\s]+)', page)}, name


def test_settings_and_commands(site):
    rows = re.findall(r"<tr>\s*<td><code>(\w+)</code></td>\s*(.*?)\s*</tr>", site["settings.html"], re.S)
    assert [name for name, _ in rows] == list(FIELDS)
    cells = {name: re.findall(r"<td>(.*?)</td>", row) for name, row in rows}
    assert cells["colour"][1:] == ["keep, grey or rgb", "keep"]
    assert cells["size"][0].endswith(" Between 5 and 4,096.")
    assert cells["channels"][1:] == ["int", "32 (paper: 128)"]
    commands = re.sub("</?(?:span|a)[^>]*>", "", site["commands.html"])
    helps = re.findall(r"<code>(usage: .*?)</code>", commands, re.S)
    assert len(helps) == len(COMMANDS)
    assert max(len(unescape(line)) for text in helps for line in text.splitlines()) <= 84


def test_methods_have_the_parameters_of_their_functions(site):
    """CapsulePoE spells them out, so that the reference shows them."""
    for function in (sample, complete, score):
        method = getattr(CapsulePoE, function.__name__)
        _, *of_function = signature(function).parameters.values()
        _, *of_method = signature(method).parameters.values()
        assert of_method == of_function
    assert 'href="inference.html#capspoe.infer.sample.sample"' in site["api/network.html"]


def test_nothing_is_loaded_from_elsewhere(site):
    for name, page in site.items():
        for tag in re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", page):
            assert not re.search(r'(?:src|href)="(?:https?:)?//', tag), f"{name}: {tag}"
