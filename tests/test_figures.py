"""Every figure of a real, tiny trained model: what it is made of, not that a file exists."""

import json
import xml.etree.ElementTree as ET
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from capspoe import training
from capspoe.encoding import open_for
from capspoe.errors import InputError, RunError
from capspoe.figures import architecture, curves, diagram, gallery, grid, heat, interpolation, write_grid
from capspoe.figures import reconstruction as rec
from capspoe.figures.panels import Sheet
from capspoe.figures.routing import one_image, routed
from capspoe.figures.traversal import _label, directions, painted, traverse, write_traversal
from capspoe.measure import MEASURES
from capspoe.model import CapsulePoE
from capspoe.routing import on_probability
from capspoe.sampling import sample_at
from runs import QUICK

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures") / "run"
    training.train("digits", folder, quiet=True, **QUICK)
    return folder


@pytest.fixture(scope="module")
def model(run):
    return CapsulePoE.load(run)


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures") / "deep"
    return training.train("digits", folder, quiet=True, **{**QUICK, "layers": "6x5,3x4", "epochs": 2})


@pytest.fixture(scope="module")
def source(model):
    return open_for(model, None, "test")


@pytest.fixture(scope="module")
def view(model, source):
    return routed(model, one_image(source, 0))


def elements(svg, **attributes):
    """Elements of a drawing that have these attributes (a class among others)."""
    wanted = {k.rstrip("_").replace("_", "-"): v for k, v in attributes.items()}
    return [
        e
        for e in ET.fromstring(svg).iter()
        if all(v in e.get(k, "").split() if k == "class" else e.get(k) == v for k, v in wanted.items())
    ]


# Figure 3


def test_grid_is_the_models_own_samples(model, tmp_path):
    images = grid(model, rows=3, seed=5)
    assert images.shape == (3, 4, 28, 28, 1)
    for j in range(4):  # a column is a capsule
        alone = sample_at(model, 4 * np.arange(3) + j, np.full(3, j), "fitted", seed=5).images
        assert images[:, j] == pytest.approx(alone, abs=1e-6)
    write_grid(model, tmp_path / "grid.png", rows=3, seed=5)
    picture = np.asarray(Image.open(tmp_path / "grid.png"))
    assert picture.shape == (2 * (3 * 30 - 2), 2 * (4 * 30 - 2))
    corner = picture[2 * 30 : 2 * 58 : 2, 2 * 60 : 2 * 88 : 2] / 255
    assert corner == pytest.approx(images[1, 2, ..., 0], abs=0.003)


def test_a_grid_follows_its_seed(model):
    assert np.array_equal(grid(model, seed=1), grid(model, seed=1))
    assert not np.array_equal(grid(model, seed=1), grid(model, seed=2))


# Figure 1


@torch.no_grad()
def test_routed_holds_the_models_numbers(model, source, view):
    x = model.tensor(source.batch([0]))
    code = model.autoencoder.encode(x)
    c = model.top(code).c
    assert view.weight == pytest.approx((c[0] / c[0].mean()).numpy(), rel=1e-4)
    assert view.lower_on == pytest.approx(on_probability(code)[0].numpy(), rel=1e-5)
    assert view.code_on.shape == (6, 6, 1)
    assert view.upper_on == pytest.approx(model.encode(source.batch([0])).on[0], rel=1e-4)
    assert view.place_weight == pytest.approx(view.weight.reshape(4, 6, 6), rel=1e-4)
    # The winner's own painting is the reconstruction; the image itself is shown untouched.
    assert view.painted[view.winner] == pytest.approx(model.reconstruct(source.batch([0]))[0], abs=1e-4)
    assert (view.image * 255).round().astype(np.uint8).tolist() == source.batch([0])[0].tolist()


