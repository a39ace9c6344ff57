"""Several runs in one table."""

import csv
import io
import json

import numpy as np
import pytest

from capspoe.errors import InputError
from capspoe.evaluate.compare import as_csv, as_markdown, compare, write_comparison


def evaluation(fid, purity, samples=100, net="a"):
    rows = [{"name": "capspoe", "fid": fid, "purity": purity}, {"name": "k-means", "fid": 2 * fid, "purity": None}]
    return {"rows": rows, "settings": {"samples": samples, "quick": True}, "feature_net": {"sha256": net}}


RESULTS = {"a": evaluation(8.0, 0.9), "b": evaluation(10.0, 0.8), "c": evaluation(9.0, 0.7)}


def test_mean_and_standard_deviation():
    score = compare(RESULTS)["capspoe"]["fid"]
    assert score.mean == pytest.approx(np.mean([8, 10, 9]))
    assert score.spread == pytest.approx(np.std([8, 10, 9], ddof=1))
    assert compare(RESULTS)["k-means"].keys() == {"fid"}
    assert compare({"a": RESULTS["a"]})["capspoe"]["fid"].spread is None


def test_runs_that_cannot_be_averaged_are_refused():
    with pytest.raises(InputError, match="different samples"):
        compare(RESULTS | {"d": evaluation(1, 1, samples=200)})
    with pytest.raises(InputError, match="different data sets"):
        compare(RESULTS | {"d": evaluation(1, 1, net="b")})


def test_files(tmp_path):
    table = compare(RESULTS)
    assert "| capspoe | 9.0 ± 1.0 | 0.800 ± 0.100 |" in as_markdown(table, list(RESULTS))
    rows = list(csv.DictReader(io.StringIO(as_csv(table))))
    assert [float(row["fid_mean"]) for row in rows] == [9.0, 18.0]
    assert rows[1]["purity_mean"] == ""
    for suffix in (".csv", ".json", ".md"):
        write_comparison(table, list(RESULTS), tmp_path / f"x{suffix}")
    stored = json.loads((tmp_path / "x.json").read_text())
    assert stored["runs"] == ["a", "b", "c"]
    assert stored["models"]["capspoe"]["fid"]["runs"] == 3
