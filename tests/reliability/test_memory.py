"""Too little memory is one clear line that says what to lower."""

import os
import subprocess
import sys

import pytest

from capspoe.cli import explain
from runs import QUICK, options

resource = pytest.importorskip("resource")
MB = 1 << 20


def limited(megabytes, *arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "capspoe", *map(str, arguments)],
        capture_output=True, text=True, check=False, env=environment,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (megabytes * MB, megabytes * MB)),
    )  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not keep to RLIMIT_AS")
@pytest.mark.parametrize("megabytes", [300, 950, 1100])
def test_too_little_memory_is_one_line_that_says_what_to_lower(tmp_path, megabytes):
    settings = {**QUICK, "channels": 128, "batch_size": 256}
    done = limited(megabytes, "train", "digits", "--out", tmp_path / "run", *options(settings))
    assert done.returncode == 1, done
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(
        f"capspoe: out of memory (this process may use {megabytes} MB); lower --batch-size, --channels"
    )
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("*.writing*"))


@pytest.mark.parametrize(
    ("error", "command", "advice"),
    [
        (MemoryError(), "sample", "lower --count"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "train", "lower --batch-size"),
        (RuntimeError("std::bad_alloc"), "evaluate", "--quick"),
        (ImportError("libx.so: failed to map segment from shared object"), "encode", "fewer images"),
    ],
)
def test_every_way_in_which_libraries_report_it(error, command, advice):
    assert explain(error, command).startswith("out of memory")
    assert advice in explain(error, command)


def test_other_errors_are_not_called_memory():
    assert "memory" not in explain(RuntimeError("a shape is wrong"), "train")
