"""The table of routes, the checks of what they take, and the way from a request to its answer."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from capspoe.errors import InputError
from capspoe.explorer.responses import JSON, json_body
from capspoe.explorer.session import Session

MAX_POSE = 100  # standard deviations


# Checks return the value to use, or raise InputError.
Field = tuple[Callable[[Any], Any], Any]  # a check and a default, None if the field is required


def integer(low: int, high: int, default: int | None = None) -> Field:
    def check(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise InputError(f"must be a whole number from {low} to {high}")
        return value

    return check, default


def check_poses(value: Any) -> dict[int, list[float]]:
    if not isinstance(value, dict) or not 1 <= len(value) <= 512:
        raise InputError("must map capsules to their poses")
    for capsule, pose in value.items():
        if not (capsule.isascii() and capsule.isdigit() and len(capsule) <= 4):
            raise InputError("capsules are whole numbers")
        if not isinstance(pose, list) or not all(map(_in_range, pose)):
            raise InputError(f"a pose is a list of numbers from -{MAX_POSE} to {MAX_POSE}")
    return {int(capsule): pose for capsule, pose in value.items()}


def _in_range(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= MAX_POSE


def check_image(value: Any) -> dict[str, Any]:
    match value:
        case {"index": index, **rest} if not rest:
            return {"index": integer(0, 10**9)[0](index)}
        case {"data": str(content), **rest} if rest in ({}, {"fit": True}, {"fit": False}):
            return {"data": content, "fit": rest.get("fit", True)}
    raise InputError('must be {"index": number of an image} or {"data": data URL of an image file}')


def check_hidden(value: Any) -> list[int]:
    numbers = isinstance(value, list) and all(type(k) is int and k >= 0 for k in value)
    if not numbers or not value:
        raise InputError("must list the numbers of the hidden pixels, row by row")
    return value


CAPSULE = integer(0, 9999)
SEED = integer(0, 2**31 - 1, 0)
POSES = (check_poses, None)
IMAGE = (check_image, None)
HIDDEN = (check_hidden, None)


class Endpoint(NamedTuple):
    method: str  # the fields of GET are in the address, those of POST in a JSON body
    path: str
    answer: Callable[..., Any]  # runs in the model's thread
    fields: dict[str, Field]


ENDPOINTS = (
    Endpoint("GET", "/run", Session.run, {}),
    Endpoint("GET", "/training", Session.training, {}),
    Endpoint("GET", "/gallery", Session.gallery, {}),
    Endpoint("GET", "/random", Session.random, {"capsule": CAPSULE, "seed": SEED}),
    Endpoint("POST", "/decode", Session.decode, {"poses": POSES}),
    Endpoint("POST", "/strips", Session.strips, {"poses": POSES, "capsule": CAPSULE}),
    Endpoint("GET", "/sliders", Session.sliders, {"capsule": CAPSULE}),
    Endpoint("GET", "/samples", Session.samples, {}),
    Endpoint("GET", "/images", Session.images,
             {"start": integer(0, 10**9, 0), "count": integer(1, 500, 24), "capsule": integer(-1, 9999, -1)}),
    Endpoint("POST", "/recognise", Session.recognise, {"image": IMAGE}),
    Endpoint("POST", "/explain", Session.explain, {"image": IMAGE}),
    Endpoint("POST", "/complete", Session.complete, {"image": IMAGE, "hidden": HIDDEN, "seed": SEED}),
)  # fmt: skip


def route_of(endpoint: Endpoint) -> Route:
    async def respond(request: Request) -> Response:
        if endpoint.method == "POST":
            given = await json_body(request)
        else:
            given = query(request)
        arguments = checked(given, endpoint.fields)
        # A newer request replaces an older one only in the same browser tab and lane.
        client = request.headers.get("x-client", "")[:40]
        lane = request.headers.get("x-lane", "")[:40]
        queue_lane = ""
        if client and lane:
            queue_lane = f"{client} {endpoint.path} {lane}"
        app = request.app.state
        work = partial(endpoint.answer, app.session, **arguments)
        answer = await app.scheduler.run(work, queue_lane)
        return JSON(answer)

    return Route(endpoint.path, respond, methods=[endpoint.method])


def checked(given: Any, fields: dict[str, Field]) -> dict[str, Any]:
    """The arguments of a request, each checked, with defaults."""
    if not isinstance(given, dict):
        raise InputError("the body must be a JSON object")
    if unknown := sorted(set(given) - set(fields)):
        raise InputError(f"there is no field {unknown[0][:40]!r} here")
    arguments = {}
    for name, (check, default) in fields.items():
        try:
            arguments[name] = check(given.get(name, default))
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
    return arguments


def query(request: Request) -> dict[str, Any]:
    """The fields in the address, all of which are whole numbers."""
    try:
        return {name: int(text[:20]) for name, text in request.query_params.items()}
    except ValueError:
        raise InputError("the fields in the address must be whole numbers") from None
