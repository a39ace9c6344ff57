"""Every example runs, in its short form."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SAYS = {
    "sklearn_digits": r"BernoulliRBM \+ logistic regression +0\.\d+.*capsules on the images .* 0\.\d+",
    "supervised_capsules": r"test accuracy 0\.[5-9]",
    "export_onnx": r"generator\.onnx .*largest difference from PyTorch: \d\.\de-0[4-9]",
    "other_sizes": r"24x40x3 images, \d+ lower capsules",
}


def test_every_example_is_run():
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for path in (ROOT / "examples").iterdir():
        assert path.stem in tests, f"no test runs {path.name}"


@pytest.mark.parametrize("name", SAYS)
def test_example(name, tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / f"{name}.py", "--quick"],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert re.search(SAYS[name], done.stdout, re.S), done.stdout
    assert list(tmp_path.iterdir()) == []
