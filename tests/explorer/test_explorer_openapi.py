"""The document says what the server does."""

import pytest

from capspoe.explorer.openapi import ENDPOINTS, document
from capspoe.explorer.schema import BODIES

BODY = {
    "paint": {"on": {"0": [0] * 6}},
    "strips": {"on": {"0": [0] * 6}, "capsule": 0},
    "recognise": {"image": {"index": 0}},
    "routing": {"image": {"index": 0}},
    "interpolate": {"first": {"index": 0}, "last": {"on": {"1": [0] * 6}}},
}


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda e: e.path)
def test_answers_have_the_documented_keys(api, endpoint):
    path = endpoint.path.replace("{capsule}", "2")
    if endpoint.path == "/api/random":
        path += "?capsule=1"
    answer = api.request(endpoint.method, path, json=BODY.get(endpoint.body))
    assert answer.status_code == 200
    if endpoint.answer:
        assert set(answer.json()) == set(endpoint.answer)
    else:
        assert answer.headers["content-type"] == "image/png"


def test_every_route_is_documented(api):
    served = {route.path.replace(":int", "") for route in api.app.routes if route.path.startswith("/api/")}
    assert served - {"/api/openapi.json"} == set(document()["paths"])


def test_references_lead_somewhere(api):
    found = api.get("/api/openapi.json").json()
    assert found["openapi"].startswith("3.")

    def walk(node):
        if isinstance(node, dict):
            if "$ref" in node:
                target = found
                for part in node["$ref"].removeprefix("#/").split("/"):
                    target = target[part]
            for inner in node.values():
                walk(inner)
        elif isinstance(node, list):
            for inner in node:
                walk(inner)

    walk(found)
    assert set(BODIES) <= set(found["components"]["schemas"])


def test_operations_have_names_of_their_own():
    names = [op["operationId"] for path in document()["paths"].values() for op in path.values()]
    assert len(names) == len(set(names)) == len(ENDPOINTS)