def test_diagram_draws_every_capsule_with_its_shade(view):
    svg = diagram.routing_diagram(view, "test image 0", "7")
    lower, upper = elements(svg, class_="lower"), elements(svg, class_="upper")
    assert [float(e.get("fill-opacity")) for e in lower] == pytest.approx(view.lower_on.tolist(), abs=6e-4)
    assert [float(e.get("fill-opacity")) for e in upper] == pytest.approx(view.upper_on.tolist(), abs=6e-4)
    assert len(elements(svg, class_="place")) == view.code_on.size
    assert len(elements(svg, data_role="painted")) == 4
    assert len(elements(svg, data_role="image")) == 1
    text = " ".join(ET.fromstring(svg).itertext())
    assert f"Capsule {view.winner} is on" in text
    assert "labelled 7" in text
    assert ET.fromstring(svg).find(f"{SVG}title").text == "Routing of test image 0"


def test_diagram_lines_are_the_strongest_weights(view):
    lines = [e for e in elements(diagram.routing_diagram(view)) if e.get("data-weight")]
    for j in range(4):
        mine = [e for e in lines if e.get("data-j") == str(j)]
        count = 9 if j == view.winner else 6  # of 36 lower capsules
        assert {int(e.get("data-i")) for e in mine} == set(np.argsort(view.weight[j])[-count:].tolist())
        for e in mine:
            assert float(e.get("data-weight")) == pytest.approx(
                view.weight[j, int(e.get("data-i"))], abs=6e-4
            )
        stronger = sorted(mine, key=lambda e: float(e.get("data-weight")))
        opacity = [float(e.get("stroke-opacity")) for e in stronger]
        assert opacity == sorted(opacity)
        assert opacity[-1] > 0


def test_lines_and_density_account_for_all_weight():
    weight = np.random.default_rng(0).random(144)
    edges = diagram.edges_of(weight, 10, bins=36)
    assert edges.weight.tolist() == sorted(weight)[-10:]
    assert edges.density.sum() * 4 + edges.weight.sum() == pytest.approx(weight.sum())
    assert diagram.edges_of(np.ones(144), 10).lower.size == 0  # equal weights: none is the strongest


def test_at_most_a_quarter_of_the_weights_are_lines():
    assert [diagram.line_counts(I) for I in (2, 12, 144, 576)] == [(1, 1), (3, 3), (6, 36), (6, 36)]


def test_diagram_of_many_capsules_shows_the_most_probable(view):
    rng = np.random.default_rng(0)
    on = rng.dirichlet(np.ones(100))
    many = view._replace(upper_on=on, weight=np.ones((100, 36)), painted=np.zeros((100, 28, 28, 1)))
    svg = diagram.routing_diagram(many)
    drawn = {int(e.get("data-j")) for e in elements(svg, class_="upper")}
    assert drawn == set(np.argsort(on)[-diagram.SHOWN :].tolist())
    assert "40 of 100 upper capsules" in svg
    assert "all routing weights are equal" in svg


def test_routing_of_a_stack(deep, source):
    found = routed(deep, one_image(source, 3))
    assert (found.lower_on.shape, found.upper_on.shape) == ((6,), (3,))
    assert found.place_weight.shape == (3, 6, 6)
    assert found.place_weight.mean((1, 2)) == pytest.approx(np.ones(3), rel=1e-4)
    assert len(elements(diagram.routing_diagram(found), class_="lower")) == 6


def test_a_wrong_image_number_is_one_clear_line(source):
    for number in (297, -1, 10**9):
        with pytest.raises(InputError, match="image must be"):
            one_image(source, number)


# Where the routing looks


def test_equal_weights_are_equal_everywhere(model):
    assert heat.over_pixels(model, np.ones((6, 6))) == pytest.approx(np.ones((28, 28)))


def test_a_position_is_seen_where_its_pixels_are(model):
    places = np.zeros((6, 6))
    places[0, 5] = 36.0
    pixels = heat.over_pixels(model, places)
    top_right = pixels[0, 26]  # seen by that position alone, in its row and column
    assert top_right == pixels.max()
    assert pixels[17:27, :27].max() == 0  # no position sees the last row and column
    assert pixels[:27, :10].max() == 0


