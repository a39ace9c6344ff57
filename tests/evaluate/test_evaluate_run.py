"""The whole command on a run of two seconds."""

import json
import shutil
import signal

import numpy as np
import pytest
import torch
from short import shortened

import capspoe as package
from capspoe import CapsulePoE, checkpoint
from capspoe.cli import main
from capspoe.config import preset
from capspoe.errors import DataError, RunError
from capspoe.evaluate import ablation, baselines, material, quick_scores, scoring
from capspoe.evaluate.baselines import literal_config, sample_rbm, variant
from capspoe.evaluate.cache import Cache
from capspoe.evaluate.features import Labelled, feature_net, see
from capspoe.evaluate.material import Material, codes_of, hidden_of
from capspoe.evaluate.run import evaluate
from capspoe.evaluate.scoring import yardstick_for
from capspoe.evaluate.table import lines
from runs import QUICK, files_of
from together import peers, torchrun
from together import run as in_processes

SMALL = QUICK | {"size": 12}


@pytest.fixture(scope="module")
def run(tmp_path_factory, cache):
    folder = tmp_path_factory.mktemp("run") / "digits"
    package.train("digits", folder, quiet=True, **SMALL)
    return folder


@pytest.fixture(scope="module")
def full(run):
    return evaluate(run, samples=60, quiet=True)


def test_every_row_is_there_and_sensible(full):
    names = [row["name"] for row in full["rows"]]
    for word in (
        "training images", "autoencoder reconstructions", "capspoe", "paper's sampling", "Gibbs", "to the letter",
        "binary neurons", "one routing iteration", "RBM on the codes", "k-means", "Gaussian mixture", "VAE",
        "BernoulliRBM",
    ):  # fmt: skip
        assert any(word in name for name in names), word
    assert len(set(names)) == len(names)
    for row in full["rows"]:
        assert "failed" not in row, row
        assert row["fid"] >= 0
        assert np.isfinite(row["kid"])
        assert all(0 <= row[k] <= 1 for k in ("precision", "recall", "coverage"))
        assert row["purity"] is None or 0 < row["purity"] <= 1
        assert row["probe"] is None or 0 < row["probe"] <= 1
    fids = {row["name"]: row["fid"] for row in full["rows"]}
    assert fids["floor: training images"] == min(fids.values())


def test_the_other_parts(full):
    assert full["data"] == {"name": "digits", "image": [12, 12, 1], "labels": True}
    assert full["feature_net"]["test_accuracy"] > 0.8
    assert len(full["feature_net"]["sha256"]) == 64
    assert full["specialisation"]["capsules"] == 4
    assert sum(map(sum, full["specialisation"]["table"])) == len(package.data.load("digits", "test").pixels)
    assert set(full["instantiation"]["axes"]["measures"]) == {"thickness", "slant", "width", "height"}
    assert set(full["probe"]) >= {"raw pixels", "autoencoder codes", "hidden numbers"}
    assert full["probe"]["raw pixels"] > 0.85
    p = full["likelihood"]
    assert p["log_p_lower"] <= p["log_p_upper"] + 1
    assert p["units"] == 32


def test_it_is_written_and_a_second_time_is_instant(run, full, monkeypatch):
    assert json.loads((run / "evaluation.json").read_text()) == full
    monkeypatch.setattr(CapsulePoE, "load", lambda folder: pytest.fail("computed again"))
    (run / "evaluation.json").unlink()
    assert evaluate(run, samples=60, quiet=True) == full
    assert (run / "evaluation.json").exists()


def test_an_interrupted_evaluation_keeps_its_parts(run, full, tmp_path, monkeypatch):
    shutil.copytree(run, tmp_path / "run")
    (all_of_it,) = (tmp_path / "run" / "evaluation-cache").glob("all-*.json")
    all_of_it.unlink()
    (kept,) = (tmp_path / "run" / "evaluation-cache").glob("likelihood-*.json")
    kept.unlink()
    monkeypatch.setattr(baselines, "variant", lambda *a, **k: pytest.fail("computed again"))
    again = evaluate(tmp_path / "run", samples=60, quiet=True)
    assert again["rows"] == full["rows"]
    assert again["likelihood"] == full["likelihood"]


