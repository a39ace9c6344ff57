"""Which requests are served, and what a browser may do with the page.

Every web page that the user has open can reach a server on 127.0.0.1. Two checks keep them out:
the Host header must name this machine by address or as localhost, so a foreign name that resolves
to 127.0.0.1 (DNS rebinding) gets nothing; and a request that a browser marks as coming from
another site is refused (CSRF).
"""

import ipaddress
import re
import socket

from starlette.middleware.base import RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def host_allowed(header: str, bound: str) -> bool:
    """Loopback names only when bound to loopback; otherwise any address, and this machine's own name."""
    parts = re.fullmatch(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:[0-9]*)?", header.lower())
    name = ""
    if parts:
        name = parts[1].strip("[]")
    if is_loopback(name) or is_loopback(bound):
        return is_loopback(name)
    try:
        return bool(ipaddress.ip_address(name))
    except ValueError:
        return name in {bound.lower(), socket.gethostname().lower()}


def refusal(request: Request, bound: str) -> str | None:
    """Why a request is not served, or None."""
    headers = request.headers
    hosts = headers.getlist("host")
    if len(hosts) != 1 or not host_allowed(hosts[0], bound):
        return "the Host header does not name this server"
    host = hosts[0].lower()
    origin = headers.get("origin")
    same_origin = origin is None or origin.lower() in (f"http://{host}", f"https://{host}")
    same_site = headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
    is_link = headers.get("sec-fetch-mode") == "navigate" and request.method == "GET"
    to_page = not request.scope["path"].startswith("/api/")
    # Another site may link to the page, but not call the API.
    if not same_origin or not (same_site or (is_link and to_page)):
        return "requests from other web sites are refused"
    return None


async def guard(request: Request, respond: RequestResponseEndpoint, bound: str) -> Response:
    """Middleware that refuses what must not be served, and adds the security headers to every response."""
    reason = refusal(request, bound)
    response: Response
    if reason:
        response = JSONResponse({"error": reason}, 403)
    else:
        response = await respond(request)
    response.headers.update(HEADERS)
    to_api = request.scope["path"].startswith("/api/")
    response.headers["cache-control"] = "no-store" if to_api else "no-cache"
    return response
