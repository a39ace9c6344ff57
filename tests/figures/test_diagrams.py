"""Routing, architecture and curves: what is drawn are the model's own numbers."""

import json
import math
import xml.etree.ElementTree as ET

import numpy as np
import pytest
import torch

from capspoe import train
from capspoe.figures import architecture, curves, routing
from capspoe.figures.sheet import BAR, svg
from capspoe.model.layer import CapsuleLayer
from capspoe.model.network import Network
from capspoe.model.pixels import Pixels
from capspoe.model.routing import squash_length
from runs import QUICK


@pytest.fixture(scope="module")
def view(model, dataset):
    return routing.routed(model, dataset.batch([0]))


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    settings = QUICK | {"layers": "6x5,3x4", "epochs": 1, "autoencoder_epochs": 1, "checkpoint_seconds": 1e9}
    return train("digits", tmp_path_factory.mktemp("deep") / "run", quiet=True, **settings)


def text_of(figure):
    return " ".join(ET.fromstring(svg(figure).encode()).itertext())


# Figure 1: routing


@torch.no_grad()
def test_routed_holds_the_models_numbers(model, dataset, view):
    up = model.up(model.tensor(dataset.batch([0])))
    assert view.weight == pytest.approx((up.c[0] / up.c[0].mean()).numpy(), rel=1e-4)
    assert view.lower_on == pytest.approx(squash_length(up.code)[0].numpy(), rel=1e-5)
    assert view.code_on.shape == (6, 6, 1)
    assert view.code_on.ravel() == pytest.approx(view.lower_on)
    assert view.upper_on == pytest.approx(up.on[0].numpy(), rel=1e-4)
    assert view.winner == int(up.winner)
    assert view.decoded[view.winner] == pytest.approx(model.reconstruct(dataset.batch([0]))[0], abs=1e-4)
    assert (view.image * 255).round().astype(np.uint8).tolist() == dataset.batch([0])[0].tolist()


def test_the_diagram_shows_the_capsules_of_the_top_layer(deep, dataset):
    found = routing.routed(deep, dataset.batch([3]))
    assert (found.lower_on.shape, found.upper_on.shape) == ((6,), (3,))
    assert "6 lower capsules" in text_of(routing.draw_routing(found))


def opacities(collection):
    return collection.get_facecolor()[:, 3]


def test_the_diagram_shades_the_capsules_by_their_probability_and_decodes_them(view):
    figure = routing.draw_routing(view, "test image 0", "7")
    code, _, lower, upper = figure.axes[0].collections
    assert opacities(code) == pytest.approx(view.code_on.ravel())
    assert opacities(lower) == pytest.approx(view.lower_on)
    assert opacities(upper) == pytest.approx(view.upper_on[view.ranking])
    assert (np.diff(view.upper_on[view.ranking]) <= 0).all()
    _, *decoded = figure.axes[0].images
    for j, image in zip(view.ranking, decoded, strict=True):
        assert np.asarray(image.get_array())[..., 0] / 255 == pytest.approx(view.decoded[j, ..., 0], abs=0.003)
    for words in (f"Capsule {view.winner} is on", "labelled 7", "Routing of test image 0"):
        assert words in text_of(figure)


def test_the_lines_are_the_largest_weights(view):
    lines = [p for p in routing.draw_routing(view).axes[0].patches if len(p.get_path().vertices) == 4]
    found = {}
    for curve in lines:
        (x, _), *_, (to_x, _) = curve.get_path().vertices
        rank, i = round((to_x - 40) * 4 / 1120 - 0.5), round((x - 40) * 36 / 1120 - 0.5)
        found.setdefault(view.ranking[rank], {})[i] = curve.get_alpha()
    for j, weight in enumerate(view.weight):
        won = j == view.winner
        assert set(found[j]) == set(np.argsort(weight)[-9 if won else -6 :])  # of 36, at most a quarter
        share = [min(max((1 + math.log2(w)) / 2, 0), 1) for w in weight]  # half to twice, for all images
        assert found[j] == {i: pytest.approx((0.9 if won else 0.4) * share[i]) for i in found[j]}


def test_the_diagram_says_how_far_routing_moves_the_weights(view):
    weight = np.ones((4, 36))
    weight[view.winner, :18], weight[view.winner, 18:] = 0.75, 1.25
    assert "moves a weight by 25% of the uniform weight" in text_of(
        routing.draw_routing(view._replace(weight=weight))
    )


def test_the_largest_weights_are_drawn():
    weight = np.random.default_rng(0).random(144)
    assert weight[routing.largest(weight, 10)].tolist() == sorted(weight)[-10:]
    assert len(routing.largest(weight[:12], 10)) == 3
    assert len(routing.largest(np.ones(144), 10)) == 0  # all equal: none is the largest


def test_of_many_capsules_the_most_probable_are_drawn(view):
    on = np.random.default_rng(0).dirichlet(np.ones(100))
    many = view._replace(upper_on=on, weight=np.ones((100, 36)), decoded=np.zeros((100, 28, 28, 1)))
    figure = routing.draw_routing(many)
    assert opacities(figure.axes[0].collections[-1]) == pytest.approx(np.sort(on)[::-1][:40])
    assert "the 40 most probable of 100 upper capsules" in text_of(figure)
    assert "all routing weights are equal" in text_of(figure)


