"""Likelihoods of the benchmark against every state enumerated."""

import itertools

import numpy as np
import pytest
import torch
from benchmarks.pages.results import likelihood_parts
from benchmarks.quality import likelihood

from capspoe.infer.likelihood import log_integrals
from capspoe.model.layer import CapsuleLayer
from capspoe.model.prior import CapsulePrior
from tiny import F64, all_visible


@torch.no_grad()
def test_the_gates_bias_makes_capsules_as_probable_as_their_shares():
    layer = CapsuleLayer((3, 2), (2, 2), iterations=1, initial_std=0.7, seed=1, dtype=F64)
    layer.mu.fill_(0.4)
    layer.a.normal_(generator=torch.Generator().manual_seed(0))
    low, high = log_integrals(layer, CapsulePrior(2, 2, 1).double())
    likelihood.set_shares(layer, torch.tensor([0.8, 0.2], dtype=F64), (low + high) / 2)
    states = all_visible(layer)
    evidence = layer.log_evidence(layer.preactivation(states, None), states) + layer.d
    share = torch.softmax(torch.logsumexp(evidence, 0), 0)
    torch.testing.assert_close(share, torch.tensor([0.8, 0.2], dtype=F64), atol=0.02, rtol=0)


def test_a_mixture_of_bernoullis_sums_to_one(monkeypatch):
    """Over all images of six pixels."""
    states = np.array(list(itertools.product([0, 255], repeat=6)), np.uint8).reshape(-1, 6, 1, 1)
    images = likelihood.Images(np.repeat(states[::3], 5, 0), states)
    result = {}

    def keep(given, lower, upper=None):
        result["total"] = float(torch.logsumexp(lower(given.binary("test")).double(), 0))

    monkeypatch.setattr(likelihood, "bounds", keep)
    likelihood.bernoullis(3, images, seed=0)
    assert result["total"] == pytest.approx(0, abs=1e-4)


def test_the_table_has_the_best_model_first():
    row = {"seed": 0, "images": 20_000, "epochs": 10, "train": [-90.0, -89.8], "seconds": 12}
    parts = likelihood_parts(
        [
            row | {"model": "bernoullis-20", "test": [-150.0, -150.0]},
            row | {"model": "20x16", "test": [-100.1, -99.9]},
        ]
    )
    first, second = parts["likelihood"].splitlines()[2:]
    assert first == "| capspoe, 20x16 | 0 | -89.9 | -100.0 | 0.20 | 12 |"
    assert second.startswith("| mixture of 20 Bernoullis | 0 |")
    assert (parts["likelihood images"], parts["likelihood epochs"]) == ("20,000", "10")
