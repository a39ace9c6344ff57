"""Every reader of foreign bytes as a function of bytes: it returns or raises the documented error."""

import atexit
import csv
import hashlib
import io
import json
import os
import shutil
import tempfile
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import numpy as np
import safetensors.torch
from PIL import Image

from capspoe.commands import encode
from capspoe.commands.arguments import open_for_run
from capspoe.commands.images import likeness_of
from capspoe.config import preset
from capspoe.data.arrays import open_npy, open_npz
from capspoe.data.formats import BadImage, decode, encode_idx, open_idx, probe
from capspoe.data.preprocess import Prepare
from capspoe.errors import DataError, InputError, RunError
from capspoe.explorer import live_metrics
from capspoe.explorer.server import application
from capspoe.export import web as web_export
from capspoe.figures.curves import charts, read_metrics
from capspoe.figures.summary import read_summary
from capspoe.model.recognition import Recognition
from capspoe.report import facts
from capspoe.run import checkpoint, codes, hub, recovery
from capspoe.run.log import Window, readable_lines
from capspoe.run.model import CapsulePoE

SMALL = preset().replace(channels=8, layers="2x3", prior_components=1)
IMAGE = (16, 16, 1)


@cache
def home() -> Path:
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    folder = Path(tempfile.mkdtemp(prefix="capspoe-fuzz-", dir=memory))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    model().save(folder / "run")
    return folder


@cache
def model() -> CapsulePoE:
    return CapsulePoE.build(SMALL, IMAGE)


def written(name: str, content: bytes) -> Path:
    path = home() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def signed(content: bytes) -> bytes:
    """A JSON object with the right checksum, as in a hostile run; anything else as it is."""
    with suppress(ValueError, RecursionError):
        values = json.loads(content)
        if isinstance(values, dict):
            values.pop("sha256", None)
            return checkpoint.json_bytes(checkpoint.signed(values))
    return content


def idx(content: bytes) -> None:
    with suppress(DataError):
        open_idx(written("x.idx", content))


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


def config(content: bytes) -> None:
    for given in (content, signed(content)):
        written("settings/config.json", given)
        with suppress(RunError):
            checkpoint.open_run(home() / "settings")


def state(content: bytes) -> None:
    """state.json; the weights beside it are missing."""
    for given in (content, signed(content)):
        path = written("hostile/state.json", given)
        with suppress(RunError):
            checkpoint.read(path.parent)
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            stored = checkpoint.read_json(path)
            for name in ("model_sha256", "optimizer_sha256", "settings"):
                stored.pop(name, None)
            Window(**checkpoint._parse_state(checkpoint.State(**stored)).window).means()


def weights(content: bytes) -> None:
    """model.safetensors with the right checksum."""
    empty = safetensors.torch.save({})
    hashes = {"model_sha256": content, "optimizer_sha256": empty}
    described = {name: hashlib.sha256(data).hexdigest() for name, data in hashes.items()}
    written("weighed/state.json", signed(json.dumps({"stage": "done", "settings": {}, **described}).encode()))
    written("weighed/model.safetensors", content)
    written("weighed/optimizer.safetensors", empty)
    with suppress(RunError):
        model().load_weights(checkpoint.read(home() / "weighed").weights)


def metrics(content: bytes) -> None:
    path = written("measured/metrics.jsonl", content)
    assert all(isinstance(json.loads(line), dict) for line in readable_lines(content).splitlines())
    charts(read_metrics(path.parent))
    json.dumps(live_metrics.training_status(path.parent, model().config, None), allow_nan=False)


def described(content: bytes) -> None:
    """environment.json, evaluation.json and summary.json, as pages, cards and a resume read them."""
    for name in ("environment.json", "evaluation.json", "summary.json"):
        folder = written(f"described/{name}", content).parent
    live_metrics.number_of_images(folder)
    with suppress(RunError):
        recovery.check_same_images(folder, "0" * 64)
    hub.score_table(folder).encode(errors="replace")
    read_summary(folder, 2)
    with suppress(RunError):
        facts.read_json(folder / "evaluation.json")


def exported(content: bytes) -> None:
    """An exported folder: the first byte chooses its settings, or its weights with the right checksum."""
    which, rest = content[0] % 2 if content else 0, content[1:]
    whole = (checkpoint.numbered(home() / "run")[-1] / "model.safetensors").read_bytes()
    weights_file = rest if which else whole
    settings = checkpoint.settings(SMALL, IMAGE, weights_sha256=hashlib.sha256(weights_file).hexdigest())
    written("exported/model.safetensors", weights_file)
    written("exported/config.json", checkpoint.json_bytes(settings) if which else signed(rest))
    with suppress(RunError):
        checkpoint.open_run(home() / "exported")
        model().load_weights(checkpoint.newest(home() / "exported").weights)


def scenes(content: bytes) -> None:
    """A picture that `capspoe explain` opens."""
    with suppress(DataError, InputError):
        picture = str(written("scene.png", content))
        likeness = likeness_of(model(), SimpleNamespace(object_size=10.0))
        dataset = open_for_run(model(), home(), picture, None, likeness)
        assert dataset.images().pixels.shape == (1, *IMAGE)


