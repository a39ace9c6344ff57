"""`capspoe report`."""

from capspoe.commands.arguments import DEFAULT_RUN, MovedData, RunFolder, command


@command
def report(run: RunFolder = DEFAULT_RUN, image: int = 0, data: MovedData = None) -> None:
    """Write a self-contained page about a run, RUN/report.html. Its figures also go to RUN/figures.

    For the bundled network, RUN is runs/mnist-small.

    Args:
        image: The test image whose routing is shown.
    """
    from capspoe.report.page import write_report

    print(write_report(run, image, data))
