"""One page about a run: RUN/report.html, self-contained, with every figure."""
