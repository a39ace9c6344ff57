"""The catalogue and the cache folder."""

import os
import subprocess
import sys

import pytest

from capspoe.data import CATALOGUE, cache_dir, fetch, info, verify
from capspoe.data.catalogue import Package
from capspoe.data.downloads import CLIENTS, LAYOUTS
from capspoe.data.formats import READERS
from capspoe.errors import InputError


def test_entries_are_complete(cache):
    assert {name: entry.train + entry.test for name, entry in CATALOGUE.items()} == {
        "mnist": 70_000,
        "fashion-mnist": 70_000,
        "cifar10": 60_000,
        "digits": 1797,
    }
    for entry in CATALOGUE.values():
        assert len(entry.classes) == 10
        assert entry.format in READERS
        assert entry.cached == (entry.name == "digits")
        for download in entry.downloads:
            if isinstance(download, Package):
                assert download.client in CLIENTS
                assert download.layout in LAYOUTS
                assert download.sha256 or download.client == "apt"
            else:
                assert download.sha256 or not download.archive


def test_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("CAPSPOE_DATA", str(tmp_path / "own"))
    assert cache_dir() == tmp_path / "own"
    monkeypatch.delenv("CAPSPOE_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "capspoe"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "capspoe"


@pytest.mark.parametrize("call", [fetch, verify, info])
def test_unknown_names_are_refused_with_a_hint(call):
    with pytest.raises(InputError, match="did you mean mnist"):
        call("minst")


def test_import_needs_neither_torch_nor_sklearn_nor_rich():
    code = "import sys, capspoe.data; print([m for m in ('torch', 'sklearn', 'rich') if m in sys.modules])"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
