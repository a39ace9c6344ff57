"""The table of settings, its checks, and the presets."""

import dataclasses
import json
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

from capspoe.config import FIELDS, PRESETS, Config, check, from_dict, parse_layers, preset
from capspoe.errors import InputError, RunError

KINDS = get_type_hints(Config)


@pytest.mark.parametrize("name", FIELDS)
def test_every_setting_has_help_limits_and_a_valid_default(name):
    kind, meta = KINDS[name], FIELDS[name].metadata
    assert meta["help"][0].isupper() or meta["help"].split(":")[0] in get_args(kind)
    assert meta["help"].endswith(".")
    assert (meta["no_help"] is not None) == (FIELDS[name].default is True)
    numeric = {int, float} & {kind, *get_args(kind)}
    low, high = meta["limits"]
    assert (low is not None and low < high) if numeric else (low is high is None)
    if get_origin(kind) is Literal:
        assert FIELDS[name].default in get_args(kind)


@pytest.mark.parametrize("name", [name for name, field in FIELDS.items() if field.metadata["limits"][0] is not None])
def test_limits_are_inclusive_and_named(name):
    for limit, step in zip(FIELDS[name].metadata["limits"], (-1, 1), strict=True):
        number = int(limit) if int in {KINDS[name], *get_args(KINDS[name])} else float(limit)
        if name != "channels" or number % 8 == 0:
            check(Config().replace(**{name: number}))
        with pytest.raises(InputError, match=rf"^{name} must be between .* and .*, not "):
            check(Config().replace(**{name: number + step}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gate": "both"}, "gate cannot be 'both'; choose one of winner, none"),
        ({"prior": None}, "prior cannot be None; choose one of fitted, model, standard"),
        ({"epochs": 2.5}, "epochs cannot be 2.5"),
        ({"epochs": True}, "epochs cannot be True"),
        ({"momentum": float("nan")}, "momentum cannot be nan"),
        ({"momentum": "0.9"}, "momentum cannot be '0.9'"),
        ({"bias": 1}, "bias cannot be 1"),
        ({"size": "28"}, "size cannot be '28'"),
        ({"data": None}, "data cannot be None"),
        ({"channels": 12}, "channels must be a multiple of 8, not 12"),
        ({"layers": "20"}, "layers must look like 20x16"),
    ],
)
def test_check_names_the_bad_setting(change, message):
    with pytest.raises(InputError, match=f"^{message}"):
        check(Config().replace(**change))


def test_an_unknown_setting_is_named():
    with pytest.raises(InputError, match="there is no setting 'lr'; `capspoe train --help` lists them"):
        Config().replace(lr=0.1)


def test_stored_settings_come_back():
    config = Config(data="x", crop=20, logit_scale=2, bias=False, layers="8x4,2x3")
    stored = json.loads(json.dumps(dataclasses.asdict(config)))
    assert from_dict(stored) == config
    for damaged in (None, [], {}, {**stored, "lr": 1}, {k: v for k, v in stored.items() if k != "seed"}):
        with pytest.raises(RunError, match=r"^here is damaged: its settings are incomplete or unknown"):
            from_dict(damaged, "here")
    with pytest.raises(RunError, match=r"config\.json is damaged: epochs must be between"):
        from_dict({**stored, "epochs": 0})


def test_layers():
    assert parse_layers("64x16,20x8") == [(64, 16), (20, 8)]
    for wrong in ("", "20", "20x", "x16", "0x4", "4x-1", "20x16,", "20x16x2", "9999999x2", None):
        with pytest.raises(InputError, match="layers must look like"):
            parse_layers(wrong)


def test_presets():
    assert preset() == Config()
    paper = preset("paper", "cifar10")
    assert (paper.channels, paper.crop, paper.data) == (128, 28, "cifar10")
    assert preset(data="digits").batch_size == 64
    photos = preset("photos", "my-photos")
    cifar10 = preset(data="cifar10")
    for name in ("code_noise", "dropout", "autoencoder_epochs"):
        assert getattr(photos, name) == getattr(cifar10, name) != getattr(Config(), name)
    with pytest.raises(InputError, match="no preset 'huge'; choose one of small, paper, photos"):
        preset("huge")
    for name in PRESETS:
        for literal in (False, True):
            check(preset(name, "digits", literal))


def test_binary_neurons_take_thirty_times_the_rate_of_gaussian_ones_with_chains():
    assert preset(neurons="binary").learning_rate == pytest.approx(30 * Config().learning_rate)
    # CIFAR-10 has no chains and a higher rate of its own, which says nothing about binary neurons.
    assert preset(data="cifar10", neurons="binary").learning_rate == preset(neurons="binary").learning_rate
    assert preset(neurons="gaussian") == Config()


def test_literal_is_what_the_paper_says():
    """No gate, no biases, no centring and no noise; binary neurons, SGD, and sampling from sigmoid(N(0, 1))."""
    literal = preset(literal=True)
    says = {
        "gate": "none", "neurons": "binary", "bias": False, "centred": False, "code_noise": 0, "iterations": 3,
        "normalize": "lower", "agreement": "cosine", "gate_targets": "none", "autoencoder_optimizer": "sgd",
        "prior": "standard", "logit_scale": 20, "prior_scale": 1, "reconstruction": "together",
        "hidden_states": "mean", "capsule_dropout": 0.5,
    }  # fmt: skip
    assert {name: getattr(literal, name) for name in says} == says
