"""`capspoe report`."""

from dataclasses import dataclass

from capspoe.commands.arguments import DEFAULT_RUN, MovedData, RunFolder, parse


@dataclass(frozen=True)
class Report:
    """Write one page about a run, RUN/report.html, that needs no other file; its figures go to RUN/figures too.

    For the bundled network, RUN is runs/mnist-small.
    """

    run: RunFolder = DEFAULT_RUN
    image: int = 0
    """The test image whose routing is shown."""
    data: MovedData = None


def report(argv: list[str]) -> None:
    a = parse(Report, "report", argv)
    from capspoe.report.page import write_report

    print(write_report(a.run, a.image, a.data))
