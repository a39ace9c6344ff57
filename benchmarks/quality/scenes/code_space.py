"""Answers that stay in the codes: lower capsules assigned to upper ones, and codes of objects composed."""

import itertools

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.quality.scenes.bench import Bench
from benchmarks.quality.scenes.capsules import NINE
from benchmarks.quality.scenes.data import Answer, Scenes
from benchmarks.quality.scenes.search import FIT
from capspoe.infer.explain import MAXIMUM, Search, decoders_of, fit, last
from capspoe.model.gates import place

MEAN_FIELD_ITERATIONS = 10


def mean_field(bench: Bench, x: Tensor, sets: Tensor) -> tuple[Tensor, Tensor]:
    """Mean-field inference in the assignment energy.

    Each lower capsule i belongs to s_i, one of the upper capsules of a set (S, k) or the background, which is the
    code of a blank image:

    E(x, h, s) = |h|^2 / 2 - b'h - sum_i (h_j' w_ij (x_i - mu_i) + a_ij' x_i - sum softplus(a_ij)), with j = s_i.

    Returns the free energy of every set, (B, S), and the means of h, (B, S, k, N).
    """
    top = bench.model.top
    a = torch.cat([bench.blank_logits(x), top.a])
    b = top.b[sets]
    free_energies = []
    means = []
    for code in bench.model.up(x).x:
        u = torch.einsum("jnmi,im->jin", top.w_JNMI, code - top.mu)[sets]
        log_p = (a * code - F.softplus(a)).sum(-1)
        background = log_p[:1].expand(len(sets), 1, -1)
        visible = log_p[1:][sets]
        next_mean = b
        for _ in range(MEAN_FIELD_ITERATIONS + 1):
            mean = next_mean
            logits = torch.cat([background, visible + torch.einsum("skin,skn->ski", u, mean)], 1)
            free_energy = (mean.square() / 2 - b * mean).sum((1, 2)) - logits.logsumexp(1).sum(-1)
            assigned = logits.softmax(1)[:, 1:]
            next_mean = torch.einsum("ski,skin->skn", assigned, u) + b
        free_energies.append(free_energy)
        means.append(mean)
    return torch.stack(free_energies), torch.stack(means)


def by_assignment(bench: Bench, scenes: Scenes) -> Answer:
    """The pair of capsules with the lowest free energy of the assignment."""
    pairs = torch.tensor(list(itertools.combinations(range(bench.shape[0]), 2)))
    free_energy, _ = mean_field(bench, bench.tensor(scenes.images), pairs)
    return Answer(bench.names[pairs[free_energy.argmin(1)].numpy()])


def assigned_start(bench: Bench, x: Tensor) -> Tensor:
    """Proposals start at the mean and at the pose that the assignment to all capsules gives."""
    everything = torch.arange(bench.shape[0])[None]
    _, mean = mean_field(bench, x, everything)
    return bench.starts(mean[:, 0])


def by_composed_codes(bench: Bench, scenes: Scenes) -> Answer:
    """Pairs of the gate's nine best, composed in the code: logits added, relative to those of a blank image."""
    images = bench.tensor(scenes.images)
    decode = decoders_of(bench.model).exact
    labels = []
    objects = []
    for x in images.split(Search.chunk_size):
        capsule, pose = best_pair(bench, x)
        decoded = decode(capsule.flatten(), pose.flatten(0, 1)).unflatten(0, capsule.shape)
        labels.append(torch.from_numpy(bench.names[capsule.numpy()]))
        objects.append(decoded)
    drawn = torch.cat(objects)
    owner = MAXIMUM.responsibilities(drawn)
    return Answer(torch.cat(labels).numpy(), drawn.permute(0, 1, 3, 4, 2).numpy(), owner.numpy())


def best_pair(bench: Bench, x: Tensor) -> tuple[Tensor, Tensor]:
    """Capsules (B, 2) and whitened poses (B, 2, N) whose composed code is most like that of the image."""
    model = bench.model
    blank = bench.blank_logits(x)
    on, z = bench.route(model.array(x))
    pairs = torch.tensor(list(itertools.combinations(range(NINE), 2)))
    capsule = on.topk(NINE, 1).indices[:, pairs]
    rows = torch.arange(len(x))[:, None, None]
    white = model.prior.to_white(capsule.flatten(), z[rows, capsule].flatten(0, 2)).unflatten(0, capsule.shape)
    target = model.up(x).x[:, None]

    def code_logits(which: Tensor, white: Tensor) -> Tensor:
        h = place(model.prior.from_white(which, white), which, bench.shape[0])
        code = model.down_to_code(h, None, 1.0, which)
        # The search expects a colour axis.
        return torch.logit(code, eps=1e-6)[:, None] - blank

    def likelihood(logits: Tensor) -> Tensor:
        p = torch.sigmoid(logits[:, :, :, 0].sum(2) + blank)
        return -F.binary_cross_entropy(p, target.expand_as(p), reduction="none").sum((2, 3))

    best = last(fit(code_logits, capsule, white.clamp(-2, 2), likelihood, FIT)).best_first()
    return best.capsule[:, 0], best.pose[:, 0]
