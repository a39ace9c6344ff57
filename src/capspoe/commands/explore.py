"""`capspoe explore`."""

from capspoe.commands.arguments import DEFAULT_RUN, MovedData, RunFolder, command


@command
def explore(
    run: RunFolder = DEFAULT_RUN,
    port: int | None = None,
    no_browser: bool = False,
    host: str = "127.0.0.1",
    data: MovedData = None,
) -> None:
    """Open a local web page: pull two digits apart, move a capsule's pose, draw a digit.

    RUN may also be a folder that `capspoe sort` wrote: then it shows the groups, to rename, merge and correct them.
    It also follows a run that is still training. Ctrl-C stops it.

    Args:
        port: The port (default: the first free one, starting at 8765).
        no_browser: Print the address without opening a browser.
        host: The address to listen on. With any address but 127.0.0.1, others can use the page.
    """
    from capspoe.explorer.server import serve

    serve(run, host, port, not no_browser, data)
