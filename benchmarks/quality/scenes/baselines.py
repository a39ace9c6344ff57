"""Answers of models without labels that are not capsules: linear models of groups, and pairs of training images."""

import itertools
from functools import cache

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.decomposition import NMF, PCA
from torch import Tensor

from benchmarks.quality.scenes.bench import GROUPED, Bench
from benchmarks.quality.scenes.data import Answer, Scenes
from benchmarks.quality.scenes.search import explain_by
from capspoe.infer.explain import COMPOSITIONS, MAXIMUM, Decoders, Search, linear_decoder, part_of
from capspoe.model.prior import CapsulePrior

NMF_IMAGES = 500  # of each group
NMF_UPDATES = 40
BANK = 2_000  # training images of the nearest pair
CANDIDATES = 100  # of them that are tried in pairs


def by_groups(bench: Bench, scenes: Scenes, recognition: bool = True) -> Answer:
    """The search with principal components of spectral groups in the capsules' place."""
    x = bench.tensor(scenes.images)
    recognised = None
    if recognition:
        recognised = bench.recognise(x).reordered(capsule_of_group(bench))
    explanation = explain_by(principal_components(bench), x, scenes.objects.shape[1], recognised)
    return Answer(bench.group_names[explanation.capsule], explanation.objects, explanation.owner)


@cache
def principal_components(bench: Bench) -> Decoders:
    """As many principal components of each group of codes as a capsule has neurons."""
    model = bench.model
    J, N = bench.shape
    flat = bench.codes.reshape(len(bench.codes), -1).astype(np.float32)
    prior = CapsulePrior(J, N, 1)
    means = []
    axes = []
    for group in range(J):
        members = flat[bench.groups == group]
        pca = PCA(N, random_state=0).fit(members)
        prior.fit(group, pca.transform(members), components=1)
        means.append(pca.mean_)
        axes.append(pca.components_)
    mean = torch.from_numpy(np.stack(means))
    axis = torch.from_numpy(np.stack(axes))

    def decode(group: Tensor, white: Tensor) -> Tensor:
        pose = prior.from_white(group, white)
        code = mean[group] + torch.einsum("rn,rnv->rv", pose, axis[group])
        sharpened = torch.sigmoid(Search.logit_scale * torch.logit(code, eps=1e-3))
        return model.codec.decode(sharpened.view(-1, *model.codec.capsules))

    return Decoders(linear_decoder(decode, (J, N)), decode, (J, N))


@cache
def capsule_of_group(bench: Bench) -> Tensor:
    """The capsule of each spectral group: as many images as possible have both in common."""
    on = bench.model.encode(bench.train.pixels[:GROUPED]).on.argmax(1)
    common = np.zeros((bench.shape[0], bench.shape[0]))
    np.add.at(common, (bench.groups, on), 1)
    _, capsule = linear_sum_assignment(common, maximize=True)
    return torch.from_numpy(capsule)


@cache
def nmf_components(bench: Bench) -> Tensor:
    """Non-negative components of the images of each group, (J, N, P)."""
    pixels = bench.train.pixels[:GROUPED].reshape(GROUPED, -1) / 255
    components = []
    for group in np.unique(bench.groups):
        members = pixels[bench.groups == group][:NMF_IMAGES]
        components.append(NMF(bench.shape[1], random_state=0, tol=1e-3).fit(members).components_)
    return torch.from_numpy(np.stack(components)).float()


def by_nmf(bench: Bench, scenes: Scenes) -> Answer:
    """Every pair of groups, the sum of their components fitted by multiplicative updates; the best fit wins."""
    components = nmf_components(bench)
    pairs = torch.tensor(list(itertools.combinations(range(bench.shape[0]), 2)))
    basis = components[pairs].flatten(1, 2)  # (pairs, 2 N, P)
    gram = basis @ basis.mT
    labels = []
    objects = []
    for x in bench.tensor(scenes.images):
        image = x.flatten()
        target = (basis @ image)[:, :, None]
        weight = torch.ones(len(pairs), basis.shape[1], 1)
        for _ in range(NMF_UPDATES):
            weight = weight * target / (gram @ weight).clamp_min(1e-9)
        error = ((basis.mT @ weight)[:, :, 0] - image).square().sum(1)
        best = int(error.argmin())
        alone = torch.einsum("mn,mnp->mp", weight[best].view(2, -1), components[pairs[best]])
        labels.append(bench.group_names[pairs[best]])
        objects.append(alone.clamp_max(1).view(2, *x.shape))
    drawn = torch.stack(objects)
    owner = COMPOSITIONS["sum"].responsibilities(drawn)
    return Answer(np.stack(labels), drawn.permute(0, 1, 3, 4, 2).numpy(), owner.numpy())


def by_nearest_pair(bench: Bench, scenes: Scenes) -> Answer:
    """Two training images, by maximum: the best pair of those that explain a part of the scene best."""
    bank = torch.from_numpy(bench.train.pixels[:BANK]).float().permute(0, 3, 1, 2) / 255
    pairs = torch.tensor(list(itertools.combinations(range(CANDIDATES), 2)))
    chosen = []
    for x in bench.tensor(scenes.images):
        candidates = part_of(bank, x).topk(CANDIDATES).indices
        pixels = bank[candidates].flatten(1)
        composed = torch.maximum(pixels[pairs[:, 0]], pixels[pairs[:, 1]])
        error = (composed - x.flatten()).square().sum(1)
        chosen.append(candidates[pairs[error.argmin()]])
    index = torch.stack(chosen)
    objects = bank[index]
    owner = MAXIMUM.responsibilities(objects)
    return Answer(bench.train.labels[index.numpy()], objects.permute(0, 1, 3, 4, 2).numpy(), owner.numpy())
