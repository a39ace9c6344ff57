"""MkDocs hooks: equations as MathML, numpydoc sections as lists, and CONTRIBUTING.md as a page of the site."""

import re
from html import unescape
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

EQUATION = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.S)
DIRECTIVE = re.compile(r"<p>\.\. math::\s*(.*?)</p>", re.S)  # an equation in a docstring
SECTION = re.compile(r'<h\d id="[^"]*--(?:parameters|attributes)">(\w+)<a .*?</h\d>\s*<p>(.*?)</p>', re.S)
NAMES = re.compile(
    r"<p>((?:[\w., ()]+? {2,}\S[^\n]*\n)+[\w., ()]+? {2,}\S[^\n]*)</p>"
)  # "name    what it is", line by line
DOCTEST = re.compile(r"(?:<blockquote>\s*){3}<p>(.*?)</p>\s*(?:</blockquote>\s*){3}", re.S)


def on_files(files: Files, config: Any) -> Files:
    """Add CONTRIBUTING.md, with its links turned to this side."""
    text = (Path(config.config_file_path).parent / "CONTRIBUTING.md").read_text()
    files.append(File.generated(config, "contributing.md", content=text.replace("](docs/", "](")))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Replace links to files outside the site by their text."""
    if "/" in page.file.src_uri:
        return markdown
    markdown = markdown.replace("](../CONTRIBUTING.md", "](contributing.md")
    return re.sub(r"\[([^\]]+)\]\(\.\./[^)]*\)", r"\1", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Render equations, and what Markdown does not know about docstrings."""
    html = EQUATION.sub(lambda m: mathml(m.group(3), "block" if m.group(2) == "[" else "inline"), html)
    html = DIRECTIVE.sub(lambda m: mathml(m.group(1), "block"), html)
    html = SECTION.sub(lambda m: f"<p>{m.group(1)}:</p>" + definitions(m.group(2), r" : "), html)
    html = NAMES.sub(lambda m: definitions(m.group(1), r" {2,}"), html)
    return DOCTEST.sub(lambda m: f"<pre><code>{m.group(1)}</code></pre>", html)


def mathml(latex: str, display: str) -> str:
    return convert(unescape(latex).strip(), display=display)


def definitions(lines: str, separator: str) -> str:
    """A list of names with their descriptions; indented lines continue the one before."""
    joined = re.sub(r"\n {2,}", " ", lines)
    pairs = [[*re.split(separator, line, maxsplit=1), ""][:2] for line in joined.splitlines()]
    return "<ul>" + "".join(f"<li><code>{name}</code> {text}</li>" for name, text in pairs) + "</ul>"
