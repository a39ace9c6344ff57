"""Tables and numbers in Markdown, and templates that are filled with them."""

import re
from collections.abc import Iterable, Sequence
from statistics import mean

PART = r"\{\{(.+?)\}\}"  # what a template asks for, such as {{mnist small models}}


def number(values: Sequence[float], digits: int) -> str:
    """The mean, with ± half the range if the values differ; .95 rather than 0.95."""
    middle = shown(mean(values), digits)
    half_range = shown((max(values) - min(values)) / 2, digits)
    if float(half_range) == 0:
        return middle
    return f"{middle}\u00a0±\u00a0{half_range}"


def shown(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    if digits > 2:
        return text.removeprefix("0")
    return text


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [line(titles), "|---" * len(titles) + "|"]
    for row in rows:
        lines.append(line(row))
    return "\n".join(lines)


def line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def fill(template: str, parts: dict[str, str]) -> str:
    """The template with its parts. Paragraphs that lack one become a line that says what is missing."""
    paragraphs: list[str] = []
    missing: list[str] = []
    for paragraph in template.split("\n\n"):
        absent = [name for name in re.findall(PART, paragraph) if name not in parts]
        if absent:
            missing += absent
            continue
        if missing:
            paragraphs.append(not_measured(missing))
            missing = []
        paragraphs.append(re.sub(PART, lambda match: parts[match.group(1)], paragraph))
    if missing:
        paragraphs.append(not_measured(missing))
    return "\n\n".join(paragraphs).rstrip() + "\n"


def not_measured(missing: list[str]) -> str:
    """One line for several paragraphs; several parts of one section ('mnist small models') are named together."""
    named = missing
    if len(missing) > 1:
        sections = [" ".join(name.split()[:2]) for name in missing]
        named = list(dict.fromkeys(sections))
    return f"*Not measured yet: {', '.join(named)}. `make reproduce` does it.*"
