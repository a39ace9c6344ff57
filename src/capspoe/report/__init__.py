"""One page about a run: RUN/report.html, self-contained, with every figure."""

from capspoe.report.page import write_report

__all__ = ["write_report"]
