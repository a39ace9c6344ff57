"""Coverage-guided fuzzing of one reader by atheris (libFuzzer), from real files and the kept corpus.

    pip install --constraint constraints.txt '.[fuzz]'
    python tests/fuzz/run_atheris.py TARGET [FOLDER for what it finds] [-max_total_time=600 ...]
    python tests/fuzz/run_atheris.py list

A crash leaves its input in the current folder; kept in tests/fuzz/corpus/TARGET it becomes a test.
"""

import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))
READERS = [
    *("capspoe.data", "capspoe.checkpoint", "capspoe.config", "capspoe.codes", "capspoe.explorer"),
    *("capspoe.figures.curves", "PIL", "zipfile", "tarfile", "gzip", "numpy.lib._format_impl"),
]
with atheris.instrument_imports(include=READERS):
    import targets


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "list"
    if name not in targets.TARGETS:
        sys.exit("targets: " + " ".join(targets.TARGETS))
    options = [word for word in sys.argv[2:] if word.startswith("-")]
    own = [
        word for word in sys.argv[2:] if not word.startswith("-")
    ]  # libFuzzer writes into the first folder
    kept = Path(__file__).parent / "corpus" / name
    with tempfile.TemporaryDirectory() as real:
        for number, seed in enumerate(targets.seeds(name)):
            (Path(real) / f"seed-{number}").write_bytes(seed)
        folders = [*own, real, *([str(kept)] if kept.is_dir() else [])]
        limits = ["-max_len=6000", "-timeout=20", "-rss_limit_mb=4096"]
        atheris.Setup([sys.argv[0], *limits, *options, *folders], targets.TARGETS[name])
        atheris.Fuzz()


if __name__ == "__main__":
    main()
