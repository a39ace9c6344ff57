"""Variants of the capsules above one autoencoder."""

import itertools
from dataclasses import asdict

import numpy as np
import pytest
import torch
from benchmarks.pages import ladder as ladder_page
from benchmarks.quality import frozen, ladder, routing, variants
from sklearn.linear_model import Ridge

from capspoe.config import preset

QUICK = {
    "channels": 8,
    "layers": "4x6",
    "autoencoder_epochs": 1,
    "epochs": 1,
    "min_steps": 20,
    "limit": 300,
    "prior_components": 2,
}


@pytest.fixture
def bench(tmp_path, monkeypatch):
    for module in (frozen, variants):
        monkeypatch.setattr(module, "FOLDER", tmp_path)
    return variants.Workbench(preset("small", "digits").replace(**QUICK))


def test_variants_share_an_autoencoder_and_targets(bench, tmp_path):
    network = bench.train(bench.config)
    again = variants.Workbench(bench.config)
    assert again.targets.groups.tolist() == bench.targets.groups.tolist()
    for one, other in zip(network.codec.parameters(), again.frozen.network.codec.parameters(), strict=True):
        torch.testing.assert_close(one, other)
    assert len(list(tmp_path.glob("*.safetensors"))) == 1
    scores = bench.recognition(network)
    assert 0.1 < scores["purity"] <= 1
    assert 0.3 < scores["probe"] <= 1
    # Damage hides a digit from the gate, and a pair has two labels to get right.
    assert scores["gate"]["missing side"] < scores["gate"]["clean"]
    assert scores["gate"]["pairs"] < scores["gate"]["clean"]
    assert set(scores["damaged probe"]) == {"hole", "missing side", "fragments"}


def test_tied_filters_stay_tied_and_are_stored(bench):
    config = bench.config.replace(upsampling="mirrored")
    codec = frozen.with_trained_codec(config, "tied").codec
    assert codec.up_1.weight is codec.down_2.weight
    again = frozen.with_trained_codec(config, "tied").codec
    assert again.up_2.weight is again.down_1.weight
    torch.testing.assert_close(again.state_dict(), codec.state_dict())
    untied = frozen.with_trained_codec(config).codec
    assert (untied.up_1.weight != untied.down_2.weight).any()


def test_a_steep_autoencoder_keeps_a_fifth_of_negative_values(bench):
    plain = frozen.with_trained_codec(bench.config).codec
    steep = frozen.with_trained_codec(bench.config, "steep").codec
    steep.load_state_dict(plain.state_dict())
    with torch.no_grad():
        for codec in (plain, steep):
            codec.down_1.weight.zero_()
            codec.down_1.bias.fill_(-1)
            codec.down_2.bias.zero_()
        image = torch.rand(1, *plain.image[::-1])
        small, large = plain.code_logits(image), steep.code_logits(image)
    torch.testing.assert_close(large, 20 * small)
    assert small.abs().max() > 0


def test_a_control_replaces_the_weights(bench):
    config = bench.config.replace(epochs=1)
    layer = routing.controlled_layer(config, bench.frozen.network.codec.capsules, "shuffled")
    x = torch.from_numpy(bench.frozen.codes[:7]).float()
    c, z = layer(x)
    own, _ = super(routing.ControlledLayer, layer).forward(x)
    torch.testing.assert_close(c.sort(2).values, own.sort(2).values)
    assert (c != own).any()
    torch.testing.assert_close(z, layer.preactivation(x, c))
    before = layer.w_JNMI.detach().clone()
    assert bench.train(config, layer).top is layer
    assert (layer.w_JNMI != before).any()


def test_the_probe_is_ridge_regression(rng):
    labels = torch.arange(300) % 5
    x = torch.randn(300, 8, generator=rng) + 2 * torch.eye(8)[labels]
    z = ((x - x[:200].mean(0)) / x[:200].std(0)).numpy()
    one_hot = np.eye(5)[labels]
    model = Ridge(alpha=variants.RIDGE * 200).fit(z[:200], one_hot[:200])
    expected = (model.predict(z[200:]).argmax(1) == labels[200:].numpy()).mean()
    assert variants.RidgeProbe(x[:200], labels[:200]).accuracy(x[200:], labels[200:]) == pytest.approx(expected)