def without_seconds(value):
    if isinstance(value, dict):
        return {name: without_seconds(v) for name, v in value.items() if name != "seconds"}
    return [without_seconds(v) for v in value] if isinstance(value, list) else value


SHARED = """
from capspoe.evaluate.cache import Cache
from capspoe.evaluate.run import evaluate
from capspoe.evaluate.scoring import yardstick_for
put = Cache.put
Cache.put = lambda cache, name, value: (print(name), put(cache, name, value))
evaluate({folder!r}, samples=60, quiet=True)
"""


def without(run, folder, *names):
    """A copy of an evaluated run in which these parts are still to be computed."""
    shutil.copytree(run, folder, ignore=shutil.ignore_patterns(*(f"{name}-*" for name in ("all", *names))))


def aborted_at_the_end(code, errors):
    """Seen once, after all parts were computed and kept: the interpreter aborts as it ends, we do not know why."""
    return code == -signal.SIGABRT and errors == "terminate called without an active exception\n"


def test_processes_share_the_parts_and_come_to_the_same_result(run, full, tmp_path, monkeypatch):
    folder, names = (
        tmp_path / "run",
        ["capspoe", "likelihood", "linear-probe", "literal", "one-routing-iteration"],
    )
    without(run, folder, *names)
    monkeypatch.setenv("CAPSPOE_DATA", str(tmp_path / "cache"))  # the feature net is not there yet
    ended = peers(2, shortened(SHARED.format(folder=str(folder))))
    assert all(code == 0 or aborted_at_the_end(code, errors) for code, _, errors in ended), ended
    ours, theirs = (out.split() for _, out, _ in ended)
    assert len(ours) > 1
    assert len(theirs) > 0
    assert sorted(ours + theirs) == ["all", *names]
    assert ours[-1] == "all"
    together = json.loads((folder / "evaluation.json").read_text())
    assert without_seconds(together) == without_seconds(full)
    assert len(list((tmp_path / "cache" / "features").glob("*.safetensors"))) == 1


def test_a_process_that_ends_is_told_of_and_what_was_finished_stays(run, full, tmp_path):
    folder = tmp_path / "run"
    without(run, folder, "likelihood")
    ends = "import os\nfrom capspoe.evaluate import parts\nparts.likelihood = lambda *a: os._exit(7)\n"
    ended = peers(2, shortened(ends + SHARED.format(folder=str(folder))))
    assert sorted(code for code, _, _ in ended) == [1, 7]
    (said,) = (errors for code, _, errors in ended if code == 1)
    assert "stopped because another process of this run has ended; run the same command again" in said
    assert without_seconds(evaluate(folder, samples=60, quiet=True)) == without_seconds(full)


def test_a_changed_number_in_the_cache_is_not_believed(tmp_path):
    cache = Cache(tmp_path, "key")
    cache.put("part", {"fid": 12.5})
    assert cache.get("part") == {"fid": 12.5}
    assert Cache(tmp_path, "of other weights").get("part") is None
    cache.path("part").write_text(cache.path("part").read_text().replace("12.5", "2.5"))
    assert cache.get("part") is None


