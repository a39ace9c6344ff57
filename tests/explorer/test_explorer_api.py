"""Every endpoint says what the model says, and bad input gets one clear line: never a 500."""

import io
import json
from base64 import b64decode

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from capspoe import kernels
from capspoe.encoding import open_for
from capspoe.model import CapsulePoE

J, N = 4, 6
fuzz = settings(max_examples=25, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def model(gated_run):
    return CapsulePoE.load(gated_run)


@pytest.fixture(autouse=True)
def _reference():
    with kernels.use("reference"):
        yield


def pixels(url):
    head, content = url.split(",", 1)
    assert head == "data:image/png;base64"
    return np.asarray(Image.open(io.BytesIO(b64decode(content))), np.float32) / 255


def close(url, image):
    np.testing.assert_allclose(pixels(url), np.asarray(image).squeeze(-1), atol=0.5 / 255 + 1e-4)


def test_run(api, gated_run):
    found = api.get("/api/run").json()
    assert found["name"] == gated_run.name
    assert (found["capsules"], found["numbers"], found["image"]) == (J, N, [28, 28, 1])
    assert found["gate"] == "winner"
    assert found["test_images"] > 100
    assert str(gated_run.parent) not in json.dumps(found)


def test_paint_is_the_models_decode(api, model):
    import torch

    values = [0.5, -1.0, 2.0, 0.0, 0.1, -0.2]
    z = model.prior.from_white(torch.tensor([2]), torch.tensor([values]))
    hidden = np.zeros((1, J, N), np.float32)
    hidden[0, 2] = z.numpy()[0]
    close(api.post("/api/paint", json={"on": {"2": values}}).json()["image"], model.decode(hidden)[0])


def test_recognise_is_the_models_encode(api, model, gated_run):
    image = open_for(model, None, "test").batch([5])
    on, hidden = model.encode(image)
    found = api.post("/api/recognise", json={"image": {"index": 5}}).json()
    np.testing.assert_allclose(found["on"], on[0], atol=1e-4)
    np.testing.assert_allclose(found["hidden"], hidden[0], atol=2e-3)
    assert found["winner"] == on[0].argmax()
    close(found["input"], image[0] / 255)
    close(found["reconstruction"], model.reconstruct(image)[0])
    assert found["label"] in map(str, range(10))


def test_the_numbers_copied_into_the_sliders_paint_the_image_again(api, model):
    found = api.post("/api/recognise", json={"image": {"index": 5}}).json()
    j = found["winner"]
    painted = api.post("/api/paint", json={"on": {str(j): found["values"][j]}}).json()["image"]
    hidden = np.zeros((1, J, N), np.float32)
    hidden[0, j] = found["hidden"][j]
    np.testing.assert_allclose(pixels(painted), model.decode(hidden)[0, ..., 0], atol=0.01)


def test_the_same_image_by_index_file_and_pixels(api):
    one = api.post("/api/recognise", json={"image": {"index": 3}}).json()
    two = api.post("/api/recognise", json={"image": {"data": one["input"], "fit": False}}).json()
    three = api.post("/api/recognise", json={"image": {"pixels": pixels(one["input"]).tolist()}}).json()
    assert one["on"] == two["on"]
    np.testing.assert_allclose(one["on"], three["on"], atol=1e-5)


def test_gallery(api):
    found = api.get("/api/gallery").json()
    assert [c["capsule"] for c in found["capsules"]] == list(range(J))
    assert sum(c["use"] for c in found["capsules"]) == pytest.approx(1, abs=1e-3)
    first = found["capsules"][0]
    sheet = pixels(first["sheet"])
    assert sheet.shape == (28, 28 * (1 + found["samples"]))
    mean = api.post("/api/paint", json={"on": {"0": [0] * N}}).json()["image"]
    np.testing.assert_allclose(sheet[:, :28], pixels(mean), atol=0.01)
    assert any(c["name"] and 0 < c["name"]["share"] <= 1 for c in found["capsules"])


def test_capsule_is_sorted_by_effect(api):
    found = api.get("/api/capsules/1").json()
    effect = np.array(found["effect"])
    assert sorted(found["order"]) == list(range(N))
    assert (np.diff(effect[found["order"]]) <= 0).all()
    sheet = pixels(found["strips"]).reshape(N, 28, 7, 28)
    measured = np.abs(sheet[:, :, 5] - sheet[:, :, 1]).mean((1, 2))
    np.testing.assert_allclose(measured, effect, atol=0.003)


def test_strips_start_from_where_the_numbers_stand(api):
    on = {"1": [1.0, -1, 0.5, 0, 0, 2]}
    sheet = pixels(api.post("/api/strips", json={"on": on, "capsule": 1}).json()["strips"]).reshape(
        N, 28, 7, 28
    )
    here = pixels(api.post("/api/paint", json={"on": on}).json()["image"])
    np.testing.assert_allclose(sheet[0, :, 4], here, atol=0.01)  # number 0 stands at 1, the fifth position
    np.testing.assert_allclose(sheet[3, :, 3], here, atol=0.01)


def test_random_draws_from_the_prior(api):
    drawn = np.array([api.get(f"/api/random?capsule=0&seed={s}").json()["values"] for s in range(60)])
    assert drawn.shape == (60, N)
    assert np.abs(drawn.mean(0)).max() < 0.8
    assert 0.4 < drawn.std() < 1.8
    assert api.get("/api/random?capsule=0&seed=3").json()["values"] == drawn[3].tolist()


def test_routing(api, model):
    found = api.post("/api/routing", json={"image": {"index": 2}}).json()
    I = model.top.lower[0]
    assert len(found["iterations"]) == 3
    assert len(found["lower"]) == len(found["strength"]) == I
    first, last = (np.array(found["iterations"][k]["weights"]) for k in (0, -1))
    np.testing.assert_allclose(first, 1, atol=1e-3)
    np.testing.assert_allclose(last.mean(1), 1, atol=1e-2)
    assert np.ptp(last) > 0.05
    image = open_for(model, None, "test").batch([2])
    np.testing.assert_allclose(found["iterations"][-1]["on"], model.encode(image).on[0], atol=1e-3)


def test_lower_capsules_lie_over_the_image(api):
    lower = np.array(api.post("/api/routing", json={"image": {"index": 2}}).json()["lower"])
    assert ((lower[:, :2] - lower[:, 2:] / 2 > -1e-3) & (lower[:, :2] + lower[:, 2:] / 2 < 1.001)).all()


def test_interpolation_ends_in_the_reconstructions(api):
    ends = [{"index": 0}, {"index": 1}]
    found = api.post("/api/interpolate", json={"first": ends[0], "last": ends[1], "steps": 5}).json()
    frames = pixels(found["frames"]).reshape(28, 5, 28)
    for k, end in ((0, ends[0]), (4, ends[1])):
        whole = pixels(api.post("/api/recognise", json={"image": end}).json()["reconstruction"])
        np.testing.assert_allclose(frames[:, k], whole, atol=0.01)


def test_interpolation_between_states(api):
    ends = [{"on": {"0": [0] * N}}, {"on": {"3": [1] * N}}]
    found = api.post("/api/interpolate", json={"first": ends[0], "last": ends[1], "steps": 3}).json()
    frames = pixels(found["frames"]).reshape(28, 3, 28)
    for k, end in ((0, ends[0]), (2, ends[1])):
        np.testing.assert_allclose(
            frames[:, k], pixels(api.post("/api/paint", json=end).json()["image"]), atol=0.01
        )


def test_images(api):
    found = api.get("/api/images?start=3&count=5").json()
    assert [one["index"] for one in found["images"]] == [3, 4, 5, 6, 7]
    assert api.get("/api/images?start=999999").json()["images"] == []
    mine = api.get("/api/images?capsule=1").json()["images"]
    for one in mine[:4]:
        assert api.post("/api/recognise", json={"image": {"index": one["index"]}}).json()["winner"] == 1


def test_pictures(api, gated_run):
    grid = Image.open(io.BytesIO(api.get("/api/grid.png?rows=2&scale=1").content))
    assert grid.size == (J * 30 - 2, 2 * 30 - 2)
    assert api.get("/api/samples.png").content == (gated_run / "samples.png").read_bytes()


def test_training(api):
    found = api.get("/api/training").json()
    assert found["status"] == "finished"
    assert [s["stage"] for s in found["stages"]] == ["autoencoder", "capsules-0"]
    for stage in found["stages"]:
        assert stage["step"] == stage["of"]
        assert all(len(curve) == len(stage["steps"]) for curve in stage["curves"].values())


# Without the gate.


def test_several_capsules_at_once(literal_api, literal_run):
    model = CapsulePoE.load(literal_run)
    found = literal_api.post("/api/recognise", json={"image": {"index": 0}}).json()
    on = {str(j): found["values"][j] for j in range(J)}
    painted = pixels(literal_api.post("/api/paint", json={"on": on}).json()["image"])
    expected = model.decode(np.array([found["hidden"]], np.float32))[0, ..., 0]
    np.testing.assert_allclose(painted, expected, atol=0.01)
    two = {"0": [0.0] * N, "2": [1.0] * N}
    sheet = pixels(literal_api.post("/api/strips", json={"on": two, "capsule": 2}).json()["strips"])
    here = pixels(literal_api.post("/api/paint", json={"on": two}).json()["image"])
    np.testing.assert_allclose(sheet.reshape(N, 28, 7, 28)[0, :, 4], here, atol=0.01)
    assert (
        literal_api.post("/api/interpolate", json={"first": {"index": 0}, "last": {"index": 1}}).status_code
        == 200
    )


# Bad input.


@pytest.mark.parametrize(
    ("path", "content", "status"),
    [
        ("/api/paint", {}, 400),
        ("/api/paint", [], 400),
        ("/api/paint", {"on": {}}, 400),
        ("/api/paint", {"on": {"4": [0] * N}}, 400),
        ("/api/paint", {"on": {"-1": [0] * N}}, 400),
        ("/api/paint", {"on": {"0": [0] * (N - 1)}}, 400),
        ("/api/paint", {"on": {"0": ["0"] * N}}, 400),
        ("/api/paint", {"on": {"0": [1e9] * N}}, 400),
        ("/api/paint", {"on": {"0": [0] * N, "1": [0] * N}}, 400),
        ("/api/paint", {"on": {"0": [True] * N}}, 400),
        ("/api/paint", {"on": {"0": [0] * N}, "more": 1}, 400),
        ("/api/strips", {"on": {"0": [0] * N}, "capsule": 1}, 400),
        ("/api/recognise", {"image": {"index": 10**8}}, 404),
        ("/api/recognise", {"image": {"index": -1}}, 400),
        ("/api/recognise", {"image": {"index": 0, "data": "x"}}, 400),
        ("/api/recognise", {"image": {"pixels": [[0] * 28] * 27}}, 400),
        ("/api/recognise", {"image": {"pixels": [[2] * 28] * 28}}, 400),
        ("/api/recognise", {"image": {"pixels": [[[[0]]]]}}, 400),
        ("/api/recognise", {"image": {"pixels": [[0], [0, 1]]}}, 400),
        ("/api/recognise", {"image": {"data": "data:image/png;base64,xxxx"}}, 400),
        ("/api/interpolate", {"first": {"index": 0}, "last": {"index": 1}, "steps": 1000}, 400),
    ],
)
def test_wrong_bodies(api, path, content, status):
    answer = api.post(path, json=content)
    assert answer.status_code == status
    assert 5 < len(answer.json()["error"]) < 400


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"{", b"\xff\xfe", b"null", b'{"on": {"0": [NaN]}}', b'{"on": {"0": [1e999, 0,0,0,0,0]}}'),
        *(b"[" * 200_000, b'{"on":' * 900 + b"1" + b"}" * 900, b"9" * 5000, b'"' + b"x" * 10**6 + b'"'),
        b'{"image": {"pixels": ' + b"[" * 500 + b"]" * 500 + b"}}",
        b'{"on": {"0": [' + b"9" * 4000 + b"]}}",
        b'{"image": {"data": "\\ud800"}}',
    ],
)
@pytest.mark.parametrize("path", ["/api/paint", "/api/recognise"])
def test_hostile_bodies(api, path, raw):
    answer = api.post(path, content=raw, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert len(answer.json()["error"]) < 400


def test_huge_bodies(api):
    head = {"content-type": "application/json"}
    assert api.post("/api/paint", content=b" " * (7 << 20), headers=head).status_code == 413

    def endless():
        for _ in range(100):
            yield b" " * (1 << 17)

    assert api.post("/api/paint", content=endless(), headers=head).status_code == 413


@pytest.mark.parametrize(
    "path",
    [
        *("/api/capsules/99", "/api/nothing", "/nothing", "/api/capsules/x", "/api/capsules/" + "9" * 400),
        *("/api/grid.png?rows=0", "/api/grid.png?rows=1e3", "/api/grid.png?seed=" + "9" * 5000),
        *(
            "/api/images?count=-1",
            "/api/images?start=%00",
            "/api/random",
            "/api/random?capsule=٣",
            "/api/random?capsule=77",
        ),
    ],
)
def test_wrong_addresses(api, path):
    answer = api.get(path)
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]


