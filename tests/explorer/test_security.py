"""Which requests are served."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from capspoe.explorer.security import host_allowed, is_loopback, refusal

BODY = {"poses": {"0": [0] * 6}}
LOCAL = ["127.0.0.1", "127.0.0.1:8765", "localhost", "LOCALHOST:80", "[::1]:8765", "[::1]", "127.8.9.1:1"]
FOREIGN = [
    *[
        "evil.example",
        "evil.example:8765",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "10.0.0.1:8765",
        "2130706433",
    ],
    *("", ":8765", "127.0.0.1@evil.example", "evil.example/127.0.0.1", "[::1", "127.0.0.1:x", "a b"),
]


def test_names_of_this_machine():
    assert all(host_allowed(host, "127.0.0.1") for host in LOCAL)
    assert [host for host in FOREIGN if host_allowed(host, "127.0.0.1")] == []


@given(st.text(max_size=60))
def test_no_host_header_breaks_it(text):
    assert not host_allowed(text + ".example", "127.0.0.1")


def test_bound_to_the_network():
    assert host_allowed("192.168.1.7:8765", "0.0.0.0")
    assert host_allowed("lab-7:8765", "lab-7")
    assert not host_allowed("evil.example", "0.0.0.0")
    assert [is_loopback(host) for host in ("::1", "0.0.0.0", "")] == [True, False, False]


@pytest.mark.parametrize("hosts", [[], [b"127.0.0.1", b"evil.example"], [b"127.0.0.1", b"127.0.0.1"]])
def test_exactly_one_host_header(hosts):
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", host) for host in hosts]}
    assert refusal(Request(scope), "127.0.0.1") == "the Host header does not name this server"


@pytest.mark.parametrize("path", ["/", "/api/run", "/app.js", "/nothing"])
def test_requests_under_another_name_get_nothing(api, path):
    for host in FOREIGN[:6]:
        answer = api.get(path, headers={"host": host})
        assert answer.status_code == 403
        assert list(answer.json()) == ["error"]


ELSEWHERE = [
    *[{"origin": origin} for origin in ("http://evil.example", "null", "http://127.0.0.1:9999")],
    {"origin": "http://127.0.0.1:8765.evil.example"},
    *[{"sec-fetch-site": site} for site in ("cross-site", "same-site")],
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"},
]


@pytest.mark.parametrize("headers", ELSEWHERE)
def test_other_web_pages_cannot_use_it(api, headers):
    assert api.get("/api/run", headers=headers).status_code == 403
    assert api.post("/api/decode", json=BODY, headers=headers).status_code == 403


def test_its_own_page_and_a_notebook_can(api):
    for headers in ({}, {"origin": "http://127.0.0.1:8765"}, {"sec-fetch-site": "same-origin"}):
        assert api.post("/api/decode", json=BODY, headers=headers).status_code == 200


def test_a_link_from_elsewhere_opens_only_the_page(api):
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert api.get("/", headers=link).status_code == 200
    assert api.get("/api/samples", headers=link).status_code == 403
    assert api.post("/", headers=link).status_code == 403


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_form_cannot_post(api, kind):
    content = b'{"poses": {"0": [0, 0, 0, 0, 0, 0]}}'
    assert api.post("/api/decode", content=content, headers={"content-type": kind}).status_code == 415


@pytest.mark.parametrize("path", ["/", "/api/run", "/style.css", "/nothing", "/api/nothing"])
def test_every_answer_carries_the_headers(api, path):
    headers = api.get(path).headers
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy.pop("img-src") == "'self' data: blob:"
    assert {policy.pop(name) for name in ("script-src", "style-src", "connect-src")} == {"'self'"}
    assert policy == dict.fromkeys(("default-src", "base-uri", "form-action", "frame-ancestors"), "'none'")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cache-control"] == ("no-store" if path.startswith("/api") else "no-cache")
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize("path", ["/../server.py", "/%2e%2e/server.py", "/..%2fserver.py", "//etc/passwd", "/%00"])
def test_no_way_out_of_the_static_folder(api, path):
    assert api.get(path).status_code in (404, 400)