def test_position_footprints_match_the_encoders_gradient(model, source):
    x = model.tensor(source.batch([0])).requires_grad_()
    model.autoencoder.code_logits(x)[0, :, 2, 4].sum().backward()
    touched = (x.grad[0, 0] != 0).numpy()
    seen = heat.footprint(6, 9, 28)[2][:, None] * heat.footprint(6, 9, 28)[4][None] > 0
    assert (touched <= seen).all()
    assert touched.sum() > 0.95 * seen.sum()


def test_colours_follow_the_weight():
    low, even, high = heat.colour(np.array([0.5, 1.0, 1.5]), 0.5)
    assert low[2] > low[0]  # blue
    assert high[0] > high[2]  # orange
    assert np.ptp(even) == 0
    assert heat.span_for(np.array([0.83, 1.1])) == 0.2
    assert np.array_equal(heat.colour(np.array([9.0]), 0.5)[0], high)


def test_heat_picture(model, view, tmp_path):
    heat.write_heat(model, view, tmp_path / "heat.png")
    picture = np.asarray(Image.open(tmp_path / "heat.png"))
    assert picture[64:288:8, 24:248:8, 0] / 255 == pytest.approx(view.image[..., 0], abs=0.003)
    places = view.place_weight[view.winner]
    squares = picture[64 + 18 : 288 : 37, 276 + 18 : 500 : 37][:6, :6] / 255
    assert squares == pytest.approx(heat.colour(places, heat.span_for(places)), abs=0.003)


# Figure 2


@pytest.mark.parametrize("which", ["model", "deep"])
def test_architecture_says_the_real_sizes(which, request):
    network = request.getfixturevalue(which)
    svg = architecture.architecture(network)
    text = " ".join(ET.fromstring(svg).itertext())
    for words in ("28x28x1", "20x20x8", "6x6x8", "36 x 8 neurons", "[9, 9, 1, 8]", "[9, 9, 8, 8]"):
        assert words in text
    for layer in network.stack:
        assert f"{layer.upper[0]} x {layer.upper[1]} neurons" in text
        assert f"W: {layer.lower[0]}x{layer.upper[0]} of {layer.upper[1]}x{layer.lower[1]}" in text
    steps = 3 + len(network.stack)
    assert len(elements(svg, data_role="up")) == len(elements(svg, data_role="down")) == steps
    counted = sum(sum(stage.weights) for stage in architecture.stages_of(network))
    assert counted == sum(p.numel() for p in network.parameters() if p.requires_grad)
    assert f"{counted:,} parameters" in text


def test_architecture_shows_the_images_given(model, source):
    svg = architecture.architecture(model, source.batch([0])[0] / 255, model.sample(1).images[0])
    assert len(list(ET.fromstring(svg).iter(f"{SVG}image"))) == 2


# Traversals


@pytest.mark.parametrize("axes", ["neurons", "principal"])
def test_traversal_sweeps_one_number_and_keeps_the_rest(model, axes):
    found = traverse(model, 2, axes, steps=5)
    assert found.images.shape == (6, 5, 28, 28, 1)
    assert sorted(found.number) == list(range(6))
    assert (np.diff(found.change) <= 0).all()
    assert found.sigma.tolist() == [-2.5, -1.25, 0, 1.25, 2.5]
    mean = painted(model, 2, model.prior.centre[2][None])[0]
    for r in range(6):
        assert found.images[r, 2] == pytest.approx(mean, abs=1e-5)
        axis = directions(model, 2, axes)[found.number[r]]
        end = painted(model, 2, (model.prior.centre[2] + 2.5 * axis)[None])[0]
        assert found.images[r, 4] == pytest.approx(end, abs=1e-5)
    wanted = np.sqrt(np.square(found.images - mean).mean((1, 2, 3, 4)))
    assert found.change == pytest.approx(wanted, rel=1e-4)


def test_directions_are_standard_deviations_of_the_prior(model):
    covariance = model.prior.axes[1] @ model.prior.axes[1].T
    neurons = directions(model, 1, "neurons")
    assert torch.allclose(neurons, torch.diag(covariance.diagonal().sqrt()), rtol=1e-4)
    lengths = directions(model, 1, "principal").norm(dim=-1)
    assert (lengths.diff() <= 1e-5).all()


