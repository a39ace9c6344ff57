"""Every package that is installed is pinned, and requirements.lock says which files."""

import re
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

ROOT = Path(__file__).parents[2]


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(line):
    name, version = line.split("==")
    return canonical(name), version


def versions():
    return dict(map(pinned, (ROOT / "constraints.txt").read_text().split()))


def test_the_lock_has_one_file_of_every_pinned_package():
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if line[0] != "#"]
    locked = dict(pinned(line.removesuffix(" \\")) for line in lines[::2])
    assert all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}", line) for line in lines[1::2])
    optional = {"atheris", "pyarrow", "umap-learn"}  # of extras that `make` does not install
    assert locked == {name: version for name, version in versions().items() if name not in optional}


def test_no_address_is_written_down():
    for name in ("requirements.lock", "constraints.txt", "pyproject.toml"):
        text = (ROOT / name).read_text()
        text = text.replace('Paper = "https://arxiv.org/abs/1907.11639"', "")
        assert not re.search(r"://|--index|--find-links|@ ", text)


def test_what_pinned_packages_need_is_pinned():
    """Of those that are installed here; a package that nobody pinned would be whatever is newest that day."""
    pins, looked_at = versions(), 0
    for name in pins:
        try:
            needs = requires(name) or []
        except PackageNotFoundError:
            continue
        looked_at += 1
        plain = [need for need in needs if ";" not in need]
        missing = {canonical(re.match(r"[\w.-]+", need)[0]) for need in plain} - pins.keys()
        assert not missing, f"{name} needs {missing}"
    assert looked_at > 30
