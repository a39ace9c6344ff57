"""Try the paper to the letter, with charity.

    python -m benchmarks.quality.literal [DATA ...] [--paper]

The text leaves open the learning rate, the number of epochs, the initial weights, whether hidden units are drawn or
hold their probabilities, and the weight decay. This tries them without routing, where a step is two matrix products,
by successive halving: all settings for five epochs, three for 20, the best for 200. Then other weight decays, and
the best of all with routing. Other data sets and the paper's size (--paper) get MNIST's two best settings, and the
better one with routing.

Samples are the paper's: one capsule on, its neurons sigmoid(N(0, 1)), all others 0, reverse routing (uniform, since a
single capsule agrees with itself; also tried: the mean of the forward weights), decoder. "factor" multiplies the
code's logits: 1 is the text; J undoes a division by the number of capsules, if there was one.

Each setting adds a row to the record literal-DATA-SIZE, and settings with a row are skipped: interrupt it at will.
The codes come from the literal autoencoder (runs/literal-DATA-SIZE), which is trained first.
"""

import argparse
import itertools
import json
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks import records
from capspoe.config import preset
from capspoe.evaluate.data import EvaluationData
from capspoe.model.layer import CapsuleLayer
from capspoe.model.network import Network
from capspoe.run.model import CapsulePoE
from capspoe.run.pictures import tile, write_png
from capspoe.run.train import train_run
from capspoe.training.capsule_stage import CapsuleStage
from capspoe.training.cd import ContrastiveDivergence
from capspoe.training.codes import code_batch
from capspoe.training.fit import fit
from capspoe.training.stage import Schedule

DEPENDS = (*records.TRAINING, "evaluate")
DATA = ("mnist", "fashion-mnist", "cifar10")
FACTORS = (1, 3, 10, 20)
SAMPLES = 1000
BATCH = 128
MOMENTUM = 0.9
ROUTED_IMAGES = 2048  # whose routing weights are averaged
OPEN = {
    "learning_rate": (0.005, 0.001, 0.02, 0.1),
    "hidden_states": ("mean", "drawn"),
    "initial_std": (0.01, 0.003, 0.1),
}
FIRST_EPOCHS = 5  # of all settings
HALVING = ((20, 3), (200, 1))  # epochs, and how many of the settings before get them
WEIGHT_DECAY = 1e-5
OTHER_WEIGHT_DECAYS = (0.0, 1e-3)
Setting = dict[str, Any]


def train_rbm(codes: Float[Tensor, "n V"], units: int, setting: Setting, seed: int = 0) -> Float[Tensor, "H V"]:
    """Contrastive divergence with one routing iteration: an RBM without biases. The rate decays to 0."""
    rng = torch.Generator().manual_seed(seed)
    w = setting["initial_std"] * torch.randn(units, codes.shape[1], generator=rng)
    velocity = torch.zeros_like(w)
    batches = len(codes) // BATCH
    steps = setting["epochs"] * batches
    for step in range(steps):
        if step % batches == 0:
            order = torch.randperm(len(codes), generator=rng)
        start = step % batches * BATCH
        x = codes[order[start : start + BATCH]]
        # positive phase
        p = torch.sigmoid(x @ w.T)
        h = p
        if setting["hidden_states"] == "drawn":
            h = (torch.rand(p.shape, generator=rng) < p).float()
        # negative phase
        x_negative = torch.sigmoid(h @ w)
        p_negative = torch.sigmoid(x_negative @ w.T)
        velocity.mul_(MOMENTUM)
        velocity.add_(p.T @ x, alpha=1 / BATCH)
        velocity.sub_(p_negative.T @ x_negative, alpha=1 / BATCH)
        velocity.sub_(w, alpha=setting["weight_decay"])
        w.add_(velocity, alpha=setting["learning_rate"] * (1 - step / steps))
    return w


def train_routed(network: CapsulePoE, codes: np.ndarray, setting: Setting) -> dict[str, Float[Tensor, "J N V"]]:
    """The same with the paper's routing: weights for reverse routing that is uniform, or the forward one's mean."""
    layer = CapsuleLayer(
        network.top.lower,
        network.top.upper,
        iterations=setting["iterations"],
        gate="none",
        neurons="binary",
        bias=False,
        centred=False,
        initial_std=setting["initial_std"],
        seed=0,
    )
    stage = CapsuleStage(
        0,
        Schedule(setting["epochs"], BATCH),
        ContrastiveDivergence(sample_hidden=setting["hidden_states"] == "drawn"),
        learning_rate=setting["learning_rate"],
        momentum=MOMENTUM,
        weight_decay=setting["weight_decay"],
    )
    fit(Network(network.codec, [layer]), None, [stage], codes=codes)
    with torch.no_grad():
        chunks = np.array_split(np.arange(min(ROUTED_IMAGES, len(codes))), 8)
        c_BJI = torch.cat([layer(code_batch(codes, index, network.device)).c for index in chunks])
        r_JI = layer.fan * c_BJI.mean(0)
        w_JNIM = layer.w_JNMI.permute(0, 1, 3, 2)
        return {
            "uniform": w_JNIM.flatten(2),
            "mean of forward": (r_JI[:, None, :, None] * w_JNIM).flatten(2),
        }


