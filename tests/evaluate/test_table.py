"""The table and the lines below it."""

import io

from rich.console import Console

from capspoe.evaluate.table import COLUMNS, cell, lines, print_table


def printed(result, width):
    console = Console(file=io.StringIO(), width=width)
    print_table(result, console)
    return console.file.getvalue()


def test_numbers_are_never_cut(result):
    for width in (80, 160):
        text = printed(result, width)
        assert "…" not in text
        assert all(len(line) <= width for line in text.splitlines())
        for row in result["rows"]:
            for key in ("fid", "recall", "purity", "probe"):
                assert cell(row, key) in text
    assert "KID" not in printed(result, 80)
    titles = printed(result, 160).splitlines()[0].split()
    assert titles == ["model", *(title for title, _ in COLUMNS.values())]


def test_lines(result):
    text = "\n".join(lines(result))
    net, found = result["feature_net"], result["clustering"]
    assert (
        f"{100 * net['test_accuracy']:.2f}% test accuracy, sha256 {net['sha256'][:12]}; 5 sets of 60 samples" in text
    )
    assert f"one-to-one accuracy {found['one_to_one']:.3f}" in text
    assert f"poses {result['probe']['poses']:.3f}" in text
    assert f"{result['likelihood']['log_p_lower']:.1f} to " in text
    failed = result | {"rows": [{"name": "RBM", "failed": "diverged at step 3"}]}
    assert lines(failed)[0] == "RBM failed: diverged at step 3"
    assert "RBM" in printed(failed, 80).splitlines()[1]
