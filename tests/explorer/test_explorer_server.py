"""The command: it says where it is, serves many at once, and stops cleanly."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx2 as httpx
import pytest

from capspoe import cli
from capspoe.errors import InputError
from capspoe.explorer.server import bind
from conftest import until


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_and_stops_when_told(gated_run, number):
    command = [sys.executable, "-m", "capspoe", "explore", gated_run, "--port", "0", "--no-browser"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        line = process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/", line)[0]
        client = httpx.Client()
        until(lambda: answers(client, address))
        idle = socket.create_connection(("127.0.0.1", httpx.URL(address).port))  # a client that says nothing
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
        assert out == "stopped\n"
        idle.close()
    finally:
        process.kill()


def answers(client, address):
    try:
        return client.get(address).status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (["nothing-here"], "is not a run folder", 1),
        (["--port", "70000"], "--port must be between", 1),
        (["--host", "nothing.invalid"], "cannot listen on nothing.invalid: ", 1),
    ],
)
def test_what_cannot_be_served(gated_run, arguments, message, code, capsys):
    run = [] if arguments[0] == "nothing-here" else [str(gated_run)]
    with pytest.raises(SystemExit) as stop:
        cli.main(["explore", *run, *arguments, "--no-browser"])
    assert stop.value.code == code
    said = capsys.readouterr().err
    assert message in said
    assert len(said.splitlines()) == 1


def test_a_taken_port():
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(InputError, match="choose another --port"):
            bind("127.0.0.1", taken.getsockname()[1])


def test_other_addresses_get_a_warning(gated_run, monkeypatch, capsys):
    from capspoe.explorer import server

    monkeypatch.setattr(server.uvicorn.Server, "run", lambda self, sockets: None)
    monkeypatch.setattr(server.signal, "signal", lambda *a: None)
    server.serve(gated_run, "0.0.0.0", 0, browser=False)
    assert "warning" in capsys.readouterr().err
    server.serve(gated_run, "127.0.0.1", 0, browser=False)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(server, "bind", lambda host, port: bind("127.0.0.1", 0))
    for host in ("::1", "[::1]"):
        server.serve(gated_run, host, browser=False)
        assert "http://[::1]:" in capsys.readouterr().out


def test_a_flood_does_not_block_others(address):
    stop = threading.Event()
    seen = []

    def flood():
        with httpx.Client(headers={"x-client": "flood"}, timeout=60) as client:
            while not stop.is_set():
                seen.append(client.get(f"{address}/api/grid.png?rows=16&seed={len(seen)}").status_code)

    threads = [threading.Thread(target=flood, daemon=True) for _ in range(24)]
    for thread in threads:
        thread.start()
    try:
        time.sleep(0.5)
        with httpx.Client(headers={"x-client": "person"}, timeout=60) as client:
            for _ in range(10):
                assert client.post(f"{address}/api/paint", json={"on": {"0": [0] * 6}}).status_code == 200
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    assert set(seen) <= {200, 409, 429}
    assert 409 in seen


def test_clients_that_hang_up_or_dawdle(address):
    url = httpx.URL(address)
    held = []
    for request in (
        b"GET /api/gallery HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"POST /api/paint HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        b"Content-Type: application/json\r\nContent-Length: 99\r\n\r\n{",
        b"GET / HTT",
        b"\x16\x03\x01nonsense\r\n\r\n",
    ):
        for linger in (False, True):
            connection = socket.create_connection((url.host, url.port))
            connection.sendall(request)
            if linger:
                held.append(connection)
            else:
                connection.close()
    assert httpx.post(f"{address}/api/paint", json={"on": {"0": [0] * 6}}, timeout=20).status_code == 200
    for connection in held:
        connection.close()
