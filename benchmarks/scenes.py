"""Several objects at once, and damage: python benchmarks/scenes.py RUN [--count 1000] [--seed 0] [--only ROW ...]

Every row explains the same scenes of test images (`scene_data.make_scenes`, by seed). A capsule is named by the
commonest label of the training images for which it is on; labels are used for nothing else, except by the supervised
network. The results are added to benchmarks/records/scenes-DATA-SEED.json row by row. --figure x.png draws ten pairs
instead.
"""

import argparse
import itertools
import json
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from scene_data import Scenes, make_scenes
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score
from torch import Tensor, nn
from torch.nn import functional as F

from capspoe import kernels
from capspoe.core import explain as E
from capspoe.core.prior import CapsulePrior
from capspoe.data import load
from capspoe.figures.explanation import tinted
from capspoe.figures.sheet import Row, draw_rows, write
from capspoe.run.model import CapsulePoE
from capspoe.training.codes import codes_in_memory
from capspoe.training.spectral import spectral_groups

RECORDS = Path(__file__).parent / "records"
NAMED = 4_000  # training images that name the capsules
GROUPED = 15_000  # training images of the linear baseline
BANK = 2_000  # training images of the nearest pair


class Answer(NamedTuple):
    """Labels (n, k) in any order and, for models that draw, the objects (n, k, H, W, C) and owners (n, k, H, W)."""

    labels: np.ndarray
    objects: np.ndarray | None = None
    owner: np.ndarray | None = None


