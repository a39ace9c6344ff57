"""Every example runs, in its quick form."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PRINTS = {
    "sklearn_digits": r"BernoulliRBM \+ logistic regression +0\.\d+.*capsules on the images .* 0\.\d+",
    "supervised_capsules": r"test accuracy 0\.[5-9]",
    "export_onnx": r"generator\.onnx .*largest difference from PyTorch: \d\.\de-0[4-9]",
    "own_encoder": r"\(200, 28, 28, 1\) samples.*explain the pair with a mean squared error of 0\.[01]",
    "other_sizes": r"24x40x3 images, \d+ lower capsules",
    "more_than_memory": r"peak resident memory",
}


def test_every_example_is_tested():
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for path in (ROOT / "examples").iterdir():
        assert path.stem in tests, f"no test runs {path.name}"


SLOW = ("export_onnx", "more_than_memory", "other_sizes", "supervised_capsules")
ARGUMENTS = {"more_than_memory": ["--times", "1.5"]}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in PRINTS])
def test_example(name, tmp_path):
    command = [sys.executable, ROOT / "examples" / f"{name}.py", *ARGUMENTS.get(name, ["--quick"])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert re.search(PRINTS[name], done.stdout, re.S), done.stdout
    assert list(tmp_path.iterdir()) == []
