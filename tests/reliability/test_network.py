"""Only `data`, and `train` for a named data set that is not cached yet, use the network."""

import json
import os
import subprocess
import sys

from capspoe.config import preset
from capspoe.run.model import CapsulePoE
from runs import QUICK, options

# Runs commands in one process and prints every address that Python connects to and every program it starts.
WATCHED = """
import json, sys
seen = []
def watch(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.bind"):
        seen.append([event, str(arguments[1])])
    elif event in ("socket.getaddrinfo", "socket.gethostbyname", "subprocess.Popen", "os.system", "os.exec"):
        seen.append([event, str(arguments[0])])
sys.addaudithook(watch)
from capspoe.cli import main
for command in json.loads(sys.argv[1]):
    try:
        main(command)
        print("code", 0, command[0])
    except SystemExit as stop:
        print("code", stop.code, command[0])
print("seen", json.dumps(seen))
"""


def watched(commands, **environment):
    words = [[str(word) for word in command] for command in commands]
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, json.dumps(words)],
        capture_output=True, text=True, check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", **environment},
    )  # fmt: skip
    codes = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("code")]
    seen = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("seen"))[5:])
    return codes, seen, done.stderr


def test_a_run_from_training_to_report_needs_no_network(tmp_path):
    run = tmp_path / "run"
    commands = [
        ["train", "digits", "--out", run, *options(QUICK)],
        ["sample", run, "--out", tmp_path / "x.npz"],
        ["encode", run, "--out", tmp_path / "y.npz"],
        ["reconstruct", run, "--count", "2"],
        ["traverse", run, "--capsule", "0"],
        ["routing", run],
        ["report", run],
        ["export", run, "--out", tmp_path / "exported", "--format", "hub"],
        ["data", "list"],
        ["data", "verify", "digits"],
    ]
    codes, seen, said = watched(commands)
    assert codes == ["0"] * len(commands), said
    # `platform.processor` of the standard library runs uname, for environment.json.
    assert [found for found in seen if found != ["subprocess.Popen", "uname"]] == []


def test_nothing_is_fetched_for_a_run_of_somebody_else(tmp_path):
    """Its data set is not in the cache: one clear line says so."""
    CapsulePoE.build(preset().replace(channels=8, layers="2x3", prior_components=1), (28, 28, 1)).save(
        tmp_path / "run"
    )
    commands = [
        ["encode", tmp_path / "run", "--out", tmp_path / "y.npz"],
        ["reconstruct", tmp_path / "run"],
        ["routing", tmp_path / "run"],
        ["evaluate", tmp_path / "run", "--quick"],
    ]
    codes, seen, said = watched(commands, CAPSPOE_DATA=str(tmp_path / "empty"))
    assert codes == ["1"] * len(commands)
    assert said.count("; run `capspoe data fetch mnist`") == len(commands)
    assert seen == []
