"""Coverage-guided fuzzing of the readers by atheris (libFuzzer), from real files and the kept corpus.

    pip install --constraint constraints.txt '.[fuzz]'
    python tests/fuzz/run_atheris.py TARGET [TARGET ...] [-max_total_time=600 ...]
    python tests/fuzz/run_atheris.py all --found FOLDER -max_total_time=60

Each target runs in a process of its own, one after the other; a line at its end says how many inputs it was given and
in how many seconds of the processor. Inputs that reach new code are kept in FOLDER/TARGET. A crash leaves its input
in the current folder; kept in tests/fuzz/corpus/TARGET it becomes a test.
"""

import os
import re
import resource
import sys
import tempfile
from pathlib import Path

import atheris
import numpy.lib._format_impl as npy_format

sys.path.insert(0, str(Path(__file__).parent))
READERS = [
    *("capspoe.data", "capspoe.checkpoint", "capspoe.config", "capspoe.codes", "capspoe.explorer"),
    *("capspoe.figures.curves", "capspoe.guide", "capspoe.hub", "capspoe.journal", "capspoe.report"),
    *("PIL", "zipfile", "tarfile", "gzip"),
]
with atheris.instrument_imports(include=READERS):
    import targets
for function in (npy_format.read_magic, npy_format._read_array_header, npy_format.descr_to_dtype):
    atheris.instrument_func(function)  # the rest of NumPy reads nothing, and takes a minute to instrument


def fuzz(name: str, found: Path | None, options: list[str]) -> None:
    """Give one target inputs until an option of libFuzzer ends it; this process ends with it."""
    kept = Path(__file__).parent / "corpus" / name
    folders = [found / name] if found else []
    for number, seed in enumerate(targets.seeds(name)):
        targets.written(f"seeds/{name}/{number}", seed)
    folders += [targets.home() / "seeds" / name, *([kept] if kept.is_dir() else [])]
    if found:
        folders[0].mkdir(parents=True, exist_ok=True)
    limits = ["-max_len=6000", "-timeout=120", "-rss_limit_mb=4096", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *limits, *options, *map(str, folders)], targets.TARGETS[name])
    atheris.Fuzz()


def forked(name: str, found: Path | None, options: list[str]) -> bool:
    """Fuzz in a child, which has everything imported, and say how it went; what libFuzzer says comes at a failure."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        pid = os.fork()
        if pid == 0:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            fuzz(name, found, options)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        said.seek(0)
        text = said.read()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    given = re.findall(r"number_of_executed_units: *(\d+)|^Done (\d+) runs", text, re.M)
    inputs = max((int(n) for pair in given for n in pair if n), default=0)
    print(f"{name:12} {inputs:9} inputs {seconds:6.0f} s of the processor, exit {code}", flush=True)
    if code:
        print(text[-4000:], flush=True)
    return code == 0


def main() -> None:
    words = sys.argv[1:]
    found = Path(words.pop(words.index("--found") + 1)) if "--found" in words else None
    options = [word for word in words if word.startswith("-") and word != "--found"]
    names = [word for word in words if not word.startswith("-")]
    names = list(targets.TARGETS) if names == ["all"] else names
    if not names or set(names) - set(targets.TARGETS):
        sys.exit("targets: all " + " ".join(targets.TARGETS))
    targets.home()  # of all the children, and removed at the end of this process: theirs is too sudden
    whole = [forked(name, found, options) for name in names]
    sys.exit(not all(whole))


if __name__ == "__main__":
    main()
