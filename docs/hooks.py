"""MkDocs hooks: the live demo, the reference of commands and settings, CONTRIBUTING.md, equations, docstrings."""

import importlib
import inspect
import io
import json
import os
import re
import subprocess
import tempfile
from contextlib import redirect_stdout, suppress
from html import unescape
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from capspoe import CapsulePoE
from capspoe.cli import COMMANDS
from capspoe.config import FIELDS, PRESETS, Config
from capspoe.export import export
from capspoe.run.bundled import bundled_folder

EQUATION = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.S)
DIRECTIVE = re.compile(r"<p>\.\. math::\s*(.*?)</p>", re.S)  # an equation in a docstring
SECTION = re.compile(r'<h\d id="[^"]*--(?:parameters|attributes)">(\w+)<a .*?</h\d>\s*<p>(.*?)</p>', re.S)
NAMES = re.compile(
    r"<p>((?:[\w., ()]+? {2,}\S[^\n]*\n)+[\w., ()]+? {2,}\S[^\n]*)</p>"
)  # "name    what it is", line by line
DOCTEST = re.compile(r"(?:<blockquote>\s*){3}<p>(.*?)</p>\s*(?:</blockquote>\s*){3}", re.S)


SETTINGS_INTRODUCTION = """\
# Settings

Every setting of a run. On the command line it is an option of `capspoe train`: `min_steps` is `--min-steps 200`, and
a switch that is on by default is turned off by `--no-bias`. In Python it is a keyword, as in
`capspoe.train("mnist", min_steps=200)`, or an entry of `config` in scikit-learn's estimator. The paper column has
what `--preset paper` changes."""


def on_config(config: Any) -> Any:
    """Link to the repository that this clone came from, if it is on the web."""
    command = ["git", "-C", str(Path(config.config_file_path).parent), "remote", "get-url", "origin"]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    address = re.sub(r"^(?:ssh://)?git@([^:/]+)[:/]", r"https://\1/", found).removesuffix(".git")
    if address.startswith("https://"):
        config.repo_url, config.repo_name = address, "/".join(address.split("/")[-2:])
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the bundled network as a page that runs in the browser, and CONTRIBUTING.md, with its links turned."""
    with tempfile.TemporaryDirectory() as folder:
        for path in export(CapsulePoE.load("mnist-small"), bundled_folder(), Path(folder), ("web",)):
            files.append(File.generated(config, f"demo/{path.name}", content=path.read_text(encoding="utf-8")))
    files.append(File.generated(config, "commands.md", content=commands_page()))
    files.append(File.generated(config, "settings.md", content=settings_page()))
    text = (Path(config.config_file_path).parent / "CONTRIBUTING.md").read_text()
    files.append(File.generated(config, "contributing.md", content=text.replace("](docs/", "](")))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Fill in the bundled network's scores, and replace links to files outside the site by their text."""
    if page.file.src_uri == "index.md":
        markdown = fill_in_scores(markdown)
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


def commands_page() -> str:
    """Every command with what `capspoe COMMAND --help` prints."""
    lines = ["# Commands", "", "What `capspoe COMMAND --help` prints. RUN is a run folder, or `mnist-small`.", ""]
    width = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100"
    for name, (_, summary) in COMMANDS.items():
        text = io.StringIO()
        with redirect_stdout(text), suppress(SystemExit):
            getattr(importlib.import_module(f"capspoe.commands.{name}"), name)(["--help"])
        lines += [
            f"## capspoe {name}",
            "",
            f"{summary[0].upper()}{summary[1:]}.",
            "",
            "```text",
            text.getvalue(),
            "```",
            "",
        ]
    os.environ.pop("COLUMNS")
    if width is not None:
        os.environ["COLUMNS"] = width
    return "\n".join(lines)


def settings_page() -> str:
    """Every setting, by the headings of `Config`."""
    lines = [SETTINGS_INTRODUCTION]
    for line in inspect.getsource(Config).splitlines():
        heading = re.fullmatch(r"    # (.*)", line)
        row = re.match(r"    (\w+): (.*?) = (?:setting|advanced)\(", line)
        if heading:
            lines += ["", f"## {heading[1]}", "", "| setting | type | default | paper | |", "|---|---|---|---|---|"]
        elif row:
            field = FIELDS[row[1]]
            kind = row[2].replace("|", "or").replace("Literal", "")
            low, high = field.metadata["limits"]
            help_text = field.metadata["help"].replace("|", "or")
            if low is not None:
                help_text += f" Between {low:g} and {high:g}."
            changed = PRESETS["paper"].get(row[1], "")
            lines.append(f"| `{row[1]}` | {kind} | {field.default} | {changed} | {help_text} |")
    return "\n".join(lines)


def fill_in_scores(markdown: str) -> str:
    """Replace `{row/score}` by that score of `capspoe evaluate` in the bundled network's summary.json.

    `%` asks for a percentage. A line whose scores were not measured is left out.
    """
    rows = json.loads((bundled_folder() / "summary.json").read_text())["scores"]
    scores = {f"{row['name']}/{key}": value for row in rows for key, value in row.items()}
    place = re.compile(r"\{([^{}/]+/\w+)(%?)\}")
    lines = [line for line in markdown.splitlines() if all(m[1] in scores for m in place.finditer(line))]
    text = "\n".join(lines)
    return place.sub(lambda m: f"{100 * scores[m[1]]:.0f}%" if m[2] else f"{scores[m[1]]:.1f}", text)


def mathml(latex: str, display: str) -> str:
    return convert(unescape(latex).strip(), display=display)


def definitions(lines: str, separator: str) -> str:
    """A list of names with their descriptions; indented lines continue the one before."""
    joined = re.sub(r"\n {2,}", " ", lines)
    pairs = [[*re.split(separator, line, maxsplit=1), ""][:2] for line in joined.splitlines()]
    return "<ul>" + "".join(f"<li><code>{name}</code> {text}</li>" for name, text in pairs) + "</ul>"
