"""WCAG AA: every pair of text and ground that the style sheet uses has a contrast of 4.5 or more."""

import re
from pathlib import Path

import pytest

import capspoe.explorer

STATIC = Path(capspoe.explorer.__file__).parent / "static"
TOKENS = dict(re.findall(r"--([\w-]+): light-dark\((#\w+, #\w+)\)", (STATIC / "style.css").read_text()))
PAIRS = [
    *(("ink", ground) for ground in ("bg", "panel", "sunk", "soft")),
    *(("muted", ground) for ground in ("bg", "panel", "sunk", "soft")),
    ("accent", "panel"), ("accent", "soft"), ("accent-ink", "accent"), ("alert", "alert-soft"), ("good", "sunk"),
    ("bg", "ink"),
]  # fmt: skip


def luminance(colour):
    channels = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_the_formula():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), PAIRS)
def test_contrast(text, ground, theme):
    assert contrast(TOKENS[text].split(", ")[theme], TOKENS[ground].split(", ")[theme]) >= 4.5


def test_every_rule_is_for_something():
    used = " ".join(path.read_text() for path in STATIC.iterdir() if path.suffix in (".html", ".js"))
    for path in STATIC.glob("*.css"):
        selectors = re.sub(r"\{[^{}]*\}", " ", path.read_text())
        for name in set(re.findall(r"[.#]([a-z][a-z-]+)", selectors)) - {"py"}:
            assert re.search(rf"\b{name}\b", used), f"{path.name}: {name}"


def test_nothing_is_loaded_from_elsewhere():
    for path in STATIC.iterdir():
        text = path.read_text().replace("http://www.w3.org/", "")
        assert not re.search(r"(https?:)?//[\w-]+\.\w", text), path.name
        if path.suffix == ".html":
            assert not re.search(r"\bstyle=|\bon\w+=|<script(?![^>]*src=)", text), path.name