def tables(content: bytes) -> None:
    """File names in tables such as groups.csv."""
    names = [os.fsdecode(part) for part in content.split(b"\0")]
    encode.write_table({"file": names, "group": [str(k) for k in range(len(names))]}, home() / "sorted" / "names.csv")
    with (home() / "sorted" / "names.csv").open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        assert [row["file"] for row in csv.DictReader(file)] == names


def web(content: bytes) -> None:
    """The page of a run whose summary.json is hostile."""
    folder = written("summed/summary.json", content).parent
    (home() / "page").mkdir(exist_ok=True)
    read = next(path for path in web_export.write(model(), folder, home() / "page") if path.name == "weights.js")
    json.loads(read.read_text(encoding="utf-8").removeprefix("const MODEL = ").removesuffix(";\n"))


def stored_codes(content: bytes) -> None:
    """A codes.npy without its checksum, and a codes.json that is none: neither is used."""
    for name, other in (("codes.npy", ("codes.json", b'{"0": "0"}')), ("codes.json", ("codes.npy", b""))):
        written(f"coded/{name}", content)
        written(f"coded/{other[0]}", other[1])
        assert not codes.is_intact(home() / "coded", (2, 3, 8))


@cache
def client():
    from starlette.testclient import TestClient

    found = TestClient(application(home() / "run"), base_url="http://127.0.0.1:8765")
    found.__enter__()
    return found


PLACES = ("decode", "strips", "recognise", "explain")
QUERIES = ("gallery", "random", "images", "samples", "run", "training", "sliders")


def api(content: bytes) -> None:
    """The first byte chooses the endpoint; the rest is its body, its query, or an image file that is sent."""
    which, rest = content[0] if content else 0, content[1:]
    if which == 255:
        rest = json.dumps({"image": {"data": "data:;base64," + b64encode(rest).decode()}}).encode()
    if which % 2:
        place = PLACES[2 if which == 255 else which // 2 % len(PLACES)]
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


FORMATS = ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "TGA", "ICO", "PCX", "SGI", "DDS", "JPEG2000"]


def seeds(name: str) -> list[bytes]:
    """Real files to begin with."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 255, (3, 6, 6), np.uint8)
    picture = Image.fromarray(rng.integers(0, 255, (9, 9, 3), np.uint8))
    pictures = [_saved(lambda b, f=f: picture.save(b, f)) for f in FORMATS]
    labels = np.array(["a", "b", "a"])
    newest = checkpoint.numbered(home() / "run")[-1]
    recognising = CapsulePoE.build(SMALL, IMAGE)
    recognising.recognition = Recognition(IMAGE, recognising.top.upper[0])
    line = b'{"stage": "autoencoder", "step": 50, "loss": 0.5, "use": [0.5, 0.5], "images_per_second": 9.0}\n'
    bodies = [
        b'\x01{"poses": {"0": [0.5, -1, 2]}}', b'\x03{"poses": {"0": [0, 0, 0]}, "capsule": 0}',
        b'\x05{"image": {"index": 0}}', b'\x07{"image": {"index": 0}}',
        b"\x02capsule=1&seed=3", b"\x04start=0&count=3&capsule=1", *(b"\xff" + file for file in pictures[:6]),
    ]  # fmt: skip
    return {
        "idx": [encode_idx(pixels), encode_idx(pixels[0])],
        "npy": [_saved(lambda b: np.save(b, pixels)), _saved(lambda b: np.save(b, pixels / 255.0))],
        "npz": [
            _saved(lambda b: np.savez(b, images=pixels, labels=np.arange(3))),
            _saved(lambda b: np.savez_compressed(b, x_train=pixels, y_train=labels, x_test=pixels)),
        ],
        "image": pictures,
        "config": [(home() / "run" / "config.json").read_bytes()],
        "state": [(newest / "state.json").read_bytes()],
        "weights": [(newest / "model.safetensors").read_bytes(), checkpoint.tensor_bytes(recognising.state_dict())],
        "metrics": [2 * line],
        "described": [
            b'{"images": 9, "cores": 2, "images_sha256": "0", "sha256": "0", "value": 1}',
            b'{"rows": [{"name": "a", "fid": 1.5}], "clustering": {"alive": 2, "capsules": 2}, "likelihood": {}}',
        ],
        "exported": [
            b"\0" + json.dumps(checkpoint.settings(SMALL, IMAGE)).encode(),
            b"\1" + (newest / "model.safetensors").read_bytes(),
        ],
        "scenes": pictures,
        "tables": [b"a.png\0b/c d.png", b'x,"y".png\0<img src=x>.png\0\xff\n.png', b"=1+1\0../x"],
        "web": [b'{"labels": [["2", 0.9], null], "error": 0.1, "object_size": 0.7}'],
        "stored_codes": [_saved(lambda b: np.save(b, np.zeros((2, 3, 8), np.float16))), b'{"0": "0"}'],
        "api": bodies,
    }[name]


TARGETS: dict[str, Callable[[bytes], None]] = {
    function.__name__: function
    for function in (
        idx, npy, npz, image, config, state, weights, metrics, described, exported, scenes,
        tables, web, stored_codes, api,
    )
}  # fmt: skip