def strokes(wide, lean):
    y, x = np.mgrid[0:28, 0:28] - 13.5
    return (np.clip(wide / 2 + 0.5 - np.abs(x + y * np.tan(np.radians(lean))), 0, 1) * (np.abs(y) < 10))[
        ..., None
    ]


def test_labels_name_what_was_measured():
    spread = {"thickness": 0.5, "slant": 4.0, "width": 1.0, "height": 1.0}
    leaning = _label(np.stack([strokes(3, a) for a in np.linspace(20, -20, 11)]), spread)
    assert (leaning.measure, leaning.words) == ("slant", "leans right → leans left")
    thicker = _label(
        np.stack([strokes(w, 0) for w in np.linspace(2, 6, 11)]), {"thickness": 0.5, "slant": 4.0}
    )
    assert (thicker.measure, thicker.words) == ("thickness", "thinner → thicker")
    assert _label(np.stack([strokes(w, 0) for w in np.linspace(3, 3.2, 11)]), spread) is None  # too small
    back_and_forth = [strokes(3, 20 * np.sin(a)) for a in np.linspace(0, 9, 11)]
    assert _label(np.stack(back_and_forth), spread) is None
    assert (
        _label(np.stack([strokes(3, a) for a in np.linspace(20, -20, 11)]), {}) is None
    )  # nothing measurable


def test_labels_stand_at_their_rows(model, monkeypatch):
    spread = dict.fromkeys(MEASURES, 1e-3)  # so small that every change is large
    monkeypatch.setattr("capspoe.figures.traversal._spread", lambda *_: spread)
    found = traverse(model, 0)
    assert any(found.label)
    for row, label in zip(found.images, found.label, strict=True):
        assert label == _label(row, spread)
        if label:
            values = MEASURES[label.measure](row)
            assert label.effect * np.sign(label.correlation) == pytest.approx(1e3 * (values[-1] - values[0]))


def test_traversal_picture_holds_its_images(model, tmp_path):
    found = traverse(model, 1, steps=5)
    write_traversal(found, tmp_path / "t.png")
    picture = np.asarray(Image.open(tmp_path / "t.png"))
    for r, k in ((0, 0), (5, 4), (3, 2)):
        x, y = 96 + k * 60, 86 + r * 60
        assert picture[y : y + 56 : 2, x : x + 56 : 2, 0] / 255 == pytest.approx(
            found.images[r, k, ..., 0], abs=0.003
        )


@pytest.mark.parametrize("capsule", [4, -1, 10**9])
def test_a_wrong_capsule_is_refused(model, capsule):
    with pytest.raises(InputError, match="capsule must be"):
        traverse(model, capsule)


# Reconstructions, interpolation, gallery


def test_reconstructions(model, source, tmp_path):
    images = source.batch(np.arange(5))
    found = rec.reconstructions(model, images)
    assert found.images.shape == (4, 5, 28, 28, 1)
    assert found.images[0] == pytest.approx(images / 255, abs=1e-6)
    assert found.images[1] == pytest.approx(model.reconstruct(images, through="autoencoder"), abs=1e-5)
    assert found.images[2] == pytest.approx(model.reconstruct(images), abs=1e-5)
    assert found.error[0].tolist() == [0] * 5
    assert found.error[2] == pytest.approx(np.square(found.images[2] - found.images[0]).mean((1, 2, 3)))
    assert found.on.tolist() == model.encode(images).on.argmax(-1).tolist()
    rec.write_reconstructions(found, tmp_path / "r.png")
    picture = np.asarray(Image.open(tmp_path / "r.png"))
    x, y = 136 + 3 * 92, 74 + 2 * 110
    assert picture[y : y + 84 : 3, x : x + 84 : 3, 0] / 255 == pytest.approx(
        found.images[2, 3, ..., 0], abs=0.003
    )


def test_all_capsules_are_their_sum(model, source):
    x = model.tensor(source.batch([1]))
    with torch.no_grad():
        c, z = model.top(model.autoencoder.encode(x))
        wanted = model.array(model.paint(z, c))
    assert rec.reconstructions(model, source.batch([1])).images[3] == pytest.approx(wanted, abs=1e-5)


