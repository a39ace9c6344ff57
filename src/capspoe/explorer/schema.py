"""What the endpoints take: JSON schemas that check every request and document themselves (openapi.py)."""

import asyncio
import json
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from starlette.requests import Request

MOST_BYTES = 6 << 20
SECONDS = 15.0  # that a body may take to arrive
LARGEST = 100.0  # standard deviations


class Problem(Exception):
    """A request that is answered with a status and one line."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


NUMBERS = {
    "type": "array",
    "items": {"type": "number", "minimum": -LARGEST, "maximum": LARGEST},
    "minItems": 1,
    "maxItems": 1024,
    "description": "The numbers of a capsule, in standard deviations of its prior; 0 is its mean.",
}
ON = {
    "type": "object",
    "patternProperties": {"^[0-9]{1,4}$": NUMBERS},
    "additionalProperties": False,
    "minProperties": 1,
    "maxProperties": 512,
    "description": "Capsules that are on, by number. A run with the gate takes exactly one.",
    "example": {"3": [0.0] * 16},
}
CAPSULE = {"type": "integer", "minimum": 0, "maximum": 9999}
PIXELS = {
    "type": "array",
    "maxItems": 4096,
    "items": {"type": "array", "maxItems": 4096},
    "description": "Rows of pixels from 0 to 1, (H, W) or (H, W, C), of the run's own image size.",
}


def closed(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


BY_INDEX = closed({"index": {"type": "integer", "minimum": 0, "maximum": 10**9}}, "index")
BY_DATA = closed(
    {
        "data": {"type": "string", "maxLength": MOST_BYTES, "description": "An image file as a data URL."},
        "fit": {
            "type": "boolean",
            "default": True,
            "description": "Bring it to the framing of the run's own images: light on dark, scaled, centred.",
        },
    },
    "data",
)
BY_PIXELS = closed({"pixels": PIXELS}, "pixels")
BY_STATE = closed({"on": ON}, "on")
IMAGE = {
    "anyOf": [BY_INDEX, BY_DATA, BY_PIXELS],
    "description": "An image: of the run's test images by index, an image file, or pixels.",
    "example": {"index": 0},
}
END = {**IMAGE, "anyOf": [*IMAGE["anyOf"], BY_STATE]}
BODIES: dict[str, dict[str, Any]] = {
    "paint": closed({"on": ON}, "on"),
    "strips": closed({"on": ON, "capsule": CAPSULE}, "on", "capsule"),
    "recognise": closed({"image": IMAGE}, "image"),
    "routing": closed({"image": IMAGE}, "image"),
    "interpolate": closed(
        {"first": END, "last": END, "steps": {"type": "integer", "minimum": 2, "maximum": 33, "default": 9}},
        "first",
        "last",
    ),
}
_VALIDATORS = {name: Draft202012Validator(schema) for name, schema in BODIES.items()}


async def body(request: Request, name: str) -> dict[str, Any]:
    """The JSON body of a request, checked against the schema `name`."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem(415, "the body must be JSON, with content-type application/json")
    try:
        raw = await asyncio.wait_for(_bytes(request), SECONDS)
    except TimeoutError:
        raise Problem(408, "the body did not arrive in time") from None
    return checked(raw, name)


def checked(raw: bytes, name: str) -> dict[str, Any]:
    try:
        value = json.loads(raw, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise Problem(400, "the body is not valid JSON") from None
    try:
        error = best_match(_VALIDATORS[name].iter_errors(value))
    except RecursionError:
        raise Problem(400, "the body is nested too deeply") from None
    if error is not None:
        where = ".".join(map(str, error.absolute_path))[:60] or "the body"
        if error.validator == "additionalProperties" or len(error.message) > 160:
            allowed = json.dumps(error.validator_value)[:80]
            text = f"does not fit: {error.validator} {allowed}"
        else:
            text = error.message
        raise Problem(400, f"{where}: {text}")
    return value


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


async def _bytes(request: Request) -> bytes:
    length = request.headers.get("content-length", "0")
    if length.isdigit() and int(length[:18]) > MOST_BYTES:
        raise Problem(413, f"the body is larger than {MOST_BYTES >> 20} MB")
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BYTES:
            raise Problem(413, f"the body is larger than {MOST_BYTES >> 20} MB")
        parts.append(part)
    return b"".join(parts)


def whole(request: Request, name: str, default: int | None, low: int, high: int) -> int:
    """A whole number of the query string."""
    text = request.query_params.get(name)
    if text is None and default is not None:
        return default
    try:
        if text is None or len(text) > 20 or not text.isascii():
            raise ValueError
        value = int(text)
    except ValueError:
        raise Problem(400, f"{name} must be a whole number") from None
    if not low <= value <= high:
        raise Problem(400, f"{name} must be between {low} and {high}")
    return value
