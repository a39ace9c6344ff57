"""Who may talk to the explorer, and what a browser may do with its page.

A server on 127.0.0.1 can still be reached by every web page that the user has open. Two checks keep those out:
the Host header must name this machine by address or as localhost, so that a foreign name that is made to
resolve to 127.0.0.1 (DNS rebinding) gets nothing; and a request that a browser says comes from another site
is refused, whatever it asks for.
"""

import ipaddress
import json
import socket
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
    "x-frame-options": "DENY",
}


def is_loopback(host: str) -> bool:
    """Whether an address to bind to can be reached from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def host_name(header: str) -> str | None:
    """The host of a Host header, lower case, without port and brackets; None if it is not one."""
    try:
        parts = urlsplit(f"//{header}")
        if parts.netloc != header or parts.username is not None or not parts.hostname:
            return None
        _ = parts.port  # raises when it is not a number
    except ValueError:
        return None
    return parts.hostname


def host_allowed(header: str, bound: str) -> bool:
    """Loopback names only when bound to loopback; otherwise any address, and this machine's own name."""
    name = host_name(header)
    if name is None:
        return False
    if is_loopback(name):
        return True
    if is_loopback(bound):
        return False
    try:
        ipaddress.ip_address(name)
        return True
    except ValueError:
        return name in {bound.lower(), socket.gethostname().lower()}


def refusal(scope: Scope, bound: str) -> str | None:
    """Why a request is not served, or None."""
    headers = Headers(scope=scope)
    hosts = headers.getlist("host")
    if len(hosts) != 1 or not host_allowed(hosts[0], bound):
        return "the Host header does not name this server"
    origin = headers.get("origin")
    if origin is not None and origin.lower() not in (
        f"http://{hosts[0]}".lower(),
        f"https://{hosts[0]}".lower(),
    ):
        return "requests from other web sites are refused"
    site = headers.get("sec-fetch-site", "same-origin")
    opened_by_person = headers.get("sec-fetch-mode") == "navigate" and scope["method"] == "GET"
    to_page = not scope["path"].startswith("/api/")
    if site not in ("same-origin", "none") and not (opened_by_person and to_page):
        return "requests from other web sites are refused"
    return None


class Guard:
    """Refuses what must not be served and puts the security headers on everything else."""

    def __init__(self, app: ASGIApp, bound: str) -> None:
        self.app, self.bound = app, bound

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        reason = refusal(scope, self.bound)
        if reason is None:
            await self.app(scope, receive, guarded)
            return
        body: dict[str, Any] = {"error": reason}
        content = json.dumps(body).encode()
        start = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        await guarded({"type": "http.response.start", "status": 403, "headers": start})
        await send({"type": "http.response.body", "body": content})
