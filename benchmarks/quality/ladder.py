"""From the paper to the default: one departure at a time, and the default without each of them.

    python -m benchmarks.quality.ladder [DATA ...] [--seeds N] [--epochs N] [--rungs NAME ...]

The first rung has the settings of `--literal` at the small size: the best reading of the text. Each rung adds one
departure to the rung before; the last one is the default. With the gate no capsule shares an image, so from there on
the logits of samples are not multiplied, until the last rung. Then each departure is removed from the default alone,
and with it what needs it: the low-rank start and the chains need the gate, gaussian neurons and targets.

All rungs train their capsules for the same epochs, on codes of one of two autoencoders: the paper's, and from the
rung "our autoencoder" on the default's. The last three rungs change only how samples are drawn, so they share the
network of the rung before.

Each rung adds a row to the record `ladder`, and rungs with a row are skipped. `drawn` are samples as the rung draws
them; `energy` are 500 of the energy's own samples, where it has any (gaussian neurons and the gate). The other
scores are those of `variants.py`. `python -m benchmarks.pages.ladder` makes the table and the figure.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import records
from benchmarks.quality.variants import CD, Workbench
from capspoe.config import Config, preset
from capspoe.infer.sample import sample
from capspoe.model.build import build_layers
from capspoe.model.network import Network
from capspoe.model.prior import Sampling
from capspoe.training.build import chain_count

RECORD = "ladder"
DEPENDS = (*records.TRAINING, "evaluate", "infer")
DATA = ("mnist", "fashion-mnist")
STAGE_1 = (
    "dropout", "code_noise", "autoencoder_epochs", "autoencoder_optimizer", "autoencoder_learning_rate",
    "autoencoder_weight_decay", "autoencoder_batch_size", "warmup", "clip_norm", "min_steps", "upsampling",
    "edge_weight",
)  # fmt: skip
# Each departure: its name, and the settings that take the default's value.
DEPARTURES: dict[str, tuple[str, ...]] = {
    "gate": ("gate", "reconstruction", "capsule_dropout"),
    "biases": ("bias",),
    "centring": ("centred",),
    "gaussian neurons": ("neurons", "learning_rate", "initial_std", "hidden_states"),
    "gate targets": ("gate_targets",),
    "low-rank start": ("start",),
    "persistent chains": ("chains", "learning_rate"),
    "our autoencoder": STAGE_1,
    "fitted prior": ("prior",),
    "prior scale": ("prior_scale",),
    "logit scale": ("logit_scale",),
}
LOWER = (144, 8)  # lower capsules at the small size
ENERGY_SAMPLES = 500
SAMPLING = ("fitted prior", "prior scale", "logit scale")  # departures that need no training


def default(name: str) -> Config:
    return preset("small", name)


def literal(name: str) -> Config:
    """The paper's settings at the small size."""
    config = preset(data=name, literal=True)
    return config.replace(channels=default(name).channels, autoencoder_epochs=3, chains=0)


def binary_rate(name: str) -> float:
    """The learning rate that suits binary neurons with a gate."""
    return preset("small", name, neurons="binary").learning_rate


def with_suitable_rate(config: Config) -> Config:
    """Gaussian neurons without chains learn by contrastive divergence, which takes another learning rate."""
    (layer,) = build_layers(config, LOWER)
    if layer.neurons.real and not chain_count(config, layer, top=True):
        return config.replace(**CD)
    return config


def rungs(name: str) -> dict[str, Config]:
    """The ladder, from the bottom."""
    config = literal(name)
    ladder = {"the paper": config}
    for departure, settings in DEPARTURES.items():
        config = config.replace(**{setting: getattr(default(name), setting) for setting in settings})
        if departure == "gate":
            config = config.replace(logit_scale=1.0, learning_rate=binary_rate(name))
        config = with_suitable_rate(config)
        ladder[f"+ {departure}"] = config
    return ladder


