"""`capspoe explore`."""

from dataclasses import dataclass

from capspoe.commands.arguments import DEFAULT_RUN, MovedData, RunFolder, parse


@dataclass(frozen=True)
class Explore:
    """Open a local web page: pull two digits apart, move a capsule's pose, draw a digit.

    It also follows a run that is still training. Ctrl-C stops it.
    """

    run: RunFolder = DEFAULT_RUN
    port: int | None = None
    """The port (default: the first free one from 8765 on)."""
    no_browser: bool = False
    """Print the address without opening a browser."""
    host: str = "127.0.0.1"
    """The address to listen on. Any address but this machine's own lets others use the page."""
    data: MovedData = None


def explore(argv: list[str]) -> None:
    a = parse(Explore, "explore", argv)
    from capspoe.explorer.server import serve

    serve(a.run, a.host, a.port, not a.no_browser, a.data)
