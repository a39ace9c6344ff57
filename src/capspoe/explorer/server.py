"""The application and its life: bind, say where, serve, follow the run, stop."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import AsyncIterator
from pathlib import Path

import torch
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from capspoe.errors import CapspoeError, InputError
from capspoe.explorer.api import JSON, status_of
from capspoe.explorer.openapi import ENDPOINTS, document
from capspoe.explorer.schema import Problem
from capspoe.explorer.security import Guard, is_loopback
from capspoe.explorer.studio import Studio
from capspoe.explorer.turns import BACKGROUND, Superseded, TooBusy, Turns

STATIC = Path(__file__).parent / "static"
LOOK_SECONDS = 2.0  # between two looks for a newer checkpoint
CONNECTIONS = 256


class Files(StaticFiles):
    """The page's own files. A browser asks each time whether they have changed, as after an upgrade."""

    def file_response(self, full_path, stat_result, scope: Scope, status_code: int = 200) -> Response:  # type: ignore[no-untyped-def]
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers["cache-control"] = "no-cache"
        return response


def application(folder: Path, host: str = "127.0.0.1") -> Starlette:
    """The explorer of a run as an ASGI application."""
    studio = Studio(folder)

    @contextlib.asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        turns = Turns()
        app.state.turns = turns
        turns.start()
        follow = asyncio.create_task(following(studio, turns))
        try:
            yield
        finally:
            follow.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await follow
            await turns.stop()

    async def page(request: Request) -> Response:
        return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})

    async def api_page(request: Request) -> Response:
        return FileResponse(STATIC / "api.html", headers={"cache-control": "no-cache"})

    async def openapi(request: Request) -> Response:
        return JSON(document())

    def path_of(path: str) -> str:
        return path.replace("{capsule}", "{capsule:int}")

    app = Starlette(
        routes=[
            Route("/", page),
            Route("/api", api_page),
            Route("/api/openapi.json", openapi),
            *(Route(path_of(e.path), e.call, methods=[e.method]) for e in ENDPOINTS),
            Mount("/static", Files(directory=STATIC)),
        ],
        middleware=[Middleware(Guard, bound=host)],
        exception_handlers={
            Problem: problem,
            HTTPException: http_error,
            CapspoeError: refused,
            Superseded: superseded,
            TooBusy: too_busy,
            ClientDisconnect: superseded,
            Exception: unexpected,
        },
        lifespan=life,
    )
    app.state.studio = studio
    return app


async def following(studio: Studio, turns: Turns) -> None:
    """Open the images, then keep to the newest checkpoint for as long as the run trains."""
    await asyncio.to_thread(studio.open_images)
    changed = True
    while True:
        # A checkpoint that is just being replaced, or a crowd that leaves no room: the next look will do.
        with contextlib.suppress(CapspoeError, OSError, TooBusy):
            changed = await turns.do(BACKGROUND, None, studio.reload) or changed
            if changed and studio.model_or_none is not None and studio.source is not None:
                await turns.do(BACKGROUND, None, studio.study)
                changed = False
        await asyncio.sleep(LOOK_SECONDS)


# Errors, each with one clear line.


async def problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return JSON({"error": str(error)}, error.status)


async def http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = {404: "there is nothing here", 405: "this address does not take that method"}
    return JSON(
        {"error": text.get(error.status_code, error.detail)}, error.status_code, dict(error.headers or {})
    )


async def refused(request: Request, error: Exception) -> Response:
    return JSON({"error": " ".join(str(error).split())[:500]}, status_of(error))


async def superseded(request: Request, error: Exception) -> Response:
    return JSON({"error": "a newer request took the place of this one"}, 409)


async def too_busy(request: Request, error: Exception) -> Response:
    assert isinstance(error, TooBusy)
    return JSON({"error": str(error)}, 503 if error.everybody else 429, {"retry-after": "1"})


async def unexpected(request: Request, error: Exception) -> Response:
    return JSON({"error": f"unexpected {type(error).__name__}; the server's terminal shows more"}, 500)


# The command.


def bind(host: str, port: int | None) -> socket.socket:
    """A socket on the port that was asked for, or on the first free one from 8765 on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    problem = ""
    for number in [port] if port is not None else [*range(8765, 8785), 0]:
        # The protocol is named because asyncio switches Nagle's algorithm off only where it is: 40 ms a request.
        candidate = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        if os.name == "posix":
            candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind((host, number))
            return candidate
        except (OSError, OverflowError) as error:
            candidate.close()
            problem = getattr(error, "strerror", None) or str(error)
    where = host if port is None else f"{host}:{port}"
    raise InputError(
        f"cannot listen on {where}: {problem}; choose another --{'host' if port is None else 'port'}"
    )


def serve(folder: Path, host: str = "127.0.0.1", port: int | None = None, browser: bool = True) -> None:
    """Serve the explorer until Ctrl-C or SIGTERM."""
    if port is not None and not 0 <= port < 65536:
        raise InputError(f"--port must be between 0 and 65535, not {port}")
    host = host.strip("[]")
    torch.set_num_threads(1)  # batches of a few images: more threads only wait for each other
    app = application(folder, host)
    listening = bind(host, port)
    listening.listen()  # from here on a browser waits for us instead of being refused
    number = listening.getsockname()[1]
    shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host
    address = f"http://{f'[{shown}]' if ':' in shown else shown}:{number}/"
    if not is_loopback(host):
        print(
            f"warning: listening on {host}: everyone who can reach this machine can use this page; "
            "there is no password",
            file=sys.stderr,
        )
    print(f"{folder} at {address}  (Ctrl-C stops)", flush=True)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=2,
        ws="none",
    )
    if browser:
        threading.Timer(0.5, webbrowser.open, [address]).start()
    # uvicorn stops on SIGTERM and raises it again afterwards, for whoever was there before it: nobody to end us.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda number, frame: None)
    with listening, contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])
    print("stopped")
