"""The paper to the letter, tried with charity: python benchmarks/literal.py [DATA ...] [--paper]

The text leaves open the learning rate, the number of epochs, the initial weights, whether hidden units are drawn or
hold their probabilities, and the weight decay. This tries them without routing, where a step is two matrix products,
by successive halving: all settings for five epochs, three for 20, the best for 200. Then other weight decays, and
the best of all with routing. Other data sets and the paper's size (--paper) get MNIST's two best settings, and the
better one with routing.

Samples are the paper's: one capsule on, its neurons sigmoid(N(0, 1)), all others 0, reverse routing (uniform, since a
single capsule agrees with itself; also tried: the mean of the forward weights), decoder. "factor" multiplies the
code's logits: 1 is the text; J undoes a division by the number of capsules, if there was one.

Each setting adds a line to benchmarks/records/literal-DATA-SIZE.jsonl, and those with a line are skipped: interrupt
it at will. The codes come from the literal autoencoder (runs/literal-DATA-SIZE), which is trained first.
"""

import itertools
import json
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from capspoe.config import preset
from capspoe.evaluate.data import EvaluationData
from capspoe.model.layer import CapsuleLayer
from capspoe.model.network import Network
from capspoe.run.model import CapsulePoE
from capspoe.run.pictures import tile, write_png
from capspoe.run.train import train_run
from capspoe.train.loops import code_batch, layer_steps
from capspoe.train.optimizers import capsule_optimizer

RECORDS = Path(__file__).parent / "records"
FACTORS = (1, 3, 10, 20)
SAMPLES = 1000
OPEN = {
    "learning_rate": (0.005, 0.001, 0.02, 0.1),
    "hidden_states": ("mean", "drawn"),
    "initial_std": (0.01, 0.003, 0.1),
}
HALVING = ((5, None), (20, 3), (200, 1))  # epochs, and how many of the settings before get them