def test_a_summary_has_means_and_half_ranges():
    rows = []
    for seed, fid in enumerate((8.0, 9.0)):
        scores = {"fid": fid, "recall": 0.8, "purity": 0.9, "probe": 0.93}
        scores["gate"] = {"clean": 0.9, "hole": 0.7, "missing side": 0.6, "fragments": 0.5 + 0.1 * seed, "pairs": 0.4}
        scores["damaged probe"] = {"hole": 0.8, "missing side": 0.7, "fragments": 0.6}
        rows.append({"data": "mnist", "training": "default", "variant": "routing", "seed": seed} | scores)
    rows.append(rows[0] | {"training": "contrastive divergence", "fid": 99.0})
    lines = routing.summary(rows).splitlines()
    first = lines.index("mnist, default")
    assert lines[first + 4] == "| routing | 2 | 8.5 ± 0.5 | 0.800 ± 0.000 | 0.900 ± 0.000 | 0.930 ± 0.000 |"
    second = lines.index("mnist, default", first + 1)
    assert lines[second + 4] == "| routing | 2 | 0.900 | 0.700 | 0.600 | 0.550 | 0.400 | 0.800 | 0.700 | 0.600 |"


def test_the_ladder_leads_from_the_paper_to_the_default():
    """One departure on each rung; what is left at the top is set alike for all rungs, or not used."""
    rungs = list(ladder.rungs("mnist").values())
    assert rungs[0] == ladder.literal("mnist")
    for below, above in itertools.pairwise(rungs):
        assert below != above
    top, default = asdict(rungs[-1]), asdict(ladder.default("mnist"))
    different = {name for name in top if top[name] != default[name]}
    assert different == {"epochs", "recognition_steps"}


def test_each_removal_differs_from_the_default():
    configs = ladder.removals("mnist")
    default = configs.pop("the default")
    assert len(configs) == len(ladder.DEPARTURES)
    assert all(config != default for config in configs.values())
    assert configs["without fitted prior"] == default.replace(prior="standard")
    # Without targets there are no chains, so the learning rate is that of contrastive divergence.
    assert configs["without gate targets"] == default.replace(gate_targets="none", **variants.CD)
    assert configs["without low-rank start"] == default.replace(start="random")


def test_rungs_that_differ_in_sampling_share_a_network(bench):
    rungs = ladder.Ladder("digits", 1)
    trained = rungs.trained(bench, bench.config)
    assert rungs.trained(bench, bench.config.replace(prior="standard", recognition_steps=1)) is trained
    assert rungs.trained(bench, bench.config.replace(seed=1)).network is not trained.network
    assert trained.scores["energy"]["fid"] > 0


def test_removals_that_share_the_network_of_the_default_come_first(monkeypatch):
    climbed = []
    rungs = ladder.Ladder("mnist", 1)
    monkeypatch.setattr(rungs, "climb", lambda part, rung, config, seed: climbed.append((part, rung)))
    ladder.climb_all(rungs, 0)
    removals = [rung for part, rung in climbed if part == "removals"]
    shared = ["the default", *(f"without {name}" for name in ladder.SAMPLING)]
    assert set(removals[:4]) == set(shared)
    assert set(removals) == set(ladder.removals("mnist"))
    climbed.clear()
    ladder.climb_all(rungs, 0, ["+ gate", "without biases"])
    assert climbed == [("ladder", "+ gate"), ("removals", "without biases")]


def ladder_rows():
    rows = []
    for part, rung, fid in (
        ("ladder", "the paper", 700.0),
        ("ladder", "+ biases", 600.0),
        ("removals", "the default", 7),
        ("removals", "without x", 9),
    ):
        for seed in range(2):
            scores = {"drawn": {"fid": fid + seed, "recall": 0.5}, "purity": 0.9, "probe": 0.8}
            rows.append({"data": "mnist", "part": part, "rung": rung, "seed": seed, **scores})
    rows.append({"data": "mnist", "part": "removals", "rung": "without y", "seed": 0, "diverged": "at step 3"})
    return rows


def test_the_table_of_the_ladder():
    lines = ladder_page.table(ladder_rows(), "mnist").splitlines()
    assert lines[2] == "| the paper | 2 | 700.5 ± 0.5 | 0.500 ± 0.000 | 0.900 ± 0.000 | 0.800 ± 0.000 |  |"
    assert lines[-1] == "| without y | 1 | diverged | diverged | diverged | diverged | diverged |"


def test_the_figure_of_the_ladder_shows_every_seed():
    (axes, *_) = ladder_page.draw(ladder_rows()).axes
    dots = [x for line in axes.lines if line.get_marker() == "o" for x in line.get_xdata()]
    assert sorted(dots) == [7, 8, 9, 10, 600, 601, 700, 701]
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "the paper",
        "+ biases",
        "the default",
        "without x",
        "without y",
    ]
