"""Every route answers what the network computes, and bad input gets one clear line: never a 500."""

import io
import json
import re
from base64 import b64decode, b64encode

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from serving import J, N, client_of

from capspoe import kernels
from capspoe.data import open_for
from capspoe.errors import InputError
from capspoe.explorer.api import check_poses
from capspoe.explorer.encoding import run_name
from capspoe.explorer.session import SHIFT
from capspoe.figures.explanation import tinted
from capspoe.figures.traversal import traversal
from capspoe.run.model import CapsulePoE
from capspoe.run.pictures import sample_grid, tile

fuzz = settings(max_examples=25, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def network(gated_run):
    return CapsulePoE.load(gated_run)


@pytest.fixture(scope="module")
def test_pixels(network):
    return open_for(network.config, network.image).batch(np.arange(10))


@pytest.fixture(autouse=True)
def _reference():
    with kernels.use("reference"):
        yield


def pixels(url):
    head, content = url.split(",", 1)
    assert head == "data:image/png;base64"
    return np.asarray(Image.open(io.BytesIO(b64decode(content))), np.float32) / 255


def same(url, image):
    expected = np.asarray(image)
    np.testing.assert_allclose(pixels(url), expected.reshape(expected.shape[:2]), atol=0.5 / 255 + 1e-4)


def decoded(network, poses):
    """The reference: poses to images through the public methods of the network."""
    hidden = np.zeros((1, J, N), np.float32)
    for j, pose in poses.items():
        z = network.prior.from_white(torch.tensor([j]), torch.tensor([pose]))
        hidden[0, j] = network.top.hidden_mean(z).detach().numpy()[0]
    return network.decode(hidden)[0]


POSE = [0.5, -1.0, 2.0, 0.0, 0.1, -0.2]


def test_run(api, gated_run):
    answer = api.get("/api/run").json()
    assert (answer["name"], answer["capsules"], answer["dimensions"]) == (gated_run.name, J, N)
    assert (answer["image"], answer["gated"], answer["stage"]) == ([28, 28, 1], True, "done")
    assert answer["images"] > 100
    assert answer["kind"] == "test images"
    assert str(gated_run.parent) not in json.dumps(answer)


def test_decode(api, network):
    same(api.post("/api/decode", json={"poses": {"2": POSE}}).json()["image"], decoded(network, {2: POSE}))


def test_recognise(api, network, test_pixels):
    on, hidden = network.encode(test_pixels[5:6])
    answer = api.post("/api/recognise", json={"image": {"index": 5}}).json()
    np.testing.assert_allclose(answer["on"], on[0], atol=1e-4)
    assert answer["winner"] == on[0].argmax()
    same(answer["input"], test_pixels[5] / 255)
    same(answer["reconstruction"], network.reconstruct(test_pixels[5:6])[0])
    assert answer["label"] in map(str, range(10))
    z = network.prior.from_white(torch.arange(J), torch.tensor(answer["poses"]))
    np.testing.assert_allclose(network.top.hidden_mean(z).detach(), hidden[0], atol=2e-3)


def test_a_test_image_and_its_file_are_recognised_alike(api):
    one = api.post("/api/recognise", json={"image": {"index": 3}}).json()
    for fit in (False, True):
        two = api.post("/api/recognise", json={"image": {"data": one["input"], "fit": fit}}).json()
        assert two["on"] == one["on"]


def test_complete(api, network, test_pixels):
    hidden = [k for k in range(28 * 28) if k % 28 < 14]
    answer = api.post("/api/complete", json={"image": {"index": 5}, "hidden": hidden, "seed": 2}).json()
    expected = network.complete(test_pixels[5], "left", 4, seed=2)
    same(answer["sheet"], np.concatenate(expected.images[0], 1))
    assert answer["capsules"] == expected.capsule[0].tolist()
    for wrong in ([], [-1], [28 * 28], "left", [1.5]):
        assert api.post("/api/complete", json={"image": {"index": 5}, "hidden": wrong}).status_code == 400


def test_gallery(api, network):
    answer = api.get("/api/gallery").json()
    assert sum(answer["use"]) == pytest.approx(1, abs=1e-3)
    sheet = pixels(answer["sheet"]).reshape(28, J, 28)
    for j in range(J):
        np.testing.assert_allclose(sheet[:, j], decoded(network, {j: [0.0] * N})[..., 0], atol=0.01)


def test_names_are_the_most_common_labels(api, network, gated_run):
    dataset = open_for(network.config, network.image)
    winners = network.encode(dataset.batch(np.arange(len(dataset)))).on.argmax(-1)
    gallery = api.get("/api/gallery").json()
    assert gallery["surveyed"] == len(dataset)
    names = gallery["names"]
    for j in range(J):
        counts = np.bincount(dataset.labels[: len(winners)][winners == j], minlength=10)
        if counts.sum():
            assert names[j]["share"] == pytest.approx(counts.max() / counts.sum(), abs=1e-3)
            assert counts[int(names[j]["label"])] == counts.max()


def test_strips_move_one_dimension_from_the_pose(api, network):
    answer = api.post("/api/strips", json={"poses": {"1": POSE}, "capsule": 1}).json()
    sheet = pixels(answer["strips"]).reshape(N, 28, 7, 28)
    for n, column, value in ((0, 0, -3.0), (3, 6, 3.0), (5, 2, -1.0)):
        moved = [value if k == n else v for k, v in enumerate(POSE)]
        np.testing.assert_allclose(sheet[n, :, column], decoded(network, {1: moved})[..., 0], atol=0.01)
    measured = np.abs(sheet[:, :, 5] - sheet[:, :, 1]).mean((1, 2))
    np.testing.assert_allclose(answer["effect"], measured, atol=0.003)


def test_random_poses_come_from_the_prior(api):
    drawn = np.array([api.get(f"/api/random?capsule=0&seed={s}").json()["pose"] for s in range(60)])
    assert np.abs(drawn.mean(0)).max() < 0.8
    assert 0.4 < drawn.std() < 1.8
    assert api.get("/api/random?capsule=0&seed=3").json()["pose"] == drawn[3].tolist()


def test_explain_ends_in_what_the_model_finds(api, network, test_pixels):
    answer = api.post("/api/explain", json={"image": {"index": 2}}).json()
    found = network.explain(test_pixels[2:3], 2, shift=SHIFT)
    assert answer["capsules"] == found.capsule[0].tolist()
    np.testing.assert_allclose(answer["poses"], found.pose[0, :, :N], atol=1e-3)
    frames = pixels(answer["frames"]).reshape(2, 28, answer["count"], 28, 3)
    last = [tinted(one, np.eye(2)[m][:, None, None]) for m, one in enumerate(found.objects[0])]
    np.testing.assert_allclose(frames[:, :, -1], last, atol=0.01)
    assert np.abs(frames[:, :, 0] - frames[:, :, -1]).max() > 0.01
    np.testing.assert_allclose(pixels(answer["owner"]), tinted(test_pixels[2] / 255, found.owner[0]), atol=0.01)


def test_dark_objects_on_a_light_background(dark_run):
    with client_of(dark_run) as api:
        assert api.get("/api/run").json()["dark"]
        one = api.post("/api/recognise", json={"image": {"index": 3}}).json()
        assert pixels(one["input"])[0, 0] == 1
        negative = api.post("/api/explain", json={"image": {"index": 3}}).json()["input"]  # as the pad shows it
        np.testing.assert_allclose(pixels(negative), 1 - pixels(one["input"]), atol=0.01)
        for drawn in (negative, one["input"]):
            two = api.post("/api/recognise", json={"image": {"data": drawn, "fit": False}}).json()
            np.testing.assert_allclose(two["on"], one["on"], atol=1e-3)


def test_the_network_decides_on_polarity_like_everywhere_else(dark_run, tmp_path):
    """Its images are dark on light, but it decodes the opposite: explain and the page follow it, not the images."""
    network = CapsulePoE.load(dark_run).requires_grad_(False)
    network.codec.up_2.bias.fill_(-3.0)
    network.save(tmp_path / "run")
    with client_of(tmp_path / "run") as api:
        assert api.get("/api/run").json()["dark"] is False
        answer = api.post("/api/explain", json={"image": {"index": 3}}).json()
        image = open_for(network.config, network.image, split="all").batch(np.array([3]))
        assert answer["capsules"] == network.explain(image, 2, shift=SHIFT).capsule[0].tolist()


def test_images(api):
    answer = api.get("/api/images?start=3&count=5").json()
    assert [one["index"] for one in answer["images"]] == [3, 4, 5, 6, 7]
    assert api.get("/api/images?start=999999").json()["images"] == []
    for one in api.get("/api/images?capsule=1").json()["images"][:4]:
        assert api.post("/api/recognise", json={"image": {"index": one["index"]}}).json()["winner"] == 1


def test_samples(api, network):
    image = pixels(api.get("/api/samples").json()["image"])
    expected = tile(sample_grid(network), scale=2)[..., 0] / 255
    np.testing.assert_allclose(image, expected, atol=1 / 255 + 1e-6)


# Other kinds of runs.


def test_several_capsules_without_the_gate(ungated_api, ungated_run):
    network = CapsulePoE.load(ungated_run)
    poses = {0: POSE, 2: [1.0] * N}
    expected = decoded(network, poses)[..., 0]
    sent = {str(j): pose for j, pose in poses.items()}
    image = pixels(ungated_api.post("/api/decode", json={"poses": sent}).json()["image"])
    np.testing.assert_allclose(image, expected, atol=0.01)
    strips = ungated_api.post("/api/strips", json={"poses": sent, "capsule": 2}).json()["strips"]
    np.testing.assert_allclose(pixels(strips).reshape(N, 28, 7, 28)[0, :, 4], expected, atol=0.01)


def test_colour_and_stacked_layers(stacked_api):
    answer = stacked_api.post("/api/recognise", json={"image": {"index": 1}}).json()
    assert pixels(answer["input"]).shape == pixels(answer["reconstruction"]).shape == (20, 24, 3)
    assert answer["label"] is None
    again = stacked_api.post("/api/recognise", json={"image": {"data": answer["input"]}}).json()
    assert again["on"] == answer["on"]
    assert stacked_api.get("/api/gallery").json()["names"] == [None] * J
    run = stacked_api.get("/api/run").json()
    assert (run["images"], run["kind"]) == (200, "images")  # somebody's own: those of training too
    for path in ("/api/samples", "/api/images", "/api/training"):
        assert stacked_api.get(path).status_code == 200


# Bad input.


WRONG_POSES = [
    *({}, {"4": POSE}, {"-1": POSE}, {"0": POSE[1:]}, {"0": ["0"] * N}, {"0": [101] * N}, {"0": [True] * N}),
    {"0": POSE, "1": POSE},  # exactly one is on
]
WRONG_IMAGES = [
    *({"index": 10**8}, {"index": -1}, {"index": 0, "data": "x"}, {"poses": {"0": POSE}}),
    *({"data": "data:image/png;base64,xxxx"}, {"data": "", "fit": 2}),
]
WRONG = [
    *[("decode", {"poses": poses}) for poses in WRONG_POSES],
    *[("recognise", {"image": image}) for image in WRONG_IMAGES],
    *[("decode", {}), ("decode", []), ("decode", {"poses": {"0": POSE}, "more": 1})],
    ("strips", {"poses": {"0": POSE}, "capsule": 1}),
]


@pytest.mark.parametrize(("path", "content"), WRONG)
def test_wrong_bodies(api, path, content):
    answer = api.post(f"/api/{path}", json=content)
    assert answer.status_code == 400
    assert re.fullmatch(r".{5,300}", answer.json()["error"])  # one line


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"{", b"\xff\xfe", b"null", b'{"poses": {"0": [NaN, 0, 0, 0, 0, 0]}}', b"[" * 200_000),
        *(b'{"poses":' * 900 + b"1" + b"}" * 900, b"9" * 5000, b'{"poses": {"0": [' + b"9" * 4000 + b"]}}"),
        *(b'{"image": {"data": "\\ud800"}}', b'{"\\ud800": 1}'),
    ],
)
@pytest.mark.parametrize("path", ["decode", "recognise"])
def test_hostile_bodies(api, path, raw):
    answer = api.post(f"/api/{path}", content=raw, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert len(answer.json()["error"]) < 300


def test_bodies_are_limited(api):
    head = {"content-type": "application/json"}
    assert api.post("/api/decode", content=b" " * (7 << 20), headers=head).status_code == 413
    endless = (b" " * (1 << 17) for _ in range(100))
    assert api.post("/api/decode", content=endless, headers=head).status_code == 413


def test_poses_are_limited():
    assert len(check_poses({str(j): POSE for j in range(512)})) == 512
    with pytest.raises(InputError, match="must map capsules to their poses"):
        check_poses({str(j): POSE for j in range(513)})


def test_wrong_addresses_and_methods(api):
    for path in ("/api/nothing", "/nothing", "/api/", "/api/run/x"):
        assert api.get(path).status_code == 404
    for path in ("images?count=0", "images?count=1e3", "random?capsule=0&seed=" + "9" * 5000,
                 "images?start=%00", "random", "random?capsule=77", "run?x=1"):  # fmt: skip
        answer = api.get(f"/api/{path}")
        assert answer.status_code == 400
        assert answer.json()["error"]
    assert [api.get("/api/decode").status_code, api.put("/api/run").status_code] == [405, 405]
    assert api.head("/").status_code == 200


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
numbers = st.lists(st.floats(-100, 100) | st.integers(-200, 200), max_size=8)
names = st.sampled_from(["0", "1", "3", "4", "x", "00", "-1"])
poses = st.dictionaries(names, numbers | json_values, max_size=3)
images = st.one_of(
    st.fixed_dictionaries({"index": st.integers(-5, 10**10) | json_values}),
    st.fixed_dictionaries({"data": st.text(max_size=50)}, optional={"fit": json_values}),
    st.fixed_dictionaries({"poses": poses}),
    json_values,
)
bodies = {
    "decode": st.fixed_dictionaries({"poses": poses}),
    "strips": st.fixed_dictionaries({"poses": poses, "capsule": st.integers(-2, 10) | json_values}),
    "recognise": st.fixed_dictionaries({"image": images}),
    "complete": st.fixed_dictionaries({"image": images, "hidden": st.lists(st.integers(-2, 999)) | json_values}),
}


@pytest.mark.parametrize("name", bodies)
@fuzz
@given(data=st.data())
def test_no_body_breaks_it(api, name, data):
    raw = json.dumps(data.draw(bodies[name] | json_values)).encode()
    answer = api.post(f"/api/{name}", content=raw, headers={"content-type": "application/json"})
    assert answer.status_code == 200 or (answer.status_code == 400 and answer.json()["error"])


@fuzz
@given(st.lists(st.floats(-100, 100), min_size=N, max_size=N), st.integers(0, J - 1))
def test_every_pose_in_range_is_decoded(api, pose, capsule):
    answer = api.post("/api/decode", json={"poses": {str(capsule): pose}})
    assert answer.status_code == 200
    assert pixels(answer.json()["image"]).shape == (28, 28)


def test_sliders_have_measured_names(api, network):
    answer = api.get("/api/sliders?capsule=1").json()
    found = traversal(network, 1, "principal")
    assert sorted(answer["order"]) == list(range(N))
    assert (np.diff(found.change[answer["order"]]) <= 0).all()
    assert answer["names"] == [found.label[n] for n in answer["order"]]


def test_it_says_when_an_image_is_unlike_the_test_images(api):
    """98% of the surveyed images are not; a white bar across half the image is."""
    count = api.get("/api/run").json()["images"]
    found = [api.post("/api/recognise", json={"image": {"index": k}}).json()["unlike"] for k in range(count)]
    assert abs(sum(found) - 0.02 * count) <= 1
    bar = np.zeros((28, 28), np.uint8)
    bar[:, 4:20] = 255
    buffer = io.BytesIO()
    Image.fromarray(bar).save(buffer, "PNG")
    image = {"data": b64encode(buffer.getvalue()).decode(), "fit": False}
    assert api.post("/api/recognise", json={"image": image}).json()["unlike"]


def test_a_run_is_called_by_its_folder(tmp_path):
    assert run_name(tmp_path / "mnist-3") == "mnist-3"
    assert run_name(tmp_path / "sorted" / "run") == "sorted/run"
