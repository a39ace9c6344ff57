"""JSON in requests and answers."""

import json
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

MAX_BYTES = 6 << 20  # of a request


class JSON(JSONResponse):
    """JSON in ASCII, so that no label or file name can break it."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


async def json_body(request: Request) -> Any:
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    # A form on another web site cannot send this content type.
    if kind != "application/json":
        raise HTTPException(415, "the body must be JSON, with content-type application/json")
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > MAX_BYTES:
            raise HTTPException(413, f"the body is larger than {MAX_BYTES >> 20} MB")
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise HTTPException(400, "the body is not valid JSON") from None
