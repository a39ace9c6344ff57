"""An empty cache, a local web server, and the toy data set in the catalogue."""

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import toyset

from capspoe.data import CATALOGUE


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The path of an empty cache."""
    monkeypatch.setenv("CAPSPOE_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def toy(cache, monkeypatch):
    """toy(*servers) registers the toy data set and returns its folder in the cache."""
    monkeypatch.setitem(CATALOGUE, "toy", toyset.toy_entry())

    def start(*servers):
        toyset.register(*(server.url for server in servers))
        return cache / "toy"

    return start


class Server:
    """Answer each path with bytes, a status, or (bytes, a wrong Content-Length)."""

    def __init__(self, answers, delay):
        self.asked = asked = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path)
                time.sleep(delay)
                answer = answers.get(self.path, 404)
                if isinstance(answer, int):
                    self.send_error(answer)
                    return
                body, length = answer if isinstance(answer, tuple) else (answer, len(answer))
                self.send_response(200)
                if length is not None:
                    self.send_header("Content-Length", str(length))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        # A client that gave up waiting is no error, and the message would appear in the output of a later test.
        self.server.handle_error = lambda *_: None
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()


@pytest.fixture
def serve(monkeypatch):
    """serve(answers, delay) starts a server that stops with the test."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    servers = []

    def start(answers, delay=0.0):
        servers.append(Server(answers, delay))
        return servers[-1]

    yield start
    for server in servers:
        server.server.shutdown()
        server.server.server_close()
