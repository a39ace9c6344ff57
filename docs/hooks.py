"""What MkDocs does not do by itself: equations as MathML, made here and not in the browser; files outside docs."""

import re
from html import unescape
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

EQUATION = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.S)


def on_files(files: Files, config: Any) -> Files:
    """The guide for contributors stands where people look for it, outside docs; its links are turned to this side."""
    text = (Path(config.config_file_path).parent / "CONTRIBUTING.md").read_text()
    files.append(File.generated(config, "contributing.md", content=text.replace("](docs/", "](")))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links to files of the repository, which the site does not have, become their names."""
    if "/" in page.file.src_uri:
        return markdown
    return re.sub(r"\[([^\]]+)\]\(\.\./[^)]*\)", r"\1", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """$...$ and $$...$$, which arithmatex has found, as MathML."""

    def rendered(match: re.Match[str]) -> str:
        display = "block" if match.group(2) == "[" else "inline"
        return convert(unescape(match.group(3)).strip(), display=display)

    return EQUATION.sub(rendered, html)
