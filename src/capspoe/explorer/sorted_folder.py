"""A sorted folder in the explorer: its page, and what a person renames, merges and moves there.

The page is that of `capspoe sort`, with the package's own script. Edits go to OUT/edits.csv, which `sort` reads back.
"""

import mimetypes
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Mount, Route

from capspoe.atomic import disk_errors, locked
from capspoe.data.formats import is_picture
from capspoe.errors import InputError
from capspoe.explorer.responses import JSON, json_body
from capspoe.sorting.edits import ODD_NAME, change_edits, read_edits
from capspoe.sorting.page import part, read_page_data, render_page

MAX_CHANGES = 100_000  # in a request


class SortedFolder:
    """What `capspoe sort` wrote to a folder.

    Parameters
    ----------
    out : the folder
    has_run : whether the explorer also shows a network, to which the page links
    """

    def __init__(self, out: Path, has_run: bool) -> None:
        self.out = out
        self.has_run = has_run
        self._read: tuple[int, dict[str, Any]] = (0, {})  # when the page was written, and its data

    @property
    def edits_file(self) -> Path:
        return self.out / "edits.csv"

    def written(self) -> dict[str, Any]:
        """What index.html shows, read again when it has changed."""
        path = self.out / "index.html"
        try:
            modified = path.stat().st_mtime_ns
        except OSError:
            modified = 0
        if modified == 0 or modified != self._read[0]:
            self._read = (modified, read_page_data(path))
        return self._read[1]

    def data(self) -> dict[str, Any]:
        """What the page shows, with addresses that the explorer serves and the edits as they are now."""
        data = self.written()
        images = []
        for place, (file, _, *facts) in enumerate(data["images"]):
            images.append([file, f"original/{place}", *facts])
        edits = read_edits(self.edits_file, *self.names())
        return data | {"images": images, "now": edits.lines, "explorer": "../" if self.has_run else None}

    def names(self) -> tuple[set[str], set[str]]:
        """The names that groups have of themselves, and the images' files."""
        data = self.written()
        groups = {ODD_NAME}
        for _, _, ids in data["groups"]:
            groups.update(ids)
        return groups, {image[0] for image in data["images"]}

    def original(self, place: int) -> Path:
        """The file of an image, by its place on the page."""
        images = self.written()["images"]
        if place >= len(images):
            raise HTTPException(404, "there is no such image")
        path = self.out / unquote(images[place][1])
        if not path.is_file() or not is_picture(path):
            raise HTTPException(404, "the image is not there any more")
        return path

    def thumbnail(self, name: str) -> Path:
        """The file of a thumbnail."""
        folder = (self.out / "thumbnails").resolve()
        path = (folder / name).resolve()
        if not path.is_relative_to(folder) or not path.is_file():
            raise HTTPException(404, "there is no such thumbnail")
        return path

    def change(self, changes: dict[str, str]) -> list[tuple[str, str]]:
        """Write edits; returns all lines of edits.csv."""
        with disk_errors(self.out), locked(self.out, wait=True):
            return change_edits(self.edits_file, changes, *self.names())

    def routes(self) -> list[Route | Mount]:
        """The page under /sorted, and the API of its edits."""

        def page(request: Request) -> Response:
            return HTMLResponse(render_page(self.data(), served=True))

        def script(request: Request) -> Response:
            return Response(part("page.js"), media_type="text/javascript")

        def style(request: Request) -> Response:
            return Response(part("page.css"), media_type="text/css")

        def original(request: Request) -> Response:
            path = self.original(request.path_params["place"])
            kind = mimetypes.guess_type(path.name)[0] or ""
            # Anything but an image would be shown as a page of this server.
            return FileResponse(path, media_type=kind if kind.startswith("image/") else "application/octet-stream")

        def thumbnail(request: Request) -> Response:
            return FileResponse(self.thumbnail(request.path_params["name"]))

        async def change(request: Request) -> Response:
            changes = checked_changes(await json_body(request))
            return JSON({"edits": self.change(changes)})

        served: list[Route | Mount] = [
            Route("/", page),
            Route("/page.js", script),
            Route("/page.css", style),
            Route("/original/{place:int}", original),
            Route("/thumbnails/{name:path}", thumbnail),
        ]
        return [Route("/api/edits", change, methods=["POST"]), Mount("/sorted", routes=served)]


def checked_changes(body: Any) -> dict[str, str]:
    """The changes of a request: {"edits": [[group or file, name], ...]}."""
    match body:
        case {"edits": [*pairs], **rest} if not rest and 0 < len(pairs) <= MAX_CHANGES:
            changes = {}
            for pair in pairs:
                match pair:
                    case [str(what), str(name)]:
                        changes[what] = name.strip()
                    case _:
                        raise InputError("edits: each is [group or file, name]")
            return changes
    raise InputError('the body must be {"edits": [[group or file, name], ...]}')


def find_sorted(folder: Path) -> Path | None:
    """The sorted folder that is meant: this one, or the one that a run was trained in by `capspoe sort --train`."""
    for candidate in (folder, folder.absolute().parent):
        page_and_cache = (candidate / "index.html").is_file() and (candidate / "cache").is_dir()
        own = candidate == folder or folder.name == "run"
        if own and page_and_cache and (candidate / "groups.json").is_file():
            return candidate
    return None