def test_interpolation_goes_from_one_reconstruction_to_the_other(model, source, tmp_path):
    images = source.batch(np.arange(60))
    encoded = model.encode(images)
    (a, b), *_ = interpolation.distant_pairs(encoded.on, encoded.hidden, 1)
    way = interpolation.interpolate(model, images[a], images[b], steps=5)
    assert way.capsule == encoded.on[a].argmax() == encoded.on[b].argmax()
    ends = model.reconstruct(images[[a, b]])
    assert way.images[0] == pytest.approx(ends[0], abs=1e-4)
    assert way.images[-1] == pytest.approx(ends[1], abs=1e-4)
    assert way.ends == pytest.approx(images[[a, b]] / 255, abs=1e-6)
    interpolation.write_interpolations([way], tmp_path / "i.png")
    assert Image.open(tmp_path / "i.png").size[0] > 7 * 84


def test_images_of_two_capsules_have_no_way_between_them(model, source):
    images = source.batch(np.arange(60))
    on = model.encode(images).on.argmax(-1)
    other = int(np.flatnonzero(on != on[0])[0])
    with pytest.raises(InputError, match=f"capsule {on[0]} is on for the first image and {on[other]}"):
        interpolation.interpolate(model, images[0], images[other])
    way = interpolation.interpolate(model, images[0], images[other], capsule=1)
    assert way.capsule == 1


def test_gallery(model, source, tmp_path):
    encoded = model.encode(source.images().pixels)
    found = gallery.gallery(model, source, encoded, count=3)
    on = encoded.on.argmax(-1)
    assert found.share == pytest.approx(np.bincount(on, minlength=4) / len(source))
    for j in range(4):
        rows = np.flatnonzero(on == j)
        assert found.claimed[j] == pytest.approx(source.batch(rows[:3]) / 255, abs=1e-6)
        assert found.mean[j] == pytest.approx(painted(model, j, model.prior.centre[j][None])[0], abs=1e-6)
        if len(rows):
            wanted = np.bincount(source.labels[rows], minlength=10) / len(rows)
            assert found.label_share[j] == pytest.approx(wanted)
            assert gallery.commonest(found, j)[0] == (
                source.classes[wanted.argmax()],
                pytest.approx(wanted.max()),
            )
    gallery.write_gallery(found, tmp_path / "g.png")
    assert Image.open(tmp_path / "g.png").mode == "RGB"


def test_labels_may_be_far_apart(model, source):
    far = SimpleNamespace(batch=source.batch, labels=np.array([7, 2**31 - 1, 7]), classes=None)
    encoded = model.encode(source.batch([0, 1, 2]))
    encoded.on[:] = np.eye(4)[2]
    found = gallery.gallery(model, far, encoded)
    assert gallery.commonest(found, 2) == [("7", pytest.approx(2 / 3)), ("2147483647", pytest.approx(1 / 3))]


def test_gallery_of_a_capsule_that_claims_nothing(model, source, tmp_path):
    encoded = model.encode(source.images().pixels)
    encoded.on[:] = np.eye(4)[0]
    found = gallery.gallery(model, source, encoded)
    assert found.share.tolist() == [1, 0, 0, 0]
    assert len(found.claimed[2]) == 0
    assert gallery.commonest(found, 2) == []
    gallery.write_gallery(found, tmp_path / "g.png")


# Curves


def test_charts_are_the_metrics(run):
    stages = curves.read_metrics(run)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line for stage in stages.values() for line in stage] == lines
    by_title = {chart.title: chart for chart in curves.charts(stages)}
    assert len(by_title) == 5
    error = by_title["Stage 2: error of the code"]
    wanted = [line["reconstruction"] for line in lines if line["stage"] == "capsules-0"]
    assert error.series[0].values.tolist() == wanted
    use = by_title["Stage 2: share of use, a line a capsule"]
    assert len(use.series) == 4
    assert use.level == 0.25
    svg = curves.curves_document(curves.charts(stages))
    assert len(elements(svg, data_role="chart")) == 5
    assert len([e for e in elements(svg) if e.get("data-series")]) == 1 + 2 + 1 + 1 + 4


