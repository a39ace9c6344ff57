"""The command: it prints its address, serves many clients, and stops cleanly."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from urllib.parse import urlsplit

import httpx2 as httpx
import pytest
from serving import until

from capspoe import cli
from capspoe.errors import InputError
from capspoe.explorer import server
from capspoe.explorer.scheduler import LIMIT
from capspoe.explorer.server import bind

BODY = {"poses": {"0": [0] * 6}}


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_prints_its_address_and_stops(gated_run, number):
    command = [sys.executable, "-m", "capspoe", "explore", gated_run, "--port", "0", "--no-browser"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, **pipes)
    try:
        address = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())[0]
        assert httpx.get(address, timeout=60).status_code == 200
        silent = [socket.create_connection(("127.0.0.1", urlsplit(address).port))]
        process.send_signal(number)
        with contextlib.suppress(OSError):  # clients that come while it stops
            while True:
                silent.append(socket.create_connection(("127.0.0.1", urlsplit(address).port)))
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (0, "stopped\n", "")
        for client in silent:
            client.close()
    finally:
        process.kill()


def test_more_connections_than_the_limit_are_turned_away(gated_run):
    command = [sys.executable, "-m", "capspoe", "explore", gated_run, "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            address = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())[0]
            assert httpx.get(address, timeout=60).status_code == 200
            silent = [socket.create_connection(("127.0.0.1", urlsplit(address).port)) for _ in range(LIMIT)]
            assert httpx.get(address, timeout=60).status_code == 503
            for client in silent:
                client.close()
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing-here"], "is not a run folder"),
        (["RUN", "--port", "70000"], "cannot listen on 127.0.0.1:70000: "),
        (["RUN", "--host", "nothing.invalid"], "cannot listen on nothing.invalid: "),
    ],
)
def test_what_cannot_be_served(gated_run, arguments, message, capsys):
    words = [str(gated_run) if word == "RUN" else word for word in arguments]
    with pytest.raises(SystemExit) as stop:
        cli.main(["explore", *words, "--no-browser"])
    assert stop.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_a_taken_port():
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(InputError, match="choose another --port"):
            bind("127.0.0.1", taken.getsockname()[1])


def test_other_addresses_get_a_warning(gated_run, monkeypatch, capsys):
    monkeypatch.setattr(server.uvicorn.Server, "run", lambda self, sockets: None)
    monkeypatch.setattr(server.signal, "signal", lambda *a: None)
    server.serve(gated_run, "0.0.0.0", 0, browser=False)
    assert "warning" in capsys.readouterr().err
    server.serve(gated_run, "127.0.0.1", 0, browser=False)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(server, "bind", lambda host, port: bind("127.0.0.1", 0))
    server.serve(gated_run, "[::1]", browser=False)
    assert "http://[::1]:" in capsys.readouterr().out


def test_a_flood_does_not_block_others(address):
    stop, seen = threading.Event(), []

    def flood():
        headers = {"x-client": "flood", "x-lane": "gallery"}
        with httpx.Client(headers=headers, timeout=60) as client:
            while not stop.is_set():
                seen.append(client.get(f"{address}/api/gallery").status_code)

    threads = [threading.Thread(target=flood, daemon=True) for _ in range(24)]
    for thread in threads:
        thread.start()
    until(lambda: len(seen) > 24)
    with httpx.Client(timeout=60) as client:
        answers = [client.post(f"{address}/api/decode", json=BODY).status_code for _ in range(10)]
    stop.set()
    for thread in threads:
        thread.join(30)
    assert answers == [200] * 10
    assert set(seen) == {200, 409}
