"""Several runs in one table."""

import csv
import io
import json

import numpy as np
import pytest

from capspoe.errors import InputError
from capspoe.evaluate.compare import as_csv, as_markdown, compare, settings_of, write_comparison


def evaluation(fid, purity, samples=100, net="a"):
    rows = [
        {"name": "capspoe", "fid": fid, "fid_spread": 0.2, "purity": purity},
        {"name": "k-means", "fid": 2 * fid, "purity": None},
    ]
    settings = {"samples": samples, "sets": 5, "quick": True}
    return {"rows": rows, "data": {"name": "mnist"}, "settings": settings, "feature_net": {"sha256": net}}


RESULTS = {"a": evaluation(8.0, 0.9), "b": evaluation(10.0, 0.8), "c": evaluation(9.0, 0.7)}


def test_mean_and_standard_deviation():
    score = compare(RESULTS)["capspoe"]["fid"]
    assert score.mean == pytest.approx(np.mean([8, 10, 9]))
    assert score.sd == pytest.approx(np.std([8, 10, 9], ddof=1))
    assert compare(RESULTS)["k-means"].keys() == {"fid"}
    assert compare({"a": RESULTS["a"]})["capspoe"]["fid"].sd is None


def test_runs_that_cannot_be_averaged_are_refused():
    with pytest.raises(InputError, match="different samples"):
        compare(RESULTS | {"d": evaluation(1, 1, samples=200)})
    with pytest.raises(InputError, match="different data sets"):
        compare(RESULTS | {"d": evaluation(1, 1, net="b")})


def test_files(tmp_path):
    table = compare(RESULTS)
    settings = settings_of(RESULTS)
    text = as_markdown(table, settings)
    assert "| capspoe | 9.0 ± 1.0 | 0.800 ± 0.100 |" in text  # without that within a run
    # What must be cited with a number.
    assert "deviation of 3 runs: a, b, c. mnist, 5 sets of 100 samples, feature net a; capspoe 0." in text
    assert "One run: a. mnist" in as_markdown(table, settings_of({"a": RESULTS["a"]}))
    assert "fid_spread_mean" in as_csv(table)
    rows = list(csv.DictReader(io.StringIO(as_csv(table))))
    assert [float(row["fid_mean"]) for row in rows] == [9.0, 18.0]
    assert rows[1]["purity_mean"] == ""
    for suffix in (".csv", ".json", ".md"):
        write_comparison(table, settings, tmp_path / f"x{suffix}")
    stored = json.loads((tmp_path / "x.json").read_text())
    assert stored["runs"] == ["a", "b", "c"]
    assert (stored["data"], stored["samples"], stored["quick"], stored["feature_net"]) == ("mnist", 100, True, "a")
    assert stored["models"]["capspoe"]["fid"]["runs"] == 3
