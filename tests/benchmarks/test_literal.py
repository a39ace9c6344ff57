"""Without routing, the paper to the letter is an RBM."""

import torch
from benchmarks.quality.literal import BATCH, train_rbm, train_routed

from capspoe import data
from capspoe.training.codes import codes_in_memory


def test_with_one_iteration_both_trainings_are_the_same(model):
    """A batch of all images and no initial weights leave nothing to chance."""
    codes = codes_in_memory(model, data.load("digits", "train").pixels[:BATCH])
    setting = {
        "iterations": 1,
        "weight_decay": 0.01,
        "learning_rate": 0.05,
        "hidden_states": "mean",
        "initial_std": 0.0,
        "epochs": 6,
    }
    J, N = model.top.upper
    expected = train_rbm(torch.from_numpy(codes).float().flatten(1), J * N, setting).view(J, N, -1)
    weights = train_routed(model, codes, setting)
    assert expected.abs().max() > 0.01
    torch.testing.assert_close(weights["uniform"].detach(), expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(weights["mean of forward"].detach(), expected, rtol=1e-4, atol=1e-6)