@torch.no_grad()
def paper_samples(network: Network, w_JNV: Float[Tensor, "J N V"], count: int, factor: float) -> np.ndarray:
    """Images of codes sigmoid(factor w_j' sigmoid(N(0, 1))), the capsules in turn."""
    rng = torch.Generator().manual_seed(1)
    on = torch.arange(count) % len(w_JNV)
    h = torch.sigmoid(torch.randn(count, w_JNV.shape[1], generator=rng))
    code = torch.sigmoid(factor * torch.einsum("bn,bnv->bv", h, w_JNV[on]))
    return network.array(network.codec.decode(code.view(count, *network.codec.capsules)))


def score(data: EvaluationData, w_JNV: Float[Tensor, "J N V"], picture: Path) -> dict[str, Any]:
    """FID and recall of the paper's samples for each factor, and a picture of the best: a column for each capsule."""
    fid = {}
    recall = {}
    for factor in FACTORS:
        scores = data.generation(paper_samples(data.network, w_JNV, SAMPLES, factor))
        # Strings, as JSON has them, so that rows of the record and new ones are alike.
        fid[str(factor)] = round(scores["fid"], 1)
        recall[str(factor)] = round(scores["recall"], 3)
    best = min(FACTORS, key=lambda factor: fid[str(factor)])
    images = paper_samples(data.network, w_JNV, 4 * len(w_JNV), best)
    write_png(tile(images.reshape(4, len(w_JNV), *images.shape[1:]), scale=2), picture)
    return {"fid": fid, "recall": recall, "best_factor": best}


class Search:
    """The settings of a data set that were tried, and their scores."""

    def __init__(self, name: str, size: str) -> None:
        self.record = f"literal-{name}-{size}"
        run = Path("runs") / self.record
        channels = preset(size, name).channels
        config = preset(data=name, literal=True).replace(epochs=1, channels=channels)
        train_run(config, run, resume=(run / "config.json").exists())
        self.data = EvaluationData(CapsulePoE.load(run), SAMPLES)
        self.codes = torch.from_numpy(self.data.train.codes).float().flatten(1)
        self.pictures = run / "search"
        self.rows = records.read(self.record, default=[])

    def run(self, setting: Setting, train: Callable[[], Float[Tensor, "J N V"]]) -> None:
        """Train one setting, unless it has a row, and add its scores to the record."""
        if any(row["setting"] == setting for row in self.rows):
            return
        began = time.monotonic()
        w_JNV = train()
        row: dict[str, Any] = {"setting": setting, "finite": bool(w_JNV.isfinite().all())}
        if row["finite"]:
            name = "-".join(str(value) for value in setting.values())
            row["weights_std"] = round(float(w_JNV.std()), 4)
            row |= score(self.data, w_JNV, self.pictures / f"{name}.png")
        row["seconds"] = round(time.monotonic() - began, 1)
        self.rows.append(row)
        records.write(self.record, self.rows, DEPENDS, extends=True)
        print(json.dumps(row), flush=True)

    def run_rbm(self, setting: Setting) -> None:
        J, N = self.data.network.top.upper
        self.run(setting, lambda: train_rbm(self.codes, J * N, setting).view(J, N, -1))

    def run_routed(self, setting: Setting) -> None:
        """Both ways of reverse routing, from one training."""
        train = cache(lambda: train_routed(self.data.network, self.data.train.codes, setting))
        self.run(setting | {"reverse": "uniform"}, lambda: train()["uniform"])
        self.run(setting | {"reverse": "mean of forward"}, lambda: train()["mean of forward"])

    def best(self, count: int, **fixed: Any) -> list[Setting]:
        """The settings with the lowest FID among those with the fixed values."""
        candidates = []
        for row in self.rows:
            if row["finite"] and fixed.items() <= row["setting"].items():
                candidates.append(row)
        candidates.sort(key=lambda row: min(row["fid"].values()))
        return [row["setting"] for row in candidates[:count]]


def successive_halving(search: Search) -> None:
    """All settings without routing for a few epochs, the best of them for more; then other weight decays."""
    for values in itertools.product(*OPEN.values()):
        chosen = dict(zip(OPEN, values, strict=True))
        search.run_rbm({"iterations": 1, "weight_decay": WEIGHT_DECAY} | chosen | {"epochs": FIRST_EPOCHS})
    epochs_before = FIRST_EPOCHS
    for epochs, count in HALVING:
        for setting in search.best(count, iterations=1, epochs=epochs_before):
            search.run_rbm(setting | {"epochs": epochs})
        epochs_before = epochs
    for weight_decay in OTHER_WEIGHT_DECAYS:
        (best,) = search.best(1, iterations=1, epochs=20)
        search.run_rbm(best | {"weight_decay": weight_decay})


def measure(name: str, size: str) -> None:
    search = Search(name, size)
    if (name, size) == ("mnist", "small"):
        successive_halving(search)
    else:
        for setting in Search("mnist", "small").best(2, iterations=1):
            search.run_rbm(setting)
    (best,) = search.best(1, iterations=1)
    search.run_routed(best | {"iterations": 3})
    for setting in search.best(5):
        print(name, size, json.dumps(setting))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", metavar="DATA", default=DATA, help=f"default: {' '.join(DATA)}")
    parser.add_argument("--paper", action="store_true", help="the paper's size instead of the small one")
    options = parser.parse_args(arguments)
    size = "paper" if options.paper else "small"
    for name in options.data:
        measure(name, size)


if __name__ == "__main__":
    main()
