"""Measure which routing weights should decode states that have no image.

    python -m benchmarks.quality.reverse_rule [RUN] [--samples 5000] [--seeds 0 1]

A state drawn from the prior has no way up whose routing weights it could go down by. Two rules are compared: reverse
routing (section 4.1 of the paper), whose weights are uniform since a single capsule is on, and each capsule's mean
routing weights in training. Samples of both rules come from the same poses: their FID with the scales of the run, and
with both scales 1. Reconstructions of test images, through their most probable capsule, can also use the image's own
weights: the mean squared error of a pixel for all three. The default run is mnist-small, the bundled network.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import records
from capspoe.evaluate.data import EvaluationData
from capspoe.evaluate.generation import fid
from capspoe.infer.sample import fitted
from capspoe.model.gates import place
from capspoe.model.network import CHUNK, Network
from capspoe.model.noise import Noise
from capspoe.model.prior import Sampling
from capspoe.run.bundled import BUNDLED
from capspoe.run.model import CapsulePoE

RECORD = "reverse_rule"
DEPENDS = ("evaluate", "infer", "model", "pretrained")
RECONSTRUCTIONS = 2000


def reverse_routing(network: Network, h: Tensor) -> Tensor | None:
    return network.top.reverse(h)


def mean_routing(network: Network, h: Tensor) -> Tensor:
    top = network.top
    return (top.mean_routing / top.fan).expand(len(h), -1, -1)


Rule = Callable[[Network, Tensor], Tensor | None]  # from states (B, J, N) to routing weights; None means uniform
RULES: dict[str, Rule] = {"reverse routing": reverse_routing, "mean routing weights": mean_routing}


@torch.no_grad()
def samples(network: Network, rule: Rule, count: int, seed: int) -> np.ndarray:
    """Samples of the fitted prior; with reverse routing they are those of `network.sample`."""
    images = []
    for index in torch.arange(count).split(CHUNK):
        noise = Noise(seed, 0, index)
        on = network.prior.choose(noise)
        pose = fitted(network, on, noise, network.sampling.prior_scale)
        h = place(pose, on, network.top.upper[0])
        images.append(network.array(network.down(h, rule(network, h), on=on)))
    return np.concatenate(images)


@torch.no_grad()
def reconstruction_errors(network: Network, pixels: np.ndarray) -> dict[str, float]:
    """The mean squared error of a pixel, for the image's own weights and for each rule."""
    totals = dict.fromkeys(("the image's own weights", *RULES), 0.0)
    for x in network.chunks(pixels):
        up = network.up(x)
        weights = {"the image's own weights": up.c}
        for name, rule in RULES.items():
            weights[name] = rule(network, up.state)
        for name, c in weights.items():
            reconstructed = network.down(up.state, c, on=up.winner)
            totals[name] += float((reconstructed - x).square().mean((1, 2, 3)).sum())
    return {name: round(total / len(pixels), 5) for name, total in totals.items()}


def sample_rows(network: CapsulePoE, data: EvaluationData, seeds: list[int]) -> list[dict[str, Any]]:
    """A row for each pair of scales and each rule, with the FID of each seed."""
    scales = {
        "of the run": network.sampling,
        "both 1": Sampling("fitted", prior_scale=1.0, logit_scale=1.0),
    }
    rows = []
    for name, sampling in scales.items():
        network.sampling = sampling
        for rule in RULES:
            distances = []
            for seed in seeds:
                features, _ = data.net.see(samples(network, RULES[rule], data.samples, seed))
                distances.append(round(fid(data.real, features), 2))
            rows.append({"scales": name, "weights": rule, "fid": distances})
            print(json.dumps(rows[-1]), flush=True)
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?", default=Path(BUNDLED))
    parser.add_argument("--samples", type=int, default=5000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1], help="of the samples")
    options = parser.parse_args(arguments)
    network = CapsulePoE.load(options.run)
    data = EvaluationData(network, options.samples)
    errors = reconstruction_errors(network, data.test.pixels[:RECONSTRUCTIONS])
    print(json.dumps(errors), flush=True)
    content = {
        "run": options.run.name,
        "samples": options.samples,
        "seeds": options.seeds,
        "rows": sample_rows(network, data, options.seeds),
        "reconstructions": RECONSTRUCTIONS,
        "error": errors,
    }
    print(records.write(RECORD, content, DEPENDS))


if __name__ == "__main__":
    main()
