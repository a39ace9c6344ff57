"""What MkDocs does not do by itself: equations as MathML, made here and not in the browser; files outside docs."""

import re
from html import unescape
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

DIRECTIVE = re.compile(r"<p>\.\. math::\s*(.*?)</p>", re.S)  # an equation in a docstring
NAMES = re.compile(
    r"<p>((?:[\w., ()]+? {2,}\S[^\n]*\n)+[\w., ()]+? {2,}\S[^\n]*)</p>"
)  # "name    what it is", line by line
EQUATION = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.S)


def on_files(files: Files, config: Any) -> Files:
    """The guide for contributors stands where people look for it, outside docs; its links are turned to this side."""
    text = (Path(config.config_file_path).parent / "CONTRIBUTING.md").read_text()
    files.append(File.generated(config, "contributing.md", content=text.replace("](docs/", "](")))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links to files of the repository that the site does not have become their names."""
    if "/" in page.file.src_uri:
        return markdown
    markdown = markdown.replace("](../CONTRIBUTING.md", "](contributing.md")
    return re.sub(r"\[([^\]]+)\]\(\.\./[^)]*\)", r"\1", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Equations, those that arithmatex has found and docstrings', as MathML; docstrings' lists of names."""

    def rendered(match: re.Match[str]) -> str:
        return mathml(match.group(3), "block" if match.group(2) == "[" else "inline")

    html = EQUATION.sub(rendered, html)
    html = DIRECTIVE.sub(lambda match: mathml(match.group(1), "block"), html)
    return NAMES.sub(lambda match: listed(match.group(1)), html)


def mathml(latex: str, display: str) -> str:
    return convert(unescape(latex).strip(), display=display)


def listed(lines: str) -> str:
    """Names with what they are, one below the other."""
    joined = re.sub(r"\n {2,}", " ", lines)
    pairs = [re.split(r" {2,}", line, maxsplit=1) for line in joined.splitlines()]
    return "<ul>" + "".join(f"<li><code>{name}</code> {words}</li>" for name, words in pairs) + "</ul>"
