"""Who may talk to the explorer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capspoe.explorer.security import CONTENT_POLICY, host_allowed, host_name, is_loopback, refusal

LOCAL = ["127.0.0.1", "127.0.0.1:8765", "localhost", "LOCALHOST:80", "[::1]:8765", "127.8.9.1:1"]
FOREIGN = [
    *(
        "evil.example",
        "evil.example:8765",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "10.0.0.1:8765",
    ),
    *(
        "",
        ":8765",
        "127.0.0.1@evil.example",
        "evil.example/127.0.0.1",
        "[::1",
        "127.0.0.1:x",
        "a b",
        "2130706433",
    ),
]


@pytest.mark.parametrize("host", LOCAL)
def test_names_of_this_machine(host):
    assert host_allowed(host, "127.0.0.1")


@pytest.mark.parametrize("host", FOREIGN)
def test_other_names(host):
    assert not host_allowed(host, "127.0.0.1")


@given(st.text(max_size=60))
def test_host_headers_never_surprise(text):
    assert host_allowed(text, "127.0.0.1") in (True, False)
    assert host_name(text) is None or host_name(text)


@pytest.mark.parametrize("hosts", [[], [b"127.0.0.1", b"evil.example"], [b"127.0.0.1", b"127.0.0.1"]])
def test_one_host_header_and_no_more(hosts):
    headers = [(b"host", host) for host in hosts]
    scope = {"type": "http", "method": "GET", "path": "/", "headers": headers}
    assert refusal(scope, "127.0.0.1") == "the Host header does not name this server"


def test_bound_to_the_network():
    assert host_allowed("192.168.1.7:8765", "0.0.0.0")
    assert host_allowed("lab-7:8765", "lab-7")
    assert not host_allowed("evil.example", "0.0.0.0")
    assert is_loopback("::1")
    assert not is_loopback("0.0.0.0")


@pytest.mark.parametrize("path", ["/", "/api", "/api/run", "/api/openapi.json", "/static/app.js", "/nothing"])
@pytest.mark.parametrize("host", FOREIGN[:6])
def test_requests_under_another_name_get_nothing(api, path, host):
    answer = api.get(path, headers={"host": host})
    assert answer.status_code == 403
    assert "error" in answer.json()


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "http://127.0.0.1:8765.evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"},
    ],
)
def test_other_web_pages_cannot_use_it(api, headers):
    assert api.get("/api/run", headers=headers).status_code == 403
    assert api.post("/api/paint", json={"on": {"0": [0] * 6}}, headers=headers).status_code == 403


def test_its_own_page_and_a_notebook_can(api):
    for headers in ({}, {"origin": "http://127.0.0.1:8765"}, {"sec-fetch-site": "same-origin"}):
        assert api.post("/api/paint", json={"on": {"0": [0] * 6}}, headers=headers).status_code == 200


def test_a_link_from_elsewhere_opens_the_page_only(api):
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert api.get("/", headers=link).status_code == 200
    assert api.get("/api/grid.png", headers=link).status_code == 403


def test_a_form_cannot_post(api):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        answer = api.post("/api/paint", content=b'{"on":{"0":[0,0,0,0,0,0]}}', headers={"content-type": kind})
        assert answer.status_code == 415


@pytest.mark.parametrize("path", ["/", "/api", "/api/run", "/static/style.css", "/nothing", "/api/nothing"])
def test_every_answer_carries_the_headers(api, path):
    answer = api.get(path)
    assert answer.headers["content-security-policy"] == CONTENT_POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert "cache-control" in answer.headers
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/%2e%2e/server.py",
        "/static/..%2fserver.py",
        "/static//etc/passwd",
        "/static/%00",
    ],
)
def test_no_way_out_of_the_static_folder(api, path):
    assert api.get(path).status_code in (404, 400)
