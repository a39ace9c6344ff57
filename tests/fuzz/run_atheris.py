"""Coverage-guided fuzzing of one reader by atheris (libFuzzer), from real files and the kept corpus.

    pip install --constraint constraints.txt '.[fuzz]'
    python tests/fuzz/run_atheris.py TARGET [FOLDER] [-max_total_time=600 ...]

Inputs that reach new code are kept in FOLDER. A crash leaves its input in the current folder; moved to
tests/fuzz/corpus/TARGET it becomes a test.
"""

import sys
from pathlib import Path

import atheris
import numpy.lib._format_impl as npy_format

sys.path.insert(0, str(Path(__file__).parents[1]))
READERS = [
    *("capspoe.data", "capspoe.run", "capspoe.config", "capspoe.run.codes", "capspoe.run.recovery"),
    *("capspoe.explorer", "capspoe.export", "capspoe.figures.curves", "capspoe.report", "PIL", "zipfile"),
]
with atheris.instrument_imports(include=READERS):
    from fuzz import targets
for function in (npy_format.read_magic, npy_format._read_array_header, npy_format.descr_to_dtype):
    atheris.instrument_func(function)  # the rest of NumPy reads nothing, and takes a minute to instrument


def main() -> None:
    name, *rest = sys.argv[1:] or [""]
    if name not in targets.TARGETS:
        sys.exit("targets: " + " ".join(targets.TARGETS))
    for number, seed in enumerate(targets.seeds(name)):
        targets.written(f"seeds/{number}", seed)
    kept = Path(__file__).parent / "corpus" / name
    folders = [targets.home() / "seeds", *([kept] if kept.is_dir() else [])]
    limits = ["-max_len=6000", "-timeout=120", "-rss_limit_mb=4096", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *limits, *rest, *map(str, folders)], targets.TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
