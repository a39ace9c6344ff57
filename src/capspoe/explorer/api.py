"""The endpoints: read a request, let the studio do the work in its turn, answer in JSON."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from capspoe import pictures
from capspoe.errors import RunError
from capspoe.explorer import ink
from capspoe.explorer.following import training as training_so_far
from capspoe.explorer.loaded import Steps
from capspoe.explorer.schema import Problem, body, whole
from capspoe.explorer.studio import SAMPLES, STRIP, Studio
from capspoe.explorer.turns import Turns
from capspoe.figures.gallery import label_of

MOST_SEED = 2**31 - 1


class JSON(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


class PNG(Response):
    media_type = "image/png"


def sheet(images: np.ndarray) -> str:
    """(rows, columns, H, W, C) as one picture without gaps, which the page cuts up."""
    return ink.data_url(pictures.tile(images, gap=0))


def studio(request: Request) -> Studio:
    return request.app.state.studio


async def work(request: Request, do: Callable[[], Any], lane: str | None = None) -> Any:
    """Wait for the client's turn. A client that gives its name in X-Client has its older request in the same
    lane replaced by the newer one."""
    turns: Turns = request.app.state.turns
    name = request.headers.get("x-client", "")[:40]
    peer = request.client.host if request.client else ""
    own_lane = f"{lane}/{request.headers.get('x-lane', '')[:20]}" if name and lane else None
    return await turns.do(f"{peer}/{name}", own_lane, do, gone(request))


async def gone(request: Request) -> None:
    """Ends when the client has hung up. The body has been read by now, so nothing else can arrive."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def on_of(content: dict[str, Any]) -> dict[int, list[float]]:
    return {int(name): [float(v) for v in values] for name, values in content["on"].items()}


def image_of(here: Studio, content: dict[str, Any]) -> np.ndarray:
    """The image that a request means, (H, W, C) in [0, 1]."""
    if "index" in content:
        source, index = here.images(), int(content["index"])
        if index >= len(source):
            raise Problem(404, f"there are {len(source)} test images, numbered from 0")
        return here.model.array(here.model.tensor(source.batch([index])))[0]
    if "pixels" in content:
        return ink.from_pixels(content["pixels"], here.image)
    return ink.from_data(content["data"], here.image, here.framing, content.get("fit", True))


# What the run is.


async def run(request: Request) -> Response:
    here = studio(request)
    config, model = here.config, here.model_or_none
    known: dict[str, Any] = {"capsules": None, "numbers": None, "lower": None, "iterations": None}
    if model is not None:
        (I, _), (J, N) = model.top.lower, model.top.upper
        known = {"capsules": J, "numbers": N, "lower": I, "iterations": model.top.iterations}
    source = here.source
    return JSON(
        {
            "name": here.folder.resolve().name,
            "data": Path(config.data.data).name or config.data.data,
            "image": list(here.image),
            **known,
            "gate": config.capsules.gate,
            "neurons": config.capsules.neurons,
            "stage": here.stage or None,
            "revision": here.revision,
            "test_images": len(source) if source is not None else 0,
            "no_test_images": None if source is not None else here.no_source,
            "ink": here.framing.box is not None,
        }
    )


async def training(request: Request) -> Response:
    here = studio(request)
    found = await asyncio.to_thread(training_so_far, here.folder, here.config, here.stage or None)
    return JSON({**found, "revision": here.revision})


async def samples(request: Request) -> Response:
    """The newest picture of what the run paints: its own samples.png once it is done, else from the last
    checkpoint; test images over their reconstructions while only the autoencoder has learned anything."""
    here = studio(request)

    def picture() -> Steps[bytes]:
        path = here.folder / "samples.png"
        if here.stage == "done" and path.is_file():
            return path.read_bytes()
        if here.stage == "autoencoder":
            some = here.images().batch(np.arange(min(10, len(here.images()))))
            x = here.model.array(here.model.tensor(some))
            yield
            through = here.model.reconstruct(some, "autoencoder")
            return ink.png(pictures.tile(np.stack([x, through]), scale=2))
        grid = yield from here.grid(4, 0)
        return ink.png(pictures.tile(grid, scale=2))

    return PNG(await work(request, picture, "samples"))


# Capsules to images.


async def gallery(request: Request) -> Response:
    here = studio(request)

    def capsules() -> Steps[dict[str, Any]]:
        images = yield from here.gallery()
        names, use = here.names(), here.model.prior.use
        return {
            "revision": here.revision,
            "samples": SAMPLES,
            "capsules": [
                {
                    "capsule": j,
                    "use": round(float(use[j]), 4),
                    "name": names[j],
                    "sheet": sheet(images[j][None]),
                }
                for j in range(len(images))
            ],
        }

    return JSON(await work(request, capsules))