def removals(name: str) -> dict[str, Config]:
    """The default, and the default without each departure."""
    configs = {"the default": default(name)}
    for departure, settings in DEPARTURES.items():
        paper = {setting: getattr(literal(name), setting) for setting in settings}
        if departure == "gaussian neurons":
            paper = {"neurons": "binary", "learning_rate": binary_rate(name)}
        if departure == "gate":
            paper["neurons"] = "binary"  # without a gate gaussian neurons diverge
            for setting in ("learning_rate", "initial_std", "hidden_states"):
                paper[setting] = getattr(literal(name), setting)
        if departure == "persistent chains":
            paper = {"chains": 0}
        if departure == "logit scale":
            paper = {"logit_scale": 1.0}  # with the gate no capsule shares an image
        configs[f"without {departure}"] = with_suitable_rate(default(name).replace(**paper))
    return configs


@dataclass
class Trained:
    """A network, and those of its scores that do not depend on how samples are drawn."""

    config: Config
    network: Network
    scores: dict[str, Any]


class Ladder:
    """The rungs of a data set that were climbed, and their scores."""

    def __init__(self, name: str, epochs: int) -> None:
        self.name = name
        self.epochs = epochs
        self.benches: dict[str, Workbench] = {}
        self.last: Trained | None = None

    def bench(self, config: Config) -> Workbench:
        """Of the paper's autoencoder, or of the default's."""
        kind = "noise" if config.code_noise else "plain"
        if kind not in self.benches:
            self.benches[kind] = Workbench(config)
        return self.benches[kind]

    def climb(self, part: str, rung: str, config: Config, seed: int) -> None:
        """Train a rung, unless only its sampling differs from the last one, and add its scores."""
        key = {"data": self.name, "part": part, "rung": rung, "seed": seed, "epochs": self.epochs}
        config = config.replace(epochs=self.epochs, min_steps=0, seed=seed)
        records.add_row(RECORD, key, lambda: self.scores(config), DEPENDS)

    def scores(self, config: Config) -> dict[str, Any]:
        """The scores of a rung."""
        bench = self.bench(config)
        trained = self.trained(bench, config)
        trained.network.sampling = Sampling(config.prior, config.prior_scale, config.logit_scale)
        return {"drawn": bench.generation(trained.network)} | trained.scores

    def trained(self, bench: Workbench, config: Config) -> Trained:
        """The network of the last rung, if it was trained by the same settings; else a new one."""
        # These do not matter for the training of capsules.
        same = {"prior": "fitted", "prior_scale": 1.0, "logit_scale": 1.0, "recognition_steps": 0}
        key = config.replace(**same)
        if self.last is None or self.last.config != key:
            network = bench.train(config)
            scores = bench.recognition(network)
            if network.top.gate.one_on and network.top.neurons.real:
                images = sample(network, ENERGY_SAMPLES, prior="model", seed=0).images
                scores["energy"] = {"fid": round(bench.frozen.data.generation(images)["fid"], 1)}
            self.last = Trained(key, network, scores)
        return self.last


def shares_training(removal: str) -> bool:
    """Whether a removal differs from the default only in how samples are drawn."""
    return removal == "the default" or removal.removeprefix("without ") in SAMPLING


def climb_all(ladder: Ladder, seed: int, wanted: Sequence[str] = ()) -> None:
    """The ladder, and the removals; first those that share the network of the default. `wanted`: only these rungs."""
    added = rungs(ladder.name)
    removed = removals(ladder.name)
    by_training = sorted(removed, key=lambda rung: not shares_training(rung))
    for part, configs, names in (("ladder", added, list(added)), ("removals", removed, by_training)):
        for rung in names:
            if not wanted or rung in wanted:
                ladder.climb(part, rung, configs[rung], seed)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", metavar="DATA", default=DATA, help=f"default: {' '.join(DATA)}")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=3, help="of stage 2")
    parser.add_argument("--rungs", nargs="+", default=[], metavar="NAME", help="default: all")
    options = parser.parse_args(arguments)
    ladders = [Ladder(name, options.epochs) for name in options.data]
    for seed in range(options.seeds):
        for ladder in ladders:
            climb_all(ladder, seed, options.rungs)


if __name__ == "__main__":
    main()
