"""The page's files: contrast of its colours, no dead rules, nothing from elsewhere."""

import re
from pathlib import Path

import pytest

import capspoe.explorer

STATIC = Path(capspoe.explorer.__file__).parent / "static"
CSS = (STATIC / "style.css").read_text()
COLOURS = dict(re.findall(r"--([\w-]+): light-dark\((#\w+, #\w+)\)", CSS))
PAIRS = [
    *(("ink", ground) for ground in ("bg", "panel", "sunk", "soft")),
    *(("muted", ground) for ground in ("bg", "panel", "sunk", "soft")),
    *(("accent-ink", "accent"), ("alert", "alert-soft"), ("bg", "ink")),
]


def luminance(colour):
    channels = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_contrast_of_text(theme):
    """WCAG AA asks for 4.5."""
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    for text, ground in PAIRS:
        assert contrast(COLOURS[text].split(", ")[theme], COLOURS[ground].split(", ")[theme]) >= 4.5


def test_every_rule_is_for_something():
    used = " ".join(path.read_text() for path in STATIC.iterdir() if path.suffix in (".html", ".js"))
    selectors = re.sub(r"/\*.*?\*/|\{[^{}]*\}", " ", CSS, flags=re.DOTALL)
    for name in set(re.findall(r"[.#]([a-z][a-z-]+)", selectors)):
        assert re.search(rf"\b{name}\b", used), name


def test_nothing_is_loaded_from_elsewhere():
    for path in STATIC.iterdir():
        text = path.read_text().replace("http://www.w3.org/", "")
        assert not re.search(r"(https?:)?//[\w-]+\.\w", text), path.name
        assert not re.search(r"\bstyle=|\son\w+=\"|<script(?![^>]*src=)", text), path.name