def rbm(codes: Float[Tensor, "n V"], units: int, setting: dict[str, Any], seed: int = 0) -> Float[Tensor, "H V"]:
    """Contrastive divergence with one routing iteration: an RBM without biases. The rate decays to 0; momentum .9."""
    rng = torch.Generator().manual_seed(seed)
    w = setting["initial_std"] * torch.randn(units, codes.shape[1], generator=rng)
    velocity, batch = torch.zeros_like(w), 128
    steps = setting["epochs"] * (len(codes) // batch)
    for step in range(steps):
        if step % (len(codes) // batch) == 0:
            order = torch.randperm(len(codes), generator=rng)
        start = step * batch % (len(codes) // batch * batch)
        x = codes[order[start : start + batch]]
        mean = torch.sigmoid(x @ w.T)
        h = mean if setting["hidden_states"] == "mean" else (torch.rand(mean.shape, generator=rng) < mean).float()
        back = torch.sigmoid(h @ w)
        again = torch.sigmoid(back @ w.T)
        velocity.mul_(0.9).add_(mean.T @ x, alpha=1 / batch).sub_(again.T @ back, alpha=1 / batch)
        velocity.sub_(w, alpha=setting["weight_decay"])
        w.add_(velocity, alpha=setting["learning_rate"] * (1 - step / steps))
    return w


def paper_samples(network: Network, w_JNV: Float[Tensor, "J N V"], count: int, factor: float) -> np.ndarray:
    """Images of codes sigmoid(factor w_j' sigmoid(N(0, 1))), the capsules in turn."""
    rng = torch.Generator().manual_seed(1)
    on = torch.arange(count) % len(w_JNV)
    h = torch.sigmoid(torch.randn(count, w_JNV.shape[1], generator=rng))
    x = torch.sigmoid(factor * torch.einsum("bn,bnv->bv", h, w_JNV[on]))
    with torch.no_grad():
        return network.array(network.codec.decode(x.view(count, *network.codec.capsules)))


def score(data: EvaluationData, w_JNV: Float[Tensor, "J N V"], picture: Path) -> dict[str, Any]:
    """FID and recall of the paper's samples for each factor, and a picture of the best: a column for each capsule."""
    found: dict[str, Any] = {"fid": {}, "recall": {}}
    for factor in FACTORS:
        scores = data.generation(paper_samples(data.network, w_JNV, SAMPLES, factor))
        found["fid"][factor], found["recall"][factor] = round(scores["fid"], 1), round(scores["recall"], 3)
    best = min(FACTORS, key=lambda factor: found["fid"][factor])
    images = paper_samples(data.network, w_JNV, 4 * len(w_JNV), best)
    write_png(tile(images.reshape(4, len(w_JNV), *images.shape[1:]), scale=2), picture)
    return found | {"best_factor": best}


def routed(network: Network, codes: np.ndarray, setting: dict[str, Any]) -> dict[str, Float[Tensor, "J N V"]]:
    """The same with the paper's routing: weights for reverse routing that is uniform, or the forward one's mean."""
    config = network.config.replace(
        **{k: v for k, v in setting.items() if k in ("epochs", "learning_rate", "hidden_states", "weight_decay")}
    )
    old = network.top
    layer = CapsuleLayer(
        old.lower, old.upper, iterations=setting["iterations"], gate="none", neurons="binary", bias=False,
        centred=False, initial_std=setting["initial_std"], seed=0,
    )  # fmt: skip
    steps = setting["epochs"] * -(-len(codes) // config.batch_size)
    inputs = lambda index: code_batch(codes, index, network.device)  # noqa: E731
    for _ in layer_steps(layer, inputs, len(codes), config, capsule_optimizer(layer, config), 0, steps):
        pass
    with torch.no_grad():
        c_BJI = torch.cat(
            [layer(code_batch(codes, index, network.device)).c for index in np.arange(2048).reshape(8, -1)]
        )
        w_JNIM, r_JI = layer.w_JNMI.permute(0, 1, 3, 2), layer.fan * c_BJI.mean(0)
        return {"uniform": w_JNIM.flatten(2), "mean of forward": (r_JI[:, None, :, None] * w_JNIM).flatten(2)}


class Search:
    """The settings of a data set that were tried, and their scores."""

    def __init__(self, name: str, size: str) -> None:
        sizes = {"channels": preset(size, name).channels}
        config = preset(data=name, literal=True).replace(epochs=1, **sizes)
        run = Path("runs") / f"literal-{name}-{size}"
        train_run(config, run, resume=(run / "config.json").exists())
        self.data = EvaluationData(CapsulePoE.load(run), SAMPLES)
        self.codes = torch.from_numpy(self.data.train.codes).float().flatten(1)
        self.pictures, self.record = run / "search", RECORDS / f"literal-{name}-{size}.jsonl"
        self.rows = (
            [json.loads(line) for line in self.record.read_text().splitlines()] if self.record.exists() else []
        )

    def try_(self, setting: dict[str, Any], w_JNV: Any) -> None:
        """Train one setting, unless there is a row of it, and write down its scores."""
        if any(row["setting"] == setting for row in self.rows):
            return
        began = time.monotonic()
        w = w_JNV()
        row: dict[str, Any] = {"setting": setting, "finite": bool(w.isfinite().all())}
        if row["finite"]:
            row |= {"weights_std": round(float(w.std()), 4)}
            name = "-".join(str(value) for value in setting.values())
            row |= score(self.data, w, self.pictures / f"{name}.png")
        row["seconds"] = round(time.monotonic() - began, 1)
        self.rows.append(row)
        with self.record.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)

    def best(self, count: int, **fixed: Any) -> list[dict[str, Any]]:
        finite = [row for row in self.rows if row["finite"] and fixed.items() <= row["setting"].items()]
        return sorted(finite, key=lambda row: min(row["fid"].values()))[:count]


def main(name: str, size: str) -> None:
    search = Search(name, size)
    network, (J, N) = search.data.network, search.data.network.top.upper

    def try_rbm(setting: dict[str, Any]) -> None:
        search.try_(setting, lambda: rbm(search.codes, J * N, setting).view(J, N, -1))

    if (name, size) == ("mnist", "small"):
        for before, (epochs, count) in zip((None, 5, 20), HALVING, strict=True):
            if count is None:
                chosen = [dict(zip(OPEN, each, strict=True)) for each in itertools.product(*OPEN.values())]
            else:
                chosen = [row["setting"] for row in search.best(count, iterations=1, epochs=before)]
            for setting in chosen:
                try_rbm({"iterations": 1, "weight_decay": 1e-5} | setting | {"epochs": epochs})
        for decay in (0.0, 1e-3):
            try_rbm(search.best(1, iterations=1, epochs=20)[0]["setting"] | {"weight_decay": decay})
    else:
        for row in Search("mnist", "small").best(2, iterations=1):
            try_rbm(row["setting"])
    setting = search.best(1, iterations=1)[0]["setting"] | {"iterations": 3}
    weights = cache(lambda: routed(network, search.data.train.codes, setting))
    for reverse in ("uniform", "mean of forward"):
        search.try_(setting | {"reverse": reverse}, lambda reverse=reverse: weights()[reverse])
    for row in search.best(5):
        print(name, size, json.dumps(row["setting"]), row["fid"])


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    for word in words or ["mnist", "fashion-mnist", "cifar10"]:
        main(word, "paper" if "--paper" in sys.argv else "small")
