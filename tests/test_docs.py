"""What docs/model.md points to exists."""

import importlib
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
MODEL = (ROOT / "docs" / "model.md").read_text()


def rows():
    table = MODEL.split("## Every equation of the paper")[1].split("Besides")[0]
    return [line.split(" | ") for line in table.splitlines() if re.match(r"\| \d", line)]


def test_every_equation_has_a_row():
    numbers = [int(n) for row in rows() for n in re.findall(r"\d+", row[0])]
    assert numbers == list(range(1, 19))


def test_every_function_exists():
    homes = ("routing", "capsules", "contrastive", "autoencoder")
    for row in rows():
        for name in re.findall(r"`([\w.]+)`", row[2]):
            first, attribute = name.split(".")
            owners = [importlib.import_module(f"capspoe.{home}") for home in homes]
            found = [o for o in owners if o.__name__.endswith(first)] + [
                getattr(o, first) for o in owners if hasattr(o, first)
            ]
            assert any(hasattr(owner, attribute) for owner in found), name


def test_every_test_exists():
    for row in rows():
        file = None
        for name_of_file, test in re.findall(r"`([\w.]*)::(\w+)`", row[3]):
            file = name_of_file or file
            assert f"def {test}(" in (ROOT / "tests" / file).read_text(), test
