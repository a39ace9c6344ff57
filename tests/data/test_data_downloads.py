"""Downloads of a toy data set: servers and clients that fail, lie or hang; disks that are full."""

import errno
import gzip
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from toyset import FILES, LABELS, PIXELS, WEB, toy_entry

from capspoe.data import CATALOGUE, downloads, fetch, load, verify
from capspoe.data.catalogue import Package, Site
from capspoe.errors import DataError

IMAGE_FILE, LABEL_FILE = FILES
HERE = Path(__file__).parent


def silent(_):
    pass


def files_in(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_fetch_fills_the_cache_and_then_needs_no_network(toy, serve, capsys):
    server = serve(WEB)
    folder = toy(server)
    assert fetch("toy") == folder
    assert files_in(folder) == FILES
    assert verify("toy") == dict.fromkeys(FILES, "ok")
    fetch("toy", offline=True)
    assert len(server.asked) == 2
    assert load("toy").pixels.tolist() == PIXELS[..., None].tolist()
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        "toy: downloading 2 files from site 0",
        f"toy: complete and verified in {folder}",
    ]


def test_only_missing_files_are_downloaded(toy, serve):
    server = serve(WEB)
    folder = toy(server)
    folder.mkdir(parents=True)
    (folder / IMAGE_FILE).write_bytes(FILES[IMAGE_FILE])
    fetch("toy", report=silent)
    assert server.asked == [f"/{LABEL_FILE}.gz"]


WRONG = FILES[IMAGE_FILE][:-1] + bytes([FILES[IMAGE_FILE][-1] ^ 1])


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (gzip.compress(WRONG), f"{IMAGE_FILE} is damaged"),
        (WEB[f"/{IMAGE_FILE}.gz"][:-500], "damaged archive"),
        ((WEB[f"/{IMAGE_FILE}.gz"][:-500], len(WEB[f"/{IMAGE_FILE}.gz"])), "damaged archive"),
        (404, "answers 404"),
        (500, "answers 500"),
        (b"<html>sign in</html>", "damaged archive"),
        (gzip.compress(bytes(10_000_000)), f"{IMAGE_FILE} is larger than it should be"),
        ((bytes(3_000_000), None), f"{IMAGE_FILE}.gz is larger than it should be"),
        ((b"", "a lot"), "connection failed"),
    ],
)
def test_a_server_that_fails_leaves_nothing_and_the_next_is_tried(toy, serve, answer, problem):
    folder = toy(serve(WEB | {f"/{IMAGE_FILE}.gz": answer}), serve(WEB))
    lines = []
    fetch("toy", report=lines.append)
    assert files_in(folder) == FILES
    assert any("site 0 failed" in line and problem in line for line in lines), lines


def test_a_wrong_file_does_not_enter_the_cache(toy, serve):
    folder = toy(serve(WEB | {f"/{IMAGE_FILE}.gz": gzip.compress(WRONG)}))
    with pytest.raises(DataError, match=f"{IMAGE_FILE} is damaged"):
        fetch("toy", report=silent)
    assert files_in(folder).keys() == {LABEL_FILE}


def test_good_files_of_a_failing_server_are_kept(toy, serve):
    good = serve(WEB)
    folder = toy(serve({name: WEB[name] for name in WEB if LABEL_FILE not in name} | {}), good)
    fetch("toy", report=silent)
    assert good.asked == [f"/{LABEL_FILE}.gz"]
    assert files_in(folder) == FILES


def test_a_server_that_hangs_is_given_up(toy, serve, monkeypatch):
    monkeypatch.setattr(downloads, "TIMEOUT", 1)
    toy(serve(WEB, delay=30), serve(WEB))
    lines = []
    fetch("toy", report=lines.append)
    assert any("site 0 failed" in line and "timed out" in line for line in lines)


def test_when_everything_fails_the_error_says_why_and_what_to_do(toy, serve):
    folder = toy(serve({}), serve({}))
    with pytest.raises(DataError) as caught:
        fetch("toy", report=silent)
    message = str(caught.value)
    assert "site 0: it answers 404" in message
    assert "site 1: it answers 404" in message
    assert f"put {IMAGE_FILE}, {LABEL_FILE} into {folder}" in message
    assert "\n" not in message
    assert files_in(folder) == {}


def test_offline_never_downloads_and_says_what_is_missing(toy, serve):
    server = serve(WEB)
    folder = toy(server)
    for call in (fetch, load):
        with pytest.raises(DataError, match=r"has not been downloaded.*missing.*capspoe data fetch toy"):
            call("toy", offline=True)
    assert server.asked == []
    assert not folder.exists()


@pytest.mark.parametrize("damage", [lambda d: d[:-1], lambda d: b"\1" + d[1:], lambda d: b""])
def test_a_damaged_file_in_the_cache_is_replaced(toy, serve, damage):
    folder = toy(serve(WEB))
    fetch("toy", report=silent)
    (folder / LABEL_FILE).write_bytes(damage(FILES[LABEL_FILE]))
    assert verify("toy") == {IMAGE_FILE: "ok", LABEL_FILE: "damaged"}
    with pytest.raises(DataError, match=f"{LABEL_FILE}: damaged"):
        load("toy", offline=True)
    assert load("toy").labels.tolist() == LABELS.tolist()
    assert files_in(folder) == FILES


def start_fetch(server):
    code = "import sys, toyset, capspoe.data as d; toyset.register(sys.argv[1]); d.fetch('toy')"
    paths = os.pathsep.join([str(HERE), *(path for path in sys.path if path)])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, server.url]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def test_two_processes_download_once(toy, serve):
    server = serve(WEB, delay=1.5)
    folder = toy(server)
    both = [start_fetch(server), start_fetch(server)]
    errors = [process.communicate(timeout=60)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], errors
    assert sorted(server.asked) == sorted(WEB)
    assert files_in(folder) == FILES


