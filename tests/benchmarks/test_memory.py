"""What is measured is what the table says."""

import numpy as np
from benchmarks.speed import memory

from capspoe import cli


def test_samples_are_counted_by_capsule(run, monkeypatch, capsys):
    counts = []

    def in_this_process(arguments, stop_at):
        cli.main(arguments)
        counts.append(np.load(arguments[arguments.index("--out") + 1])["images"].shape[:2])
        return 0.0, 0.0

    monkeypatch.setattr(memory, "peak", in_this_process)
    memory.main(["--run", str(run), "--parts", "sample"])
    assert counts == [(4, 10), (4, 1000)]
    assert "sampling, 10 a capsule" in capsys.readouterr().out
