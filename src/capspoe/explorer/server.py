"""The application and its life: bind, print the address, serve, follow the run, stop."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Lifespan

from capspoe.errors import CapspoeError, InputError, RunError
from capspoe.explorer.api import ENDPOINTS, route_of
from capspoe.explorer.responses import JSON
from capspoe.explorer.scheduler import LIMIT, Scheduler
from capspoe.explorer.security import guard, is_loopback
from capspoe.explorer.session import Session
from capspoe.explorer.sorted_folder import SortedFolder, find_sorted
from capspoe.run.checkpoint import exists

STATIC = Path(__file__).parent / "static"
POLL_SECONDS = 2.0  # between two looks for a newer checkpoint


def application(folder: Path, host: str = "127.0.0.1", images: str | None = None) -> Starlette:
    """The explorer as an ASGI application.

    Parameters
    ----------
    folder : a run, or what `capspoe sort` wrote
    host : the address that is listened on
    images : where the run's images are, if they have moved
    """
    out = find_sorted(folder)
    run = folder
    if out == folder and not exists(folder):
        run = folder / "run"
    has_run = out is None or exists(run)
    sorted_routes = SortedFolder(out, has_run).routes() if out else []
    if not has_run:
        return starlette(host, [*sorted_routes, Route("/{rest:path}", to_sorted)])
    session = Session(run, images, groups=out is not None)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        scheduler = Scheduler()
        app.state.session = session
        app.state.scheduler = scheduler
        tasks = [
            asyncio.create_task(scheduler.serve()),
            asyncio.create_task(follow(session, scheduler)),
        ]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        scheduler.close()

    routes = [
        *sorted_routes,
        Mount("/api", routes=[route_of(endpoint) for endpoint in ENDPOINTS]),
        Mount("/", StaticFiles(directory=STATIC, html=True)),
    ]
    return starlette(host, routes, lifespan)


def to_sorted(request: Request) -> Response:
    return RedirectResponse("/sorted/")


def starlette(host: str, routes: list[Any], lifespan: Lifespan[Starlette] | None = None) -> Starlette:
    """An application with these routes, which refuses other web sites and reports errors as JSON."""
    errors = (HTTPException, CapspoeError, ClientDisconnect, Exception)
    return Starlette(
        routes=routes,
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=partial(guard, bound=host))],
        exception_handlers=dict.fromkeys(errors, explain),
        lifespan=lifespan,
    )


async def follow(session: Session, scheduler: Scheduler) -> None:
    """Open the images, then load and survey every new checkpoint."""
    await asyncio.to_thread(session.open_images)
    changed = True
    while True:
        # A checkpoint that is being replaced, or a full queue: try again later.
        with contextlib.suppress(CapspoeError, OSError, HTTPException):
            changed = await scheduler.run(session.reload, background=True) or changed
            if changed and session.loaded and session.dataset:
                await scheduler.run(session.survey, background=True)
                changed = False
        await asyncio.sleep(POLL_SECONDS)


async def explain(request: Request, error: Exception) -> Response:
    """An error as one line of JSON."""
    if isinstance(error, HTTPException):
        return JSON({"error": error.detail}, error.status_code, dict(error.headers or {}))
    if isinstance(error, CapspoeError):
        # What a run lacks it may have later; the rest is the request's fault.
        status = 503 if isinstance(error, RunError) else 400
        return JSON({"error": " ".join(str(error).split())[:500]}, status)
    text = f"unexpected {type(error).__name__}; the server's terminal shows more"
    return JSON({"error": text}, 500)


def bind(host: str, port: int | None) -> socket.socket:
    """A socket on the port, or on the first free one from 8765 on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    problem = ""
    ports = [*range(8765, 8785), 0]  # 0 lets the system choose
    if port is not None:
        ports = [port]
    for number in ports:
        # asyncio disables Nagle's algorithm, which costs 40 ms a request, only where the protocol is named.
        candidate = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        if os.name == "posix":
            candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind((host, number))
            return candidate
        except (OSError, OverflowError) as error:
            candidate.close()
            problem = getattr(error, "strerror", None) or str(error)
    if port is None:
        raise InputError(f"cannot listen on {host}: {problem}; choose another --host")
    raise InputError(f"cannot listen on {host}:{port}: {problem}; choose another --port")


def serve(
    folder: Path,
    host: str = "127.0.0.1",
    port: int | None = None,
    browser: bool = True,
    images: str | None = None,
) -> None:
    """Serve the explorer until Ctrl-C or SIGTERM."""
    host = host.strip("[]")
    torch.set_num_threads(1)  # batches are small: more threads would only wait for each other
    app = application(folder, host, images)
    listening = bind(host, port)
    listening.listen()  # from here on a browser waits instead of being refused
    shown = host
    if host in ("0.0.0.0", "::"):  # all addresses of this machine: show one that a browser can open
        shown = "127.0.0.1"
    elif ":" in host:
        shown = f"[{host}]"
    address = f"http://{shown}:{listening.getsockname()[1]}/"
    if not is_loopback(host):
        warning = "everyone who can reach this machine can use this page; there is no password"
        print(f"warning: listening on {host}: {warning}", file=sys.stderr)
    print(f"{folder} at {address}  (Ctrl-C stops)", flush=True)
    config = uvicorn.Config(
        app,
        log_level="warning",
        server_header=False,
        ws="none",
        limit_concurrency=LIMIT,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=2,
    )
    # A client that connects while the server stops is cut off after two seconds; uvicorn calls that an error.
    log = logging.getLogger("uvicorn.error")
    log.addFilter(lambda record: "graceful shutdown" not in record.getMessage())
    if browser:
        threading.Timer(0.5, webbrowser.open, [address]).start()
    # uvicorn stops on SIGTERM and then raises it again for the handler that was there before.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda number, frame: None)
    with listening, contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])
    print("stopped")