def test_a_line_stands_where_its_numbers_are():
    chart = curves.Chart("t", np.array([0, 50, 100]), [curves.Series("s", np.array([0.0, 5.0, 10.0]))])
    points = next(e for e in elements(curves.chart_document(chart)) if e.get("data-series")).get("points")
    xy = np.array([[float(v) for v in pair.split(",")] for pair in points.split()])
    assert np.allclose(np.diff(xy[:, 0]), np.diff(xy[:, 0])[0], atol=0.02)
    assert np.allclose(np.diff(xy[:, 1]), np.diff(xy[:, 1])[0], atol=0.02)
    assert np.diff(xy[:, 1])[0] < 0  # more is higher


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 0.055), (0, 4690), (0.0769, 0.44), (1, 1.0001)])
@pytest.mark.parametrize("logarithmic", [False, True])
def test_ticks_are_within(low, high, logarithmic):
    found = curves.ticks(max(low, 1e-3) if logarithmic else low, high, logarithmic)
    assert all(low - 1e-9 <= t <= high + 1e-9 for t in found)
    assert len(found) <= 8
    if not logarithmic:
        assert len(found) >= 2


def test_a_metrics_line_cut_short_is_left_out_and_a_damaged_one_named(run, tmp_path):
    good = (run / "metrics.jsonl").read_text()
    (tmp_path / "metrics.jsonl").write_text(good + '{"stage": "capsu')
    assert curves.read_metrics(tmp_path) == curves.read_metrics(run)
    (tmp_path / "metrics.jsonl").write_text("nonsense\n" + good)
    with pytest.raises(RunError, match="line 1"):
        curves.read_metrics(tmp_path)
    (tmp_path / "metrics.jsonl").write_text("[" * 100_000 + "\n" + good)
    with pytest.raises(RunError, match="line 1"):
        curves.read_metrics(tmp_path)
    assert curves.read_metrics(tmp_path / "nothing") == {}


@pytest.mark.parametrize(
    ("stage", "change"),
    [
        ("autoencoder", {"loss": None}),
        ("autoencoder", {"step": "soon"}),
        ("capsules-0", {"use": 1}),
        ("capsules-0", {"use": [1.0]}),
        ("capsules-0", {"baseline": []}),
        ("capsules-0", {"stage": "elsewhere"}),
        ("capsules-0", {"stage": 3}),
    ],
)
def test_a_metrics_line_without_its_numbers_is_named(run, tmp_path, stage, change):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    wrong = {**next(line for line in lines if line["stage"] == stage), **change}
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in [*lines, wrong, lines[-1]]))
    with pytest.raises(RunError, match=f"line {len(lines) + 1}$"):
        curves.read_metrics(tmp_path)


def test_a_stack_without_a_gate_below_has_no_temperature_there():
    line = {"step": 10, "reconstruction": 0.1, "baseline": 0.2, "confidence": 0.9, "temperature": 1.0}
    stages = {
        "capsules-0": [{"stage": "capsules-0", **line, "use": [0.9, 0.8]}],
        "capsules-1": [{"stage": "capsules-1", **line, "use": [0.5, 0.5]}],
    }
    titles = [chart.title for chart in curves.charts(stages)]
    assert titles.count("Stage 2, layer 1: temperature of the gate") == 0
    assert titles.count("Stage 2, layer 2: temperature of the gate") == 1


# Panels


def test_a_sheet_keeps_pixels_exact():
    image = np.random.default_rng(0).random((5, 7, 3))
    sheet = Sheet(60, 40)
    sheet.text(2, 4, "words")
    sheet.image(11, 13, image, scale=3)
    picture = sheet.render()
    assert picture.shape == (40, 60, 3)
    assert picture[13 : 13 + 15 : 3, 11 : 11 + 21 : 3] / 255 == pytest.approx(image, abs=0.003)
    assert (picture[:10, :30] < 100).any()  # the words
