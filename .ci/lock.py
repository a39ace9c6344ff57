"""requirements.lock: everything that `make` installs, with the SHA-256 of each file, as pip itself would choose it.

    python .ci/lock.py

Nothing is installed. Where the files come from is left to pip's own settings; no address gets into the file.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
ABOUT = """\
# Everything that `make` installs, for Linux on x86-64 with Python {python}; made by `python .ci/lock.py`.
# torch is PyTorch's build for CPUs. Other machines get other files: there, constraints.txt pins the versions.
"""


def chosen() -> dict:
    """What pip would install for development, as its report has it."""
    with tempfile.TemporaryDirectory() as place:
        report = Path(place) / "report.json"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        pins = ["--constraint", ROOT / "constraints.txt"]
        subprocess.run([*pip, *pins, "--report", report, f"{ROOT}[dev]"], check=True)
        return json.loads(report.read_text())


def main() -> None:
    report, lines = chosen(), []
    for package in report["install"]:
        name, version = package["metadata"]["name"], package["metadata"]["version"]
        if name != "capspoe":
            sha256 = package["download_info"]["archive_info"]["hashes"]["sha256"]
            lines.append(f"{name}=={version.split('+')[0]} \\\n    --hash=sha256:{sha256}\n")
    about = ABOUT.format(python=report["environment"]["python_version"])
    (ROOT / "requirements.lock").write_text(about + "".join(sorted(lines, key=str.lower)))


if __name__ == "__main__":
    main()
