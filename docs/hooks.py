"""MkDocs hooks: the live demo, the reference of commands and settings, CONTRIBUTING.md, equations, docstrings."""

import importlib
import inspect
import io
import json
import os
import re
import subprocess
import tempfile
import textwrap
from contextlib import redirect_stdout, suppress
from html import unescape
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.structure.toc import AnchorLink

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
API_NAME = re.compile(r'(?<!">)<code>(capspoe(?:\.\w+)+)</code>')  # neither in a link nor in a heading
TEST_NAME = re.compile(r"(?<=::)\w+(?=</code>)")
RANGE_IN_TABLE = re.compile(r"\u00a0±(?=[^<]*</td>)")  # may break before ±, where a table would be too wide
DOCTEST = re.compile(r"(?:<blockquote>\s*){3}<p>(.*?)</p>\s*(?:</blockquote>\s*){3}", re.S)


SETTINGS_INTRODUCTION = """\
# Settings

Every setting of a run. On the command line it is an option of `capspoe train`: `min_steps` is `--min-steps 200`, and
a switch that is on by default is turned off by `--no-bias`. In Python it is a keyword, as in
`capspoe.train("mnist", min_steps=200)`, or an entry of `config` in scikit-learn's estimator. Where `--preset paper`
has another default, it follows in parentheses."""
HELP_WIDTH = 84  # characters that fit the column of text
SANITY_LIMIT = 10_000  # a limit above only catches typing errors, and is not worth a reader's time

# latex2mathml leaves out the thin spaces around the name of a function.
THIN_SPACE = '<mspace width="0.17em"/>'
OPERATOR_NAME = re.compile(r"<mo>([a-z]{2,})</mo>(?=<mo\b)")  # min( is spaced like log(
BEFORE_FUNCTION = re.compile(r"(</m(?:i|n|row|sub|sup|subsup)>)(?=<mi>[a-z]{2,}</mi>)")
AFTER_FUNCTION = re.compile(r"(<mi>[a-z]{2,}</mi>)(?=<m(?!o\b|space))")
PRIME = re.compile(r"<msup>(<mi>\w</mi>)<mi>&#x02032;</mi></msup>")


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


def on_page_content(html: str, page: Page, **_: Any) -> str:
    """Render equations, and what Markdown does not know about docstrings."""
    html = EQUATION.sub(lambda m: mathml(m.group(3), "block" if m.group(2) == "[" else "inline"), html)
    html = DIRECTIVE.sub(lambda m: mathml(m.group(1), "block"), html)
    html = SECTION.sub(lambda m: f"<p>{m.group(1)}:</p>" + definitions(m.group(2), r" : "), html)
    html = NAMES.sub(lambda m: definitions(m.group(1), r" {2,}"), html)
    html = DOCTEST.sub(lambda m: f"<pre><code>{m.group(1)}</code></pre>", html)
    # The names of tests are long: let them break between words.
    html = TEST_NAME.sub(lambda m: "<wbr>" + m.group().replace("_", "_<wbr>"), html)
    html = RANGE_IN_TABLE.sub(" ±", html)
    page.toc.items = contents(page.toc.items, html)
    # mkdocstrings turns this into a link if the name is in the reference.
    return API_NAME.sub(r'<autoref identifier="\1" optional><code>\1</code></autoref>', html)


def contents(items: list[AnchorLink], html: str) -> list[AnchorLink]:
    """The table of contents without the headings that SECTION replaced."""
    present = [item for item in items if f'id="{item.id}"' in html]
    for item in present:
        item.children = contents(item.children, html)
    return present


def commands_page() -> str:
    """Every command with what `capspoe COMMAND --help` prints."""
    lines = ["# Commands", "", "What `capspoe COMMAND --help` prints. RUN is a run folder, or `mnist-small`.", ""]
    width = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(HELP_WIDTH)
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
            wrap_long_lines(text.getvalue()),
            "```",
            "",
        ]
    os.environ.pop("COLUMNS")
    if width is not None:
        os.environ["COLUMNS"] = width
    return "\n".join(lines)


def wrap_long_lines(text: str) -> str:
    """Wrap the descriptions of commands, which tyro prints as one line each."""
    wrapped = []
    for line in text.splitlines():
        if len(line) > HELP_WIDTH:
            line = textwrap.fill(line, HELP_WIDTH, break_long_words=False, break_on_hyphens=False)
        wrapped.append(line)
    return "\n".join(wrapped)


def settings_page() -> str:
    """Every setting, by the headings of `Config`."""
    kinds = get_type_hints(Config)
    lines = [SETTINGS_INTRODUCTION, "", '<div class="settings" markdown>']
    for line in inspect.getsource(Config).splitlines():
        heading = re.fullmatch(r"    # (.*)", line)
        row = re.match(r"    (\w+): .* = (?:setting|advanced)\(", line)
        if heading:
            lines += ["", f"## {heading[1]}", "", "| setting | meaning | type | default |", "|---|---|---|---|"]
        elif row:
            name = row[1]
            cells = (f"`{name}`", meaning_of(name), describe_type(kinds[name]), default_of(name))
            lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "</div>"]
    return "\n".join(lines)


def meaning_of(name: str) -> str:
    """The help of a setting, with its limits."""
    metadata = FIELDS[name].metadata
    text = metadata["help"].replace("|", "or")
    low, high = metadata["limits"]
    if high is not None and high <= SANITY_LIMIT:
        text += f" Between {low:,} and {high:,}."
    return text


def describe_type(kind: Any) -> str:
    """A type in words: "keep, grey or rgb", "int or None"."""
    choices = get_args(kind)
    if get_origin(kind) is Literal:
        return f"{', '.join(choices[:-1])} or {choices[-1]}"
    if choices:
        return " or ".join(map(describe_type, choices))
    return "None" if kind is type(None) else kind.__name__


def default_of(name: str) -> str:
    """The default of a setting, and that of the paper's preset where it differs."""
    text = str(FIELDS[name].default)
    if name in PRESETS["paper"]:
        text += f" (paper: {PRESETS['paper'][name]})"
    return text


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
    """An equation in MathML."""
    html = convert(unescape(latex).strip(), display=display)
    html = OPERATOR_NAME.sub(r"<mi>\1</mi>", html)
    html = BEFORE_FUNCTION.sub(rf"\1{THIN_SPACE}", html)
    html = AFTER_FUNCTION.sub(rf"\1{THIN_SPACE}", html)
    # A prime is raised already. As a superscript of an index it would be too small to see.
    return PRIME.sub(r"<mrow>\1<mo>&#x02032;</mo></mrow>", html)


def definitions(lines: str, separator: str) -> str:
    """A list of names with their descriptions; indented lines continue the one before."""
    joined = re.sub(r"\n {2,}", " ", lines)
    pairs = [[*re.split(separator, line, maxsplit=1), ""][:2] for line in joined.splitlines()]
    return "<ul>" + "".join(f"<li><code>{name}</code> {text}</li>" for name, text in pairs) + "</ul>"
