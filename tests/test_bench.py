"""The benchmark's own arithmetic, on real parts at small sizes; no test looks at how long anything takes."""

import json
import time

import pytest

from capspoe import bench
from capspoe.bench import rows, timing


@pytest.fixture
def small(monkeypatch):
    """The whole benchmark on a layer that takes milliseconds."""
    for module in (rows, timing, bench):
        monkeypatch.setattr(module, "BATCH", 4)
        monkeypatch.setattr(module, "LOWER", (16, 8))
        monkeypatch.setattr(module, "UPPER", (2, 16))
    monkeypatch.setattr(
        rows,
        "layer_and_codes",
        lambda batch=4, lower=(16, 8), upper=(2, 16): timing.layer_and_codes(batch, lower, upper),
    )
    monkeypatch.setattr(rows, "SIZES", {"B": (2, 4), "I": (8, 16), "J": (1, 2)})


def test_the_sides_take_turns_and_the_first_round_does_not_count():
    order = []

    def side(name, seconds):
        def run():
            order.append(name)
            time.sleep(seconds[min(order.count(name) - 1, len(seconds) - 1)])

        return run

    best = bench.interleaved({"a": side("a", [0, 0, 0.03, 0.01]), "b": side("b", [0.01])}, 2)
    assert order == ["a", "a", "b", "b"] * 3
    assert best["a"] >= 0.01


@pytest.mark.parametrize(
    ("row", "reached", "wanted"),
    [
        (bench.Row("x", "y", 31, 30), True, "≥ 30"),
        (bench.Row("x", "y", 29, 30), False, "≥ 30"),
        (bench.Row("x", "y", 0.2, 0.25, at_most=True), True, "≤ 0.25"),
        (bench.Row("x", "y", 0.8, 1.1, at_most=True, least=0.9), False, "0.9 to 1.1"),
        (bench.Row("x", "y", float("nan"), 18), False, "≥ 18"),
    ],
)
def test_what_counts_as_reached(row, reached, wanted):
    assert row.reached is reached
    assert row.wanted == wanted


def test_slope():
    assert bench.slope([1, 2, 4, 8], [3, 12, 48, 192]) == pytest.approx(2)


def test_everything_is_measured(small, tmp_path, monkeypatch):
    monkeypatch.setattr(rows.torch, "compile", lambda function: function)  # half a minute of compilation
    results = bench.measure(2, memory=False)
    results.write(tmp_path / "b.json")
    found = json.loads((tmp_path / "b.json").read_text())
    assert len(found["rows"]) == 9
    assert {row["what"] for row in found["rows"]} >= {"routing forward", "growth in I", "capspoe --help"}
    assert all(row["value"] > 0 for row in found["rows"] if not row["what"].startswith("growth"))
    assert [point["B"] for point in found["scaling"]["B"]] == [2, 4]
    assert bench.table(results).row_count == 9


def test_memory_of_the_reference_is_that_of_its_predictions():
    """Of 64 images, 144 lower and 20 upper capsules: 64 x 20 x 144 x 16 floats, 12 MB, and more than once."""
    assert timing.peak_memory("reference", 64, 144, 20) > 12e6 > timing.peak_memory("kernel", 64, 144, 20)


def test_a_machine_without_a_compiler(small, monkeypatch):
    def compiled(function):
        def fail(*_):
            raise RuntimeError("no C++ compiler")

        return fail

    monkeypatch.setattr(rows.torch, "compile", compiled)
    found = rows.routing_rows(1, lambda what: None)
    assert found[1].detail == "torch.compile failed: RuntimeError"
    assert not found[1].reached