class Bench:
    """A trained run and its data."""

    def __init__(self, run: Path, seed: int) -> None:
        self.model, self.seed = CapsulePoE.load(run).requires_grad_(False), seed
        self.train, self.test = (load(self.model.config.data, split) for split in ("train", "test"))
        on = self.model.encode(self.train.pixels[:NAMED]).on.argmax(1)
        self.names = commonest(on, self.train.labels[:NAMED], self.model.top.upper[0])

    def gate(self, scenes: Scenes) -> Answer:
        """The most probable capsules of the gate."""
        on = self.model.encode(scenes.images).on
        return Answer(self.names[np.argsort(-on, 1)[:, : scenes.objects.shape[1]]])

    def search(self, scenes: Scenes, compose: str = "maximum") -> Answer:
        found = self.model.explain(scenes.images, scenes.objects.shape[1], compose)
        return Answer(self.names[found.capsule], found.objects, found.owner)

    def oracle(self, scenes: Scenes) -> Answer:
        """Told the capsules, which the gate gives for each object alone; only the poses are searched."""
        n, k, *image = scenes.objects.shape
        capsule = self.model.encode(scenes.objects.reshape(n * k, *image)).on.argmax(1).reshape(n, k)
        x, chosen = self.model.tensor(scenes.images), torch.from_numpy(capsule)[:, None]
        linear, real = E.decoders_of(self.model)
        search, shape = E.Search(), self.model.top.upper
        alone = E.propose(linear, x, shape, search).pose[:, :: search.starts, 0]
        pose = alone[torch.arange(n)[:, None, None], chosen]

        def whole(objects: Tensor) -> Tensor:
            return -E.misfit(objects.amax(2), x[:, None], search)

        for decode in (linear, real):
            found = E.last(E.fit(decode, chosen, pose, whole, 25, search.rate))
            pose = found.pose
        best = E.best_of(found, E.maximum, k)
        return Answer(self.names[best.capsule], best.objects, best.owner)

    @cache  # noqa: B019
    def linear(self) -> tuple[tuple[E.Decode, E.Decode], tuple[int, int], np.ndarray]:
        """Spectral groups of codes and 16 principal components of each in the place of capsules."""
        model, (J, N) = self.model, self.model.top.upper
        codes = codes_in_memory(model, self.train.pixels[:GROUPED])
        group = spectral_groups(codes, J, model.config.neighbours, model.config.seed)
        assert group is not None
        flat = codes.reshape(len(codes), -1).astype(np.float32)
        prior, means, axes = CapsulePrior(J, N, 1), [], []
        for j in range(J):
            pca = PCA(N, random_state=0).fit(flat[group == j])
            prior.fit(j, pca.transform(flat[group == j]), components=1)
            means.append(pca.mean_)
            axes.append(pca.components_)
        mean, axis = torch.from_numpy(np.stack(means)), torch.from_numpy(np.stack(axes))

        def decode(capsule: Tensor, white: Tensor) -> Tensor:
            code = mean[capsule] + torch.einsum("rn,rnv->rv", prior.from_white(capsule, white), axis[capsule])
            code = torch.sigmoid(E.LOGIT_SCALE * torch.logit(code, eps=1e-3))
            return model.autoencoder.decode(code.view(-1, *model.autoencoder.capsules))

        names = commonest(group, self.train.labels[:GROUPED], J)
        return (E.linear_decoder(decode, (J, N)), decode), (J, N), names

    def pca(self, scenes: Scenes) -> Answer:
        decoders, shape, names = self.linear()
        k, parts = scenes.objects.shape[1], []
        for x in self.model.tensor(scenes.images).split(E.CHUNK):
            parts.append(E.best_of(E.last(E.search_steps(decoders, x, shape, k)), E.maximum, k))
        found = E.Explanation(*map(np.concatenate, zip(*parts, strict=True)))
        return Answer(names[found.capsule], found.objects, found.owner)

    def nearest(self, scenes: Scenes) -> Answer:
        """The two of 2,000 training images, by maximum; pairs of the 100 that explain a part best."""
        bank = torch.from_numpy(self.train.pixels[:BANK]).float().permute(0, 3, 1, 2) / 255
        pairs, chosen = torch.tensor(list(itertools.combinations(range(100), 2))), []
        for x in self.model.tensor(scenes.images):
            best = E.part_of(bank, x).topk(100).indices
            own = bank[best].flatten(1)
            error = (torch.maximum(own[pairs[:, 0]], own[pairs[:, 1]]) - x.flatten()).square().sum(1)
            chosen.append(best[pairs[error.argmin()]])
        index = torch.stack(chosen)
        owner = E.responsibilities(bank[index], E.maximum).numpy()
        return Answer(self.train.labels[index.numpy()], bank[index].permute(0, 1, 3, 4, 2).numpy(), owner)

    @cache  # noqa: B019
    def network(self, steps: int = 1200) -> nn.Module:
        """A small convolutional network trained with labels on superposed training images."""
        torch.manual_seed(self.seed)
        (height, width, colours), classes = self.train.pixels.shape[1:], int(self.train.labels.max()) + 1
        net = nn.Sequential(
            nn.Conv2d(colours, 32, 5, 2, 2), nn.ReLU(), nn.Conv2d(32, 64, 5, 2, 2), nn.ReLU(), nn.Flatten(),
            nn.Linear(64 * -(-height // 4) * -(-width // 4), 256), nn.ReLU(), nn.Linear(256, classes),
        )  # fmt: skip
        optimizer = torch.optim.Adam(net.parameters(), 1e-3)
        data = make_scenes(self.train, "superposed", 64 * steps, self.seed + 1)
        for rows in np.split(np.arange(64 * steps), steps):
            x = torch.from_numpy(data.images[rows]).float().permute(0, 3, 1, 2) / 255
            target = F.one_hot(torch.from_numpy(data.labels[rows]), classes).amax(1).float()
            loss = F.binary_cross_entropy_with_logits(net(x), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return net

    @torch.no_grad()
    def supervised(self, scenes: Scenes) -> Answer:
        logits = self.network()(self.model.tensor(scenes.images))
        return Answer(logits.topk(scenes.objects.shape[1], 1).indices.numpy())


def commonest(group: np.ndarray, labels: np.ndarray, groups: int) -> np.ndarray:
    """The commonest label of each group."""
    return np.array([np.bincount(labels[group == j], minlength=1).argmax() for j in range(groups)])


def score(scenes: Scenes, answer: Answer) -> dict[str, float]:
    """All labels right; the error of each object alone; ARI and intersection over union of the pixels."""
    n, k = scenes.labels.shape
    scores = {"right": float((np.sort(answer.labels, 1) == np.sort(scenes.labels, 1)).all(1).mean())}
    if answer.objects is None:
        return scores
    truth = scenes.objects / 255
    orders = [list(order) for order in itertools.permutations(range(k))]
    errors = np.stack([np.square(answer.objects[:, o] - truth).mean((1, 2, 3, 4)) for o in orders])
    best = np.array(orders)[errors.argmin(0)]
    found = answer.objects[np.arange(n)[:, None], best]
    scores["error"] = float(errors.min(0).mean())
    masks, inks = (found > 0.5).any(-1), (truth > 0.5).any(-1)
    union = (masks | inks).sum((2, 3)).clip(1)
    scores["iou"] = float(((masks & inks).sum((2, 3)) / union).mean())
    if k > 1:
        one = inks.sum(1) == 1  # pixels of one object only; those of several have no right answer
        owner, label = answer.owner.argmax(1), inks.argmax(1)
        scores["ari"] = float(np.mean([adjusted_rand_score(label[i][one[i]], owner[i][one[i]]) for i in range(n)]))
    return scores


def rows(bench: Bench) -> dict[str, tuple[str, Callable[[Scenes], Answer]]]:
    """Name of a row: the kind of scene, and who explains it."""
    found: dict[str, tuple[str, Callable[[Scenes], Answer]]] = {
        "gate's two best": ("superposed", bench.gate),
        "search": ("superposed", bench.search),
        "told the capsules": ("superposed", bench.oracle),
        "nearest pair of 2,000 images": ("superposed", bench.nearest),
    }
    for kind in ("hole", "missing side", "fragments"):
        found |= {f"{kind}, gate": (kind, bench.gate), f"{kind}, search": (kind, bench.search)}
    return found | {
        "spectral groups + PCA, same search": ("superposed", bench.pca),
        "supervised network": ("superposed", bench.supervised),
        "three, search": ("three", bench.search),
        "shifted, gate": ("shifted", bench.gate),
        "shifted, search": ("shifted", bench.search),
    }


def draw_pairs(bench: Bench, count: int = 10) -> Figure:
    """The first ten pairs of the seed: what is seen, what was written, and what is found."""
    scenes = make_scenes(bench.test, "superposed", count, bench.seed)
    answer = bench.search(scenes)
    truth = scenes.objects / 255
    swap = np.square(answer.objects - truth).mean((1, 2, 3, 4)) > np.square(answer.objects - truth[:, ::-1]).mean(
        (1, 2, 3, 4)
    )
    truth = np.where(swap[:, None, None, None, None], truth[:, ::-1], truth)
    one, two = np.eye(2)[:, :, None, None] * np.ones((2, 1, *scenes.images.shape[1:3]))

    def colours(images: np.ndarray, owner: np.ndarray) -> np.ndarray:
        return np.stack([tinted(*pair) for pair in zip(images, owner, strict=True)])

    written = colours(truth[:, 0], [one] * count), colours(truth[:, 1], [two] * count)
    found = [colours(answer.objects[:, m], [owner] * count) for m, owner in enumerate((one, two))]
    seen = np.repeat(scenes.images / 255, 3, -1)
    right = (np.sort(answer.labels, 1) == np.sort(scenes.labels, 1)).all(1)
    marks = [
        " and ".join(map(str, labels)) + ("" if ok else " (wrong)")
        for labels, ok in zip(answer.labels, right, strict=True)
    ]
    rows = [
        Row("seen", [seen], "two test digits"),
        Row("found", [colours(scenes.images / 255, answer.owner)], "pixels by object", marks),
        Row("one", [found[0]], "decoded alone"),
        Row("the other", [found[1]], "decoded alone"),
        Row("written", [np.maximum(*written)], "the truth"),
    ]
    words = "Capsules trained without labels on single digits; none saw two at once. The first ten pairs of the seed."
    return draw_rows("Two digits at once, pulled apart", words, rows, 84)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    bench = Bench(options.run, options.seed)
    if options.figure:
        write(draw_pairs(bench), options.figure)
        return
    path = RECORDS / f"scenes-{bench.model.config.data}-{options.seed}.json"
    record: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for name, (kind, answer) in rows(bench).items():
        if options.only and name not in options.only:
            continue
        scenes = make_scenes(bench.test, kind, options.count, options.seed)
        answer(Scenes(*(part[:2] for part in scenes)))  # kernels, decoders and baselines are made once
        start = time.process_time()
        scores = score(scenes, answer(scenes))
        scores["cpu_seconds"] = (time.process_time() - start) / options.count
        record[name] = {"scenes": options.count, **{key: round(value, 4) for key, value in scores.items()}}
        path.write_text(json.dumps(record, indent=1) + "\n")
        print(name, record[name], flush=True)


if __name__ == "__main__":
    with kernels.use("reference"):  # few images: nothing to compile
        main()