# Figure 2: architecture


@pytest.mark.parametrize("which", ["model", "deep"])
def test_the_architecture_has_the_real_sizes(which, request):
    network = request.getfixturevalue(which)
    sample = network.sample(1).images[0]
    figure = architecture.draw_architecture(network, sample, sample)
    text = text_of(figure)
    for words in ("28x28x1", "20x20x8", "6x6x8", "36 x 8 neurons", "[9, 9, 1, 8]", "[9, 9, 8, 8]"):
        assert words in text
    for layer in network.stack:
        assert f"{layer.upper[0]} x {layer.upper[1]} neurons" in text
        assert f"W: {layer.lower[0]}x{layer.upper[0]} of {layer.upper[1]}x{layer.lower[1]}" in text
    counted = sum(sum(state.parameters) for state in architecture.states_of(network))
    assert counted == sum(p.numel() for p in network.parameters() if p.requires_grad)
    assert f"{counted:,} parameters" in text
    assert len(figure.axes[0].images) == 2
    assert len(architecture.draw_architecture(network, sample).axes[0].images) == 1


def test_pixels_are_no_stage_of_training():
    network = Network(Pixels((8, 8, 1)), [CapsuleLayer((4, 16), (3, 2))])
    text = text_of(architecture.draw_architecture(network, np.zeros((8, 8, 1), np.float32)))
    assert "1  trained as a product of experts" in text
    assert "autoencoder" not in text


# Curves


def test_the_curves_are_the_metrics(run):
    stages = curves.read_metrics(run)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line for stage in stages.values() for line in stage] == lines
    charts = {chart.title: chart for chart in curves.charts(stages)}
    second = [line for line in lines if line["stage"] == "capsules-0"]
    error = charts["Stage 2: reconstruction error of the code"]
    assert error.lines["by the capsules"].tolist() == [line["reconstruction"] for line in second]
    use = charts["Stage 2: use of each capsule"]
    assert use.level == 0.25
    axes = curves.draw_charts([use, error], columns=2).axes
    drawn = np.array([line.get_ydata() for line in axes[0].lines[:4]])
    assert drawn.T.tolist() == [line["use"] for line in second]
    assert axes[1].lines[0].get_color() == BAR
    assert axes[1].lines[0].get_xdata().tolist() == [line["step"] for line in second]


def test_persistent_chains_have_a_curve_of_the_likelihood():
    line = {"reconstruction": 0.1, "baseline": 0.2, "confidence": 0.9, "temperature": 1.0, "use": [0.5, 0.5]}
    bounds = [{"log_likelihood_lower": -510.0, "log_likelihood_upper": -505.0, "step": step} for step in (10, 20)]
    charts = {chart.title: chart for chart in curves.charts({"capsules-0": [line | step for step in bounds]})}
    chart = charts["Stage 2: log-likelihood of a code, in nats"]
    assert {name: values.tolist() for name, values in chart.lines.items()} == {
        "lower estimate": [-510.0, -510.0],
        "upper estimate": [-505.0, -505.0],
    }
    low, high = curves.draw_charts([chart]).axes[0].get_ylim()
    assert low < -510 < -505 < high < 0


def test_only_a_gate_that_anneals_has_a_temperature():
    line = {"reconstruction": 0.1, "baseline": 0.2, "confidence": 0.9}
    steps = [{"step": 10, "temperature": 30.0}, {"step": 20, "temperature": 1.0}]
    below, above = ([line | step | {"use": use} for step in steps] for use in ([0.9, 0.8], [0.5, 0.5]))
    titles = [chart.title for chart in curves.charts({"capsules-0": below, "capsules-1": above})]
    assert "Stage 2, layer 1: temperature of the gate" not in titles  # no gate there
    assert "Stage 2, layer 2: temperature of the gate" in titles
    assert "Stage 2, layer 1: mean probability of each capsule" in titles
    assert not any("temperature" in chart.title for chart in curves.charts({"capsules-0": above[:1]}))


def test_lines_that_cannot_be_read_are_left_out(run, tmp_path):
    text = (run / "metrics.jsonl").read_text()
    wrong = [
        "3",
        '{"stage": "elsewhere", "step": 1}',
        '{"stage": "capsules-0", "step": "soon"}',
        '{"stage": "capsu',
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join([*wrong[:2], *text.splitlines(), *wrong[2:]]))
    assert curves.read_metrics(tmp_path) == curves.read_metrics(run)
    assert curves.read_metrics(tmp_path / "nothing") == {}


@pytest.mark.parametrize("change", [{"use": 1}, {"use": [1.0]}, {"baseline": []}, {"confidence": None}])
def test_a_stage_with_damaged_metrics_has_no_charts(run, change):
    stages = curves.read_metrics(run)
    stages["capsules-0"] = [*stages["capsules-0"], stages["capsules-0"][-1] | change]
    titles = ["Stage 1: loss of the autoencoder", "Stage 3: loss of the recognition network"]
    assert [chart.title for chart in curves.charts(stages)] == titles