def test_a_killed_download_starts_again_cleanly(toy, serve):
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
    fetch("toy", report=silent)
    assert files_in(folder) == FILES


@pytest.fixture
def small_disk(tmp_path, monkeypatch):
    """small_disk(options) mounts a real small disk and makes it the cache."""
    place = tmp_path / "disk"

    def mount(options):
        place.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
        if not shutil.which("mount") or subprocess.run(command, capture_output=True).returncode:
            pytest.skip("this machine does not let us mount a small disk")
        monkeypatch.setenv("CAPSPOE_DATA", str(place))
        return place

    yield mount
    if place.is_mount():
        subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_is_noticed_before_the_download(toy, serve, small_disk):
    server = serve(WEB)
    toy(server)
    disk = small_disk("size=16k")
    with pytest.raises(DataError, match=r"cannot write to .*MB needed.*CAPSPOE_DATA"):
        fetch("toy", report=silent)
    assert server.asked == []
    assert files_in(disk / "toy") == {}


def test_a_disk_that_fills_up_during_the_download_is_left_clean(toy, serve, small_disk, monkeypatch):
    toy(serve(WEB), serve(WEB))
    disk = small_disk("size=16k")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**12, 0, 10**12))
    with pytest.raises(DataError, match=r"cannot write to .*No space left"):
        fetch("toy", report=silent)
    assert files_in(disk / "toy") == {}


def test_a_read_only_cache_can_be_read(toy, serve, small_disk):
    toy(serve(WEB))
    disk = small_disk("size=1m")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with pytest.raises(DataError, match=r"cannot write to .*set CAPSPOE_DATA"):
        fetch("toy", report=silent)
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    fetch("toy", report=silent)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    assert len(load("toy").pixels) == 40


@pytest.mark.parametrize("code", [errno.EDQUOT, errno.EROFS, errno.EACCES])
def test_disk_errors_while_installing_are_one_line(toy, serve, monkeypatch, code):
    def fail(*_):
        raise OSError(code, os.strerror(code))

    folder = toy(serve(WEB))
    monkeypatch.setattr(downloads.os, "replace", fail)
    with pytest.raises(DataError, match="cannot write to"):
        fetch("toy", report=silent)
    assert files_in(folder) == {}


def test_a_cache_that_is_a_file_is_one_line(toy, serve, cache):
    toy(serve(WEB))
    cache.write_text("in the way")
    with pytest.raises(DataError, match="cannot write to"):
        fetch("toy", report=silent)


def test_an_archive_with_another_checksum_is_not_opened(cache, serve, monkeypatch):
    server = serve({"/all.tar.gz": b"a hostile archive"})
    site = Site("site", server.url, archive="all.tar.gz", sha256="0" * 64)
    monkeypatch.setitem(CATALOGUE, "toy", toy_entry(site))
    monkeypatch.setattr(downloads, "unpack_files", lambda *_: pytest.fail("opened"))
    with pytest.raises(DataError, match=r"all\.tar\.gz has a wrong checksum; it was not opened"):
        fetch("toy", report=silent)


@pytest.fixture
def client(cache, tmp_path, monkeypatch):
    """client(script) makes a shell script the npm of this machine, and the only download of the toy data set."""
    if os.name != "posix":
        pytest.skip("the fake client is a shell script")

    def write(script):
        (tmp_path / "npm").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "npm").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setitem(CATALOGUE, "toy", toy_entry(Package("npm", "toy", "1", sha256="0" * 64)))

    return write


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'npm error code E404' >&2; echo 'a log is here' >&2; exit 1", "npm error code E404"),
        ("exit 3", "exit code 3"),
        ("exit 0", "0 packages"),
        ("touch toy-1.tgz other-1.tgz", "2 packages"),
        ("echo hostile > toy-1.tgz", "toy-1.tgz has a wrong checksum; it was not opened"),
    ],
)
def test_a_client_that_fails_is_quoted(client, script, message):
    client(script)
    with pytest.raises(DataError, match=message):
        fetch("toy", report=silent)


@pytest.mark.skipif(os.name != "posix", reason="the fake client is a shell script")
@pytest.mark.parametrize(("tool", "option"), [("npm", "--ignore-scripts"), ("pip", "--only-binary=:all:")])
def test_clients_are_told_to_run_no_code_of_a_package(tmp_path, monkeypatch, tool, option):
    (tmp_path / tool).write_text('#!/bin/sh\necho "error: $*" >&2; exit 1\n')
    (tmp_path / tool).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(downloads.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(DataError, match=f"error: .* {option} "):
        downloads.CLIENTS[tool]("toy", "1", tmp_path)


def test_a_client_that_never_ends_is_given_up(client, monkeypatch):
    client("exec sleep 20")
    monkeypatch.setattr(downloads, "CLIENT_TIMEOUT", 0.2)
    with pytest.raises(DataError, match="no result within"):
        fetch("toy", report=silent)


@pytest.mark.parametrize(("client", "tool"), [("npm", "npm"), ("apt", "apt-get"), ("pip", "pip3")])
def test_a_missing_client_is_named(cache, monkeypatch, client, tool):
    monkeypatch.setitem(CATALOGUE, "toy", toy_entry(Package(client, "toy", "1")))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(downloads.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(DataError, match=f"{tool} is not on this machine"):
        fetch("toy", report=silent)


def test_progress_is_drawn_on_a_terminal(toy, serve, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    toy(serve(WEB))
    fetch("toy", report=silent)
    assert f"{IMAGE_FILE}.gz" in capsys.readouterr().err