def test_wrong_methods(api):
    assert api.get("/api/paint").status_code == 405
    assert api.put("/api/run").status_code == 405
    assert api.options("/api/paint").status_code == 405
    assert api.head("/").status_code == 200


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
numbers = st.lists(st.floats(-100, 100) | st.integers(-200, 200), min_size=0, max_size=8)
ons = st.dictionaries(
    st.sampled_from(["0", "1", "3", "4", "x", "00", "-1"]), numbers | json_values, max_size=3
)
images = st.one_of(
    st.fixed_dictionaries({"index": st.integers(-5, 10**10) | json_values}),
    st.fixed_dictionaries({"data": st.text(max_size=50) | st.binary(max_size=40).map(lambda b: b.hex())}),
    st.fixed_dictionaries(
        {"pixels": st.lists(st.lists(st.floats(-1, 2), max_size=4), max_size=4) | json_values}
    ),
    st.fixed_dictionaries({"on": ons}),
    json_values,
)
bodies = {
    "paint": st.fixed_dictionaries({"on": ons}),
    "strips": st.fixed_dictionaries({"on": ons, "capsule": st.integers(-2, 10) | json_values}),
    "recognise": st.fixed_dictionaries({"image": images}),
    "routing": st.fixed_dictionaries({"image": images}),
    "interpolate": st.fixed_dictionaries(
        {"first": images, "last": images}, optional={"steps": st.integers(-2, 5) | json_values}
    ),
}


@pytest.mark.parametrize("name", bodies)
@fuzz
@given(data=st.data())
def test_no_body_breaks_it(api, name, data):
    content = data.draw(bodies[name] | json_values)
    raw = json.dumps(content).encode()
    answer = api.post(f"/api/{name}", content=raw, headers={"content-type": "application/json"})
    assert answer.status_code in (200, 400, 404)
    assert answer.json().get("error") or answer.status_code == 200


@fuzz
@given(st.lists(st.floats(-100, 100), min_size=N, max_size=N), st.integers(0, J - 1))
def test_every_number_in_range_paints(api, values, capsule):
    answer = api.post("/api/paint", json={"on": {str(capsule): values}})
    assert answer.status_code == 200
    assert pixels(answer.json()["image"]).shape == (28, 28)


@fuzz
@given(
    st.sampled_from(
        ["/api/grid.png", "/api/images", "/api/random", "/api/gallery", "/api/run", "/api/training"]
    ),
    st.dictionaries(
        st.sampled_from(["rows", "seed", "scale", "count", "start", "capsule"]),
        st.text(max_size=12),
        max_size=3,
    ),
)
def test_no_query_breaks_it(api, path, query):
    assert api.get(path, params=query).status_code in (200, 400)
