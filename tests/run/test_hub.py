"""Upload to and download from a Hub: a local server that answers the few calls that huggingface_hub makes."""

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from capspoe import CapsulePoE
from capspoe.errors import RunError
from capspoe.run.hub import FILES

SHA = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """One repository, me/digits, in memory."""

    protocol_version = "HTTP/1.1"
    files: dict[str, bytes]
    asked: list[str]

    def answer(self, body: bytes | dict | list, status: int = 200, **headers: str) -> None:
        data = json.dumps(body).encode() if not isinstance(body, bytes) else body
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), "X-Repo-Commit": SHA, **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append(f"POST {self.path}")
        if self.path == "/api/repos/create":
            self.answer({"url": f"http://{self.headers['Host']}/me/digits", "id": "me/digits"})
        elif "/preupload/" in self.path:
            wanted = [file["path"] for file in json.loads(body)["files"]]
            self.answer({"files": [{"path": p, "uploadMode": "regular", "shouldIgnore": False} for p in wanted]})
        elif "/commit/" in self.path:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            address = f"http://{self.headers['Host']}/me/digits/commit/{SHA}"
            self.answer({"commitUrl": address, "commitOid": SHA, "success": True})
        else:
            self.answer({}, 200)

    def do_GET(self) -> None:
        self.asked.append(f"{self.command} {self.path}")
        path = self.path.partition("?")[0]
        if not path.startswith(("/api/models/me/digits", "/me/digits/resolve/")):
            self.answer({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")
        elif "/tree/" in path:
            sizes = {name: len(data) for name, data in self.files.items()}
            self.answer([{"type": "file", "path": p, "size": n, "oid": SHA} for p, n in sizes.items()])
        elif path.startswith("/api/models/me/digits"):
            siblings = [{"rfilename": name} for name in sorted(self.files)]
            self.answer({"id": "me/digits", "sha": SHA, "siblings": siblings, "private": False, "tags": []})
        else:
            data = self.files[path.rpartition("/")[2]]
            self.answer(data, ETag=f'"{hashlib.sha1(data).hexdigest()}"')

    do_HEAD = do_GET

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def hub():
    kind = type("OneHub", (Hub,), {"files": {}, "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    server.handle_error = lambda *_: None  # a client that hangs up would be reported in a later test's output
    threading.Thread(target=server.serve_forever, daemon=True).start()
    kind.address = f"http://127.0.0.1:{server.server_port}"
    yield kind
    server.shutdown()
    server.server_close()


def test_a_network_goes_to_the_hub_and_back(hub, model, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "evaluation.json").write_text('{"rows": [{"name": "capspoe", "fid": 12.5}]}')
    address = model.push_to_hub("me/digits", tmp_path / "run", endpoint=hub.address, token="secret")
    assert address == f"{hub.address}/me/digits/commit/{SHA}"
    assert set(hub.files) == set(FILES)
    assert b"| capspoe | 12.5 |" in hub.files["README.md"]

    hub.files["setup.py"] = b"raise SystemExit('run by mistake')"
    options = {"cache_dir": tmp_path / "cache", "endpoint": hub.address, "token": False}
    there = CapsulePoE.from_pretrained("me/digits", **options)
    assert np.array_equal(there.sample(4).images, model.sample(4).images)
    assert not any("setup.py" in request for request in hub.asked)  # nothing but the files we read

    hub.asked.clear()
    again = CapsulePoE.from_pretrained("me/digits", **options, local_files_only=True)
    assert np.array_equal(again.sample(4).images, model.sample(4).images)
    assert hub.asked == []


@pytest.mark.parametrize("name", ["me/unknown", "not a name", "no/such/folder"])
def test_what_is_not_there_is_one_clear_line(hub, tmp_path, name):
    with pytest.raises(RunError, match="neither a folder nor within reach on the Hub") as caught:
        CapsulePoE.from_pretrained(name, cache_dir=tmp_path, endpoint=hub.address, token=False)
    assert "\n" not in str(caught.value)


def test_damage_on_the_way_is_noticed(hub, model, tmp_path):
    model.push_to_hub("me/digits", endpoint=hub.address, token="secret")
    weights = hub.files["model.safetensors"]
    hub.files["model.safetensors"] = weights[:-1] + bytes([weights[-1] ^ 1])
    with pytest.raises(RunError, match="checksum"):
        CapsulePoE.from_pretrained("me/digits", cache_dir=tmp_path, endpoint=hub.address, token=False)