async def capsule(request: Request) -> Response:
    here, j = studio(request), int(request.path_params["capsule"])

    def about() -> Steps[dict[str, Any]]:
        if j >= here.model.top.upper[0]:
            raise Problem(
                404, f"there is no capsule {j}: they are numbered 0 to {here.model.top.upper[0] - 1}"
            )
        strips, effect = yield from here.about(j)
        return {
            "capsule": j,
            "name": here.names()[j],
            "use": round(float(here.model.prior.use[j]), 4),
            "effect": [round(float(e), 6) for e in effect],
            "order": [int(n) for n in np.argsort(-effect, kind="stable")],
            "positions": list(STRIP),
            "strips": sheet(strips),
        }

    return JSON(await work(request, about, "capsule"))


async def random(request: Request) -> Response:
    here = studio(request)
    j = whole(request, "capsule", None, 0, 9999)
    seed = whole(request, "seed", 0, 0, MOST_SEED)
    return JSON({"capsule": j, "values": await work(request, lambda: here.random(j, seed))})


async def paint(request: Request) -> Response:
    here, content = studio(request), await body(request, "paint")
    on = on_of(content)
    return JSON(await work(request, lambda: {"image": ink.data_url(here.paint(on))}, "paint"))


async def strips(request: Request) -> Response:
    here, content = studio(request), await body(request, "strips")
    on, j = on_of(content), int(content["capsule"])

    def cut() -> Steps[dict[str, Any]]:
        found = yield from here.strips(on, j)
        return {"capsule": j, "positions": list(STRIP), "strips": sheet(found)}

    return JSON(await work(request, cut, "strips"))


async def grid(request: Request) -> Response:
    here = studio(request)
    rows = whole(request, "rows", 4, 1, 16)
    seed = whole(request, "seed", 0, 0, MOST_SEED)
    scale = whole(request, "scale", 2, 1, 8)

    def picture() -> Steps[bytes]:
        found = yield from here.grid(rows, seed)
        return ink.png(pictures.tile(found, scale=scale))

    return PNG(await work(request, picture, "grid"))


# Images to capsules.


async def images(request: Request) -> Response:
    here = studio(request)
    start = whole(request, "start", 0, 0, 10**9)
    count = whole(request, "count", 24, 1, 96)
    wanted = whole(request, "capsule", -1, -1, 9999)

    def some() -> dict[str, Any]:
        source = here.images()
        index, total = np.arange(start, min(start + count, len(source))), len(source)
        if wanted >= 0:  # only those that switch the capsule on, among the images studied so far
            winners = here.winners if here.winners is not None else np.zeros(0, int)
            total = int((winners == wanted).sum())
            index = np.flatnonzero(winners == wanted)[start : start + count]
        if not len(index):
            return {"total": total, "images": []}
        pixels = here.model.array(here.model.tensor(source.batch(index)))
        return {
            "total": total,
            "images": [
                {"index": int(k), "label": label_of(source, int(k)), "image": ink.data_url(one)}
                for k, one in zip(index, pixels, strict=True)
            ],
        }

    return JSON(await work(request, some, "images"))


async def recognise(request: Request) -> Response:
    here, content = studio(request), await body(request, "recognise")

    def look() -> dict[str, Any]:
        image = image_of(here, content["image"])
        found = here.recognise(image)
        index = content["image"].get("index")
        label = None if index is None else label_of(here.images(), int(index))
        painted = ink.data_url(found.pop("reconstruction"))
        return {**found, "label": label, "input": ink.data_url(image), "reconstruction": painted}

    return JSON(await work(request, look, "recognise"))


async def routing(request: Request) -> Response:
    here, content = studio(request), await body(request, "routing")
    return JSON(await work(request, lambda: here.routing(image_of(here, content["image"])), "routing"))


async def interpolate(request: Request) -> Response:
    here, content = studio(request), await body(request, "interpolate")
    steps = int(content.get("steps", 9))

    def frames() -> Steps[dict[str, Any]]:
        first, last = (
            on_of(content[end]) if "on" in content[end] else image_of(here, content[end])
            for end in ("first", "last")
        )
        found = yield from here.blend(first, last, steps)
        return {"steps": steps, "frames": sheet(found[None])}

    return JSON(await work(request, frames, "interpolate"))


def status_of(error: Exception) -> int:
    """A run that lacks something may have it later; anything else is the request's fault."""
    return 503 if isinstance(error, RunError) else 400
