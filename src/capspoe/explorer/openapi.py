"""The OpenAPI document of the JSON API, from the same table as the routes and the same schemas as the checks."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from capspoe import __version__
from capspoe.explorer import api
from capspoe.explorer.schema import BODIES

Query = tuple[str, Any, str]  # name, default (None: required), what it is


@dataclass(frozen=True)
class Endpoint:
    method: str
    path: str
    call: Callable[[Request], Awaitable[Response]]
    summary: str
    answer: dict[str, str] = field(default_factory=dict)  # keys of the JSON answer; empty for a PNG
    query: tuple[Query, ...] = ()

    @property
    def body(self) -> str | None:
        return self.path.rsplit("/", 1)[-1] if self.method == "POST" else None


SHEET = "PNG data URL of images side by side without gaps"
ENDPOINTS = (
    Endpoint(
        "GET", "/api/run", api.run, "What the run is: sizes, gate, stage, and the revision of what is loaded.",
        {"name": "of the folder", "data": "the data set", "image": "height, width, colours",
         "capsules": "upper capsules", "numbers": "in each of them", "lower": "lower capsules",
         "iterations": "of routing", "gate": "winner or none", "neurons": "gaussian or binary",
         "stage": "of the loaded checkpoint", "revision": "changes with what is loaded",
         "test_images": "how many there are", "no_test_images": "why there are none",
         "ink": "whether drawings are framed like the run's images"},
    ),
    Endpoint(
        "GET", "/api/gallery", api.gallery, "What every capsule paints: its mean and a few samples.",
        {"revision": "of what is loaded", "samples": "images after the mean in each sheet",
         "capsules": "for each: capsule, use, name (what most of its images are, by label) and sheet"},
    ),
    Endpoint(
        "GET", "/api/capsules/{capsule}", api.capsule, "One capsule: its numbers by effect, and what each does.",
        {"capsule": "its number", "name": "label, share and images, or null", "use": "share of all images",
         "effect": "of each number: mean change of a pixel from -2 to 2", "order": "numbers, strongest first",
         "positions": "values in a strip", "strips": f"{SHEET}, a row a number"},
    ),
    Endpoint(
        "GET", "/api/random", api.random, "Numbers of a capsule drawn from its prior.",
        {"capsule": "its number", "values": "in standard deviations"},
        (("capsule", None, "its number"), ("seed", 0, "same seed, same numbers")),
    ),
    Endpoint(
        "POST", "/api/paint", api.paint, "The image of one capsule, or of several where the run has no gate.",
        {"image": "PNG data URL"},
    ),
    Endpoint(
        "POST", "/api/strips", api.strips, "What each number of a capsule does from where it stands.",
        {"capsule": "its number", "positions": "values in a strip", "strips": f"{SHEET}, a row a number"},
    ),
    Endpoint(
        "GET", "/api/images", api.images, "Test images of the run, all or those that switch a capsule on.",
        {"total": "how many there are", "images": "for each: index, label and image"},
        (("start", 0, "first one"), ("count", 24, "1 to 96"), ("capsule", -1, "-1 for all")),
    ),
    Endpoint(
        "POST", "/api/recognise", api.recognise, "Which capsule an image switches on, and all their numbers.",
        {"on": "P(on) of every capsule", "winner": "the most probable", "hidden": "capsules x numbers, raw",
         "values": "the same in standard deviations", "label": "of a test image",
         "input": "PNG data URL: the image as the network saw it", "reconstruction": "PNG data URL"},
    ),
    Endpoint(
        "POST", "/api/routing", api.routing, "The routing of an image, iteration by iteration.",
        {"iterations": "for each: weights (capsules x lower capsules, relative to their mean) and on",
         "lower": "x, y, width of each lower capsule's field, as shares of the image",
         "strength": "length of each lower capsule's vector"},
    ),
    Endpoint(
        "POST", "/api/interpolate", api.interpolate, "From one image or state to another through the capsules.",
        {"steps": "frames", "frames": SHEET},
    ),
    Endpoint(
        "GET", "/api/training", api.training, "Curves of the run so far; status training, stopped or finished.",
        {"status": "training, stopped or finished", "stage": "of the loaded checkpoint",
         "quiet_seconds": "since the run last wrote", "images": "trained on",
         "stages": "for each: stage, step, of, steps, curves by name, use", "revision": "of what is loaded"},
    ),
    Endpoint("GET", "/api/samples.png", api.samples, "The newest picture of samples."),
    Endpoint(
        "GET", "/api/grid.png", api.grid, "Samples of every capsule, a column each, as a picture.", {},
        (("rows", 4, "1 to 16"), ("seed", 0, "same seed, same picture"), ("scale", 2, "1 to 8")),
    ),
)  # fmt: skip


def operation(e: Endpoint) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {
            "name": name,
            "in": "query",
            "required": default is None,
            "description": what,
            "schema": {"type": "integer", **({} if default is None else {"default": default})},
        }
        for name, default, what in e.query
    ]
    if "{capsule}" in e.path:
        parameters.append({"name": "capsule", "in": "path", "required": True, "schema": {"type": "integer"}})
    properties = {key: {"description": what} for key, what in e.answer.items()}
    schema = {"type": "object", "properties": properties, "required": list(e.answer)}
    content: dict[str, Any] = (
        {"application/json": {"schema": schema}}
        if e.answer
        else {"image/png": {"schema": {"type": "string", "format": "binary"}}}
    )
    found: dict[str, Any] = {
        "summary": e.summary,
        "operationId": e.call.__name__,
        "parameters": parameters,
        "responses": {
            "200": {"description": "Done", "content": content},
            "default": {"$ref": "#/components/responses/Error"},
        },
    }
    if e.body:
        taken = {"schema": {"$ref": f"#/components/schemas/{e.body}"}}
        found["requestBody"] = {"required": True, "content": {"application/json": taken}}
    return found


def document() -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for e in ENDPOINTS:
        paths.setdefault(e.path, {})[e.method.lower()] = operation(e)
    error = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "capspoe explorer",
            "version": __version__,
            "description": "What the explorer's page asks of its server, open to notebooks. Images travel as PNG "
            "data URLs. A client that sends a name of its own in X-Client has its older requests of one kind "
            "replaced by newer ones (status 409).",
        },
        "paths": paths,
        "components": {
            "schemas": {**BODIES, "error": error},
            "responses": {
                "Error": {
                    "description": "400 wrong input, 403 not from here, 404 no such thing, 409 replaced by a newer "
                    "request, 413 too large, 415 not JSON, 429 too many requests waiting, 503 not there yet",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/error"}}},
                }
            },
        },
    }