def test_other_weights_are_computed_anew(run, full, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    model = CapsulePoE.load(run)
    with torch.no_grad():
        model.top.w_JNMI.mul_(1.1)
    model.save(tmp_path / "run")
    other = evaluate(tmp_path / "run", quick=True, samples=60, quiet=True)
    assert other["rows"][3]["name"] == "capspoe"
    assert other["rows"][3]["fid"] != full["rows"][3]["fid"]
    assert not any("VAE" in row["name"] for row in other["rows"])


def test_the_command_prints_a_table(run, full, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    main(["evaluate", str(run), "--samples", "60"])
    said = capsys.readouterr().out
    assert "k-means + PCA on the codes" in said
    assert "nats per code" in said
    assert said.splitlines()[-1] == str(run / "evaluation.json")


def test_without_labels_it_says_so(tmp_path, cache):
    pixels, _ = package.data.load("digits", "train")
    np.save(tmp_path / "mine.npy", pixels[:200])
    package.train(tmp_path / "mine.npy", tmp_path / "run", quiet=True, **(SMALL | {"epochs": 2}))
    result = evaluate(tmp_path / "run", quick=True, samples=40, quiet=True)
    assert result["rows"] == []
    assert result["feature_net"] is None
    assert result["specialisation"]["capsules"] == 4
    assert "log_p_lower" in result["likelihood"]
    assert any("no labels" in line for line in lines(result))
    done = in_processes(torchrun(2, "evaluate", tmp_path / "run", "--quick", "--samples", 50))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("The data has no labels") == 1
    assert done.stdout.splitlines()[-1] == str(tmp_path / "run" / "evaluation.json")


def material_of(path, labels, **changes):
    """Of digits with these labels, as an untrained network has it."""
    pixels, _ = package.data.load("digits", "train")
    np.savez(path, images=pixels[: len(labels)], labels=labels)
    config = preset("small", str(path)).replace(size=12, channels=8, layers="4x6", **changes)
    return Material(CapsulePoE(config, (12, 12, 1)), 10, 0)


@pytest.mark.parametrize(
    ("labels", "limit", "message"),
    [
        (np.arange(30) % 10, None, r"1 test images are too few .* 10 or more"),
        (np.arange(200) % 10, 15, "15 training .* 20 or more"),
        (np.arange(200) * 100_000, None, r"labels up to 19\d00000: .* below 10000"),
    ],
)
def test_images_that_cannot_be_scored_are_refused(tmp_path, labels, limit, message):
    with pytest.raises(DataError, match=message):
        material_of(tmp_path / "mine.npz", labels, limit=limit).check_enough()


def test_too_few_images_leave_nothing_behind(tmp_path, cache):
    pixels, _ = package.data.load("digits", "train")
    np.save(tmp_path / "mine.npy", pixels[:30])
    few = SMALL | {"autoencoder_epochs": 1, "epochs": 1}
    package.train(tmp_path / "mine.npy", tmp_path / "run", quiet=True, **few)
    with pytest.raises(DataError, match="1 test images are too few"):
        evaluate(tmp_path / "run", quick=True, quiet=True)
    assert not (tmp_path / "run" / "evaluation.json").exists()


def test_one_class_is_as_good_as_none(tmp_path, cache):
    path = tmp_path / "mine.npz"
    assert not material_of(path, np.zeros(300, np.int64)).labelled
    assert material_of(path, np.arange(300) // 150).labelled
    assert not material_of(path, np.arange(300) // 150, limit=100).labelled  # the first ones are of one class
    few = SMALL | {"epochs": 1, "limit": 100}
    package.train(path, tmp_path / "run", quiet=True, **few)
    assert evaluate(tmp_path / "run", quick=True, samples=40, quiet=True)["rows"] == []


def test_ablations_switch_one_thing_off_at_a_time(run, full, monkeypatch):
    changed = []

    def unchanged(model, codes, told, **changes):
        changed.append(changes)
        return model

    monkeypatch.setattr(baselines, "variant", unchanged)
    result = evaluate(run, samples=60, ablate=True, quiet=True)
    names = [row["name"] for row in result["rows"]]
    assert changed == [
        {"neighbours": 0},
        {"teach": 0.0},
        {"sharpness": 1.0},
    ]  # one iteration is among the baselines already
    assert len(names) == len(set(names))
    assert {*ablation.TRAINED, *ablation.DRAWN} <= set(names)
    own, narrow = (next(r for r in result["rows"] if r["name"] == n) for n in ("capspoe", "spread 1"))
    assert narrow["fid"] != own["fid"]
    assert narrow["purity"] == own["purity"]
    assert [row for row in result["rows"] if row in full["rows"]] == full["rows"]


def test_an_unfinished_run_is_refused(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    saved = checkpoint.newest(run)
    checkpoint.save(tmp_path / "run", checkpoint.State("capsules-0", 5), saved.weights, {})
    with pytest.raises(RunError, match="is not finished"):
        evaluate(tmp_path / "run")


def test_a_variant_shares_the_autoencoder_and_leaves_the_model_alone(run):
    model = CapsulePoE.load(run)
    before = files_of(run)
    codes = Material(model, 10, 0).train_codes[:128]
    weights = model.top.w_JNMI.clone()
    other = variant(model, codes, iterations=1, epochs=1)
    assert torch.equal(weights, model.top.w_JNMI)
    assert other.top.iterations == 1
    assert all(
        torch.equal(a, b)
        for a, b in zip(other.autoencoder.parameters(), model.autoencoder.parameters(), strict=True)
    )
    assert torch.equal(variant(model, codes, iterations=1, epochs=1).top.w_JNMI, other.top.w_JNMI)
    assert files_of(run) == before


def test_a_variant_without_changes_is_the_run(run):
    """The helper trains exactly as `capspoe train` does."""
    model = CapsulePoE.load(run)
    codes = Material(model, 10, 0).train_codes
    torch.testing.assert_close(variant(model, codes).top.w_JNMI, model.top.w_JNMI)


def test_literal_is_the_paper_at_the_runs_size(run):
    c = literal_config(CapsulePoE.load(run).config)
    assert (c.capsules.gate, c.capsules.neurons, c.capsules.bias, c.capsules.prior) == (
        "none", "binary", False, "standard",
    )  # fmt: skip
    assert (c.autoencoder.channels, c.capsules.layers, c.data.limit) == (8, "4x6", 256)
    assert c.autoencoder.code_noise == 0


def test_hidden_numbers_are_the_encoders(run):
    model = CapsulePoE.load(run)
    pixels = Material(model, 10, 0).test_pixels[:40]
    encoded = model.encode(pixels)
    winner, hidden = hidden_of(model, codes_of(model, pixels))
    np.testing.assert_allclose(hidden, encoded.hidden.reshape(40, -1), atol=0.05)
    assert (winner == encoded.on.argmax(1)).mean() > 0.9
    _, gated = hidden_of(model, codes_of(model, pixels), gated=True)
    np.testing.assert_allclose(gated, (encoded.hidden * encoded.on[..., None]).reshape(40, -1), atol=0.1)


def test_of_large_data_an_even_choice_is_held(run, monkeypatch):
    model = CapsulePoE.load(run)
    whole, some = Material(model, 10, 0), Material(model, 10, 0)
    assert (len(whole.train_pixels), len(whole.test_pixels)) == (256, len(whole.test_labels))
    monkeypatch.setattr(material, "MOST_IMAGES", 100)
    rows = np.linspace(0, 255, 100).astype(int)
    np.testing.assert_array_equal(some.train_pixels, whole.train_pixels[rows])
    np.testing.assert_array_equal(some.train_labels, whole.train_labels[rows])
    assert len(some.test_pixels) == len(some.test_labels) == len(some.test_codes) == 100


def test_quick_scores_are_those_of_the_table(run, full):
    scores = quick_scores(CapsulePoE.load(run), samples=60)
    rows = {row["name"]: row for row in full["rows"]}
    for name in ("fid", "precision", "recall", "alive"):
        assert scores[name] == rows["capspoe"][name]
    assert scores["purity"] == pytest.approx(rows["capspoe"]["purity"], abs=0.02)  # codes of 32 bits, not 16
    assert scores["fid_standard"] == rows["capspoe, the paper's sampling"]["fid"]
    assert scores["fid_reconstruction"] == rows["floor: capsule reconstructions"]["fid"]
    assert scores["fid_gibbs100"] > 0


def test_a_yardstick_has_the_images_that_the_network_was_given(monkeypatch, cache):
    """Resized and then cut, or only one of both: equal shapes are not equal images."""
    monkeypatch.setattr(scoring, "_YARDSTICKS", {})
    monkeypatch.setattr(scoring, "Yardstick", lambda name, train, test, told: (name, test.pixels))
    for prepared in ({"size": 20, "crop": 12}, {"size": 12}, {"crop": 12}):
        config = preset("small", "digits").replace(channels=8, layers="2x3", **prepared)
        name, pixels = yardstick_for(CapsulePoE(config, (12, 12, 1)))
        assert name == "digits"
        np.testing.assert_array_equal(pixels, package.data.load("digits", "test", **prepared).pixels)
    scoring._YARDSTICKS.clear()


@pytest.mark.parametrize("make", [baselines.kmeans_pca, baselines.mixture, baselines.pixel_rbm])
@pytest.mark.parametrize("seed", [-1, 2**40])
def test_baselines_take_any_seed(run, cache, make, seed):
    assert np.isfinite(make(Material(CapsulePoE.load(run), 5, seed)).images).all()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kinds", [4, 3, 1])
def test_kmeans_of_clusters_without_directions(tmp_path, kinds):
    """Of one code, of equal ones, and of none where there are more clusters than kinds of codes."""
    material = material_of(tmp_path / "mine.npz", np.zeros(30, np.int64), limit=20)
    material.train_codes = material.train_codes[np.arange(4 if kinds == 4 else 20) % kinds]
    made = baselines.kmeans_pca(material)
    assert made.features is None
    drawn = {image.tobytes() for image in made.images}
    assert drawn <= {image.tobytes() for image in material.paint(material.flat_codes(20))}


def test_an_rbms_samples_follow_its_distribution():
    """Without weights the visible units are independent coins with the biases' probabilities."""
    layer = package.CapsuleLayer.rbm(5, 3, initial_std=0.0)
    with torch.no_grad():
        layer.a.copy_(torch.linspace(-2, 2, 5)[:, None])
    drawn = sample_rbm(layer, 7, 3, seed=0)
    np.testing.assert_allclose(
        drawn, np.tile(torch.sigmoid(layer.a[:, 0]).detach().numpy(), (7, 1)), rtol=1e-6
    )


def test_feature_net_is_cached_and_a_damaged_file_is_replaced(tmp_path, run):
    material = Material(CapsulePoE.load(run), 10, 0)
    pixels, labels = material.test_pixels, material.test_labels
    train, test = Labelled(pixels[:200], labels[:200]), Labelled(pixels[200:], labels[200:])
    calls = []
    first = feature_net("digits", train, test, told=lambda *a: calls.append(a), home=tmp_path)
    assert calls[-1][0] == calls[-1][1]
    assert first.info["test_accuracy"] == (see(first.net, test.pixels).labels == test.labels).mean()
    calls.clear()
    second = feature_net("digits", train, test, told=lambda *a: calls.append(a), home=tmp_path)
    assert (calls, second.info) == ([], first.info)
    np.testing.assert_array_equal(see(first.net, test.pixels).features, see(second.net, test.pixels).features)
    (file,) = (tmp_path / "features").glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-5] + b"wrong")
    third = feature_net("digits", train, test, told=lambda *a: calls.append(a), home=tmp_path)
    assert calls
    assert third.info["sha256"] == first.info["sha256"]  # the same seed, the same net
    other = Labelled(pixels[20:220], labels[20:220])
    assert feature_net("digits", other, test, home=tmp_path).info["sha256"] != first.info["sha256"]
