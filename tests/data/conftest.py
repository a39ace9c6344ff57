"""Shared by the data tests: an empty cache, and a web server on this machine that serves given bytes."""

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("CAPSPOE_DATA", str(folder))
    return folder


class Web:
    """What a server answers, by path; an answer may be bytes, a status, or bytes with a wrong length."""

    def __init__(self, answers, delay=0.0):
        self.answers, self.delay, self.asked = dict(answers), delay, []
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                web.asked.append(self.path)
                time.sleep(web.delay)
                answer = web.answers.get(self.path, 404)
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
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()


@pytest.fixture
def serve(monkeypatch):
    """serve(answers, delay) starts a server that ends with the test."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    running = []

    def start(answers, delay=0.0):
        running.append(Web(answers, delay))
        return running[-1]

    yield start
    for web in running:
        web.server.shutdown()
        web.server.server_close()
