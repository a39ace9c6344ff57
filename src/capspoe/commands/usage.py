"""Wrong usage in one line. tyro draws a box, whose text this module reads."""

import contextlib
import io
import re
import sys
from collections.abc import Iterator

NAME_INDENT = 4  # of an argument's name in a box; its help is indented further
LINE = re.compile(r"[│ ] (.*)")  # in a box, whose border is spaces if the terminal has no UTF-8
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# What tyro says, and how we say it.
PHRASES = (
    (r"Error parsing (\S+): no type matching INT could .* from \['(.*)'\]\.", r"\1 takes a whole number, not '\2'"),
    (r"Error parsing (\S+): no type matching FLOAT could .* from \['(.*)'\]\.", r"\1 takes a number, not '\2'"),
    (r"Error parsing (\S+): no type matching (\S+) could .* from \['(.*)'\]\.", r"\1 takes \2, not '\3'"),
    (r"Error parsing (\S+): invalid literal for int\(\) with base 10: (.*)", r"\1 takes a whole number, not \2"),
    (r"Error parsing (\S+): could not convert string to float: (.*)", r"\1 takes a number, not \2"),
    (r"Missing value for argument '(\S+)'.*", r"\1 needs a value"),
    (r"Unrecognized options: (.*)", r"unknown: \1"),
)
CHOICE = re.compile(r"invalid choice '(.*)' for argument '(\S+)'\. Expected one of \((.*?),?\) ?\.")


@contextlib.contextmanager
def one_line_errors(command: str) -> Iterator[None]:
    """Report the wrong usage that tyro finds within the `with` statement in one line."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            yield
    except SystemExit:
        if printed.getvalue():
            print(f"{command}: {summarise(printed.getvalue(), command)}", file=sys.stderr)
        raise


def summarise(box: str, command: str) -> str:
    """What a box of tyro says, and what to do."""
    advice = f"{command} --help lists the options"
    problems = []
    for first, *others in sections_of(box):
        if first.startswith("Missing from"):
            problems.append(f"missing: {', '.join(others)}")
        elif first.startswith("Perhaps you meant") and others:
            advice = f"did you mean {others[0].split()[0]}?"
        elif first == "Unrecognized options:":
            problems.append(f"unknown: {', '.join(others)}")
        elif not problems:
            problems.append(rephrased(" ".join((first, *others))))
    return "; ".join((*problems, advice))


def rephrased(problem: str) -> str:
    if choice := CHOICE.fullmatch(problem):
        value, option, choices = choice.groups()
        # None stands for an option that is not given. tyro's order may change from run to run.
        names = sorted(set(re.findall("'(.*?)'", choices)) - {"None"})
        return f"{option} is one of {', '.join(names)}, not {value!r}"
    for pattern, phrase in PHRASES:
        problem = re.sub(pattern, phrase, problem)
    return problem


def sections_of(box: str) -> list[list[str]]:
    """The paragraphs of a box, which rules or blank lines divide, as lines without the help of arguments."""
    sections: list[list[str]] = [[]]
    for line in COLOUR.sub("", box).splitlines():
        inside = LINE.fullmatch(line)
        if inside is None:  # the border, whose title says nothing new
            continue
        text = inside[1].rstrip("│ ")
        if not text.strip("─- "):
            sections.append([])
        elif len(text) - len(text.lstrip()) <= NAME_INDENT:
            sections[-1].append(text.strip())
    return [section for section in sections if section] or [[" ".join(box.split())]]
