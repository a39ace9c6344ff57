"""Several objects at once, and damage: python benchmarks/scenes.py [RUN] [--count 300] [--seed 0] [--only ROW ...]

A run without a recognition network gets one first, as `capspoe explain --learn` does.

Every row explains the same scenes of test images (`scene_data.make_scenes`, by seed). A capsule is named by the
commonest label of the training images for which it is on; labels are used for nothing else, except by the supervised
networks. The results are added to benchmarks/records/scenes-DATA-SEED.json row by row; rows that are there with as
many scenes are skipped. Then, or at once without a run, docs/scenes.md is written from these records and
benchmarks/scenes.md.in. --figure x.png draws ten pairs instead.
"""

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from results import DOCS, RECORDS
from scene_data import Answer, Scenes, make_scenes, score
from scenes_page import MANY, TABLES, draw_pairs, page
from scipy.optimize import linear_sum_assignment
from sklearn.decomposition import NMF, PCA
from torch import Tensor, nn
from torch.nn import functional as F

from capspoe import kernels
from capspoe.commands.explain import train_recognition
from capspoe.data import Images, load
from capspoe.figures.sheet import write
from capspoe.infer import explain as E
from capspoe.model.gates import place
from capspoe.model.prior import CapsulePrior
from capspoe.model.routing import route
from capspoe.run.model import CapsulePoE
from capspoe.train.codes import codes_in_memory
from capspoe.train.spectral import spectral_groups

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from supervised_capsules import CapsuleNetwork

MAIN, OTHER = 1_000, 300  # scenes of the main rows, and of all others
NAMED = 4_000  # training images that name the capsules
GROUPED = 15_000  # training images of the linear baseline
BANK = 2_000  # training images of the nearest pair
NINE = 9  # capsules that the gate proposes
MINUTES = 5.0  # of one core, to train each supervised network


class Bench:
    """A trained run and its data."""

    def __init__(self, run: Path, seed: int) -> None:
        self.model, self.seed = CapsulePoE.load(run).requires_grad_(False), seed
        if self.model.recognition is None:
            train_recognition(self.model, run)
        self.train, self.test = (load(self.model.config.data, split) for split in ("train", "test"))
        on = self.model.encode(self.train.pixels[:NAMED]).on.argmax(1)
        self.names = commonest(on, self.train.labels[:NAMED], self.model.top.upper[0])

    def on(
        self, images: np.ndarray, normalize: str = "lower", iterations: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """P(on) and the poses z by the gate, with another way of routing."""
        top = self.model.top
        x = self.model.up(self.model.tensor(images)).x
        scale = top.upper[0] / top.lower[0] if normalize == "upper" else 1.0  # uniform routing gives the same z
        z = route(x - top.mu, scale * top.W, iterations or top.iterations, normalize, top.agreement, top.sharpness).z
        return top.on_probability(z + top.b, x), z + top.b

    def gate(self, scenes: Scenes, *routing: Any) -> Answer:
        """The most probable capsules of the gate, and the labels of its nine best."""
        on, _ = self.on(scenes.images, *routing)
        order = self.names[on.argsort(1, descending=True).numpy()]
        return Answer(order[:, : scenes.objects.shape[1]], proposed=order[:, :NINE])

    def recognition(self, scenes: Scenes) -> Answer:
        """The most probable capsules of the recognition network."""
        order = self.odds(self.model.tensor(scenes.images)).argsort(1, descending=True).numpy()
        return Answer(self.names[order[:, : scenes.objects.shape[1]]], proposed=self.names[order[:, :NINE]])

    def odds(self, x: Tensor) -> Tensor:
        assert self.model.recognition is not None
        return torch.cat([self.model.recognition(part) for part in x.split(E.Search.chunk_size)])

    def alone(self, scenes: Scenes, *how: Any) -> Answer:
        """The search without the recognition network."""
        net = self.model.recognition
        self.model.recognition = None
        try:
            return self.search(scenes, *how)
        finally:
            self.model.recognition = net

    def search(self, scenes: Scenes, compose: str = "maximum", shift: float = 0.0) -> Answer:
        found = self.model.explain(scenes.images, scenes.objects.shape[1], compose, shift)
        return Answer(self.names[found.capsule], found.objects, found.owner)

    def searched(
        self, scenes: Scenes, composition: E.Composition = E.MAXIMUM, start: Callable[[Tensor], Tensor] | None = None
    ) -> Answer:
        """The search with another composition, or with poses that `start` gives instead of the usual ones."""
        search = E.Search() if start is None else E.Search(start=lambda decode, shape, images: start(images))
        parts = []
        for x in self.model.tensor(scenes.images).split(search.chunk_size):
            decoders, k = E.decoders_of(self.model), scenes.objects.shape[1]
            steps = E.search_steps(decoders, x, k, composition, search, self.odds(x))
            parts.append(E.Explanation.of(E.last(steps), E.MAXIMUM))
        found = E.Explanation.concatenate(parts)
        return Answer(self.names[found.capsule], found.objects, found.owner)

    def routed_start(self, iterations: int) -> Callable[[Tensor], Tensor]:
        """Proposals start at the mean and at the pose that routing of the scene gives each capsule."""

        def start(x: Tensor) -> Tensor:
            _, z = self.on(self.model.array(x), "lower", iterations)
            J = self.model.top.upper[0]
            white = self.model.prior.to_white(torch.arange(J).repeat(len(x)), z.flatten(0, 1)).view(z.shape)
            return torch.stack([torch.zeros_like(white), white.clamp(-2, 2)], 2)

        return start

    def mean_field(self, x: Tensor, sets: Tensor, iterations: int = 10) -> tuple[Tensor, Tensor]:
        """Mean-field inference in the assignment energy: each lower capsule i belongs to s_i, one of the upper
        capsules of a set (S, k) or the background, which is the code of a blank image.

        E(x, h, s) = |h|^2 / 2 - b'h - sum_i (h_j' w_ij (x_i - mu_i) + a_ij' x_i - sum softplus(a_ij)), with j = s_i.
        Returns the free energy of every set, (B, S), and the means of h, (B, S, k, N).
        """
        top = self.model.top
        blank = torch.logit(self.model.up(torch.zeros_like(x[:1])).x, eps=1e-4)
        b, found = top.b[sets], []
        for code in self.model.up(x).x:
            u = torch.einsum("jnmi,im->jin", top.w_JNMI, code - top.mu)[sets]
            a = torch.cat([blank, top.a])
            p = (a * code - F.softplus(a)).sum(-1)
            background, own, m = p[:1].expand(len(sets), 1, -1), p[1:][sets], b
            for _ in range(iterations + 1):
                logits = torch.cat([background, own + torch.einsum("skin,skn->ski", u, m)], 1)
                free = (m.square() / 2 - b * m).sum((1, 2)) - logits.logsumexp(1).sum(-1)
                before, m = m, torch.einsum("ski,skin->skn", logits.softmax(1)[:, 1:], u) + b
            found.append((free, before))
        free, mean = (torch.stack(values) for values in zip(*found, strict=True))
        return free, mean

    def assigned(self, scenes: Scenes) -> Answer:
        """The pair of capsules with the lowest free energy of the assignment."""
        pairs = torch.tensor(list(itertools.combinations(range(self.model.top.upper[0]), 2)))
        free, _ = self.mean_field(self.model.tensor(scenes.images), pairs)
        return Answer(self.names[pairs[free.argmin(1)].numpy()])

    def assigned_start(self, x: Tensor) -> Tensor:
        """Proposals start at the mean and at the pose that the assignment to all capsules gives."""
        J = self.model.top.upper[0]
        z = self.mean_field(x, torch.arange(J)[None])[1][:, 0]
        white = self.model.prior.to_white(torch.arange(J).repeat(len(x)), z.flatten(0, 1)).view(z.shape)
        return torch.stack([torch.zeros_like(white), white.clamp(-2, 2)], 2)

    def codes(self, scenes: Scenes) -> Answer:
        """Pairs of the gate's nine best, composed in the code: logits added, relative to those of a blank image."""
        model, top = self.model, self.model.top
        blank = torch.logit(model.up(torch.zeros(1, *model.tensor(scenes.images[:1]).shape[1:])).x, eps=1e-4)
        pairs, parts = torch.tensor(list(itertools.combinations(range(NINE), 2))), []
        for images in np.array_split(scenes.images, -(-len(scenes.images) // E.Search.chunk_size)):
            on, z = self.on(images)
            x = model.up(model.tensor(images)).x[:, None]
            capsule = on.topk(NINE, 1).indices[:, pairs]
            rows = torch.arange(len(x))[:, None, None]
            white = model.prior.to_white(capsule.flatten(), z[rows, capsule].flatten(0, 2)).unflatten(
                0, capsule.shape
            )

            def code(which: Tensor, white: Tensor) -> Tensor:
                h = place(model.prior.from_white(which, white), which, top.upper[0])
                return torch.logit(model.down_to_code(h, None, 1.0, which), eps=1e-6)[:, None] - blank

            def likelihood(logits: Tensor, x: Tensor = x) -> Tensor:
                p = torch.sigmoid(logits[:, :, :, 0].sum(2) + blank)
                return -F.binary_cross_entropy(p, x.expand_as(p), reduction="none").sum((2, 3))

            best = E.last(E.fit(code, capsule, white.clamp(-2, 2), likelihood, E.Ascent(25, 0.2))).best_first()
            drawn = E.decoders_of(model).exact(best.capsule[:, 0].flatten(), best.pose[:, 0].flatten(0, 1))
            objects = drawn.unflatten(0, (len(x), 2))
            parts.append((self.names[best.capsule[:, 0].numpy()], objects, E.MAXIMUM.responsibilities(objects)))
        labels, objects, owner = (
            np.concatenate([np.asarray(v) for v in values]) for values in zip(*parts, strict=True)
        )
        return Answer(labels, objects.transpose(0, 1, 3, 4, 2), owner)

    def oracle(self, scenes: Scenes) -> Answer:
        """Told the capsules, which the gate gives for each object alone; only the poses are searched."""
        n, k, *image = scenes.objects.shape
        capsule = self.model.encode(scenes.objects.reshape(n * k, *image)).on.argmax(1).reshape(n, k)
        x, chosen = self.model.tensor(scenes.images), torch.from_numpy(capsule)[:, None]
        decoders, search = E.decoders_of(self.model), E.Search().for_objects(k)
        alone = E.propose(decoders, E.Objective(x, search=search)).pose[:, :: search.starts, 0]
        pose = alone[torch.arange(n)[:, None, None], chosen]

        def whole(objects: Tensor) -> Tensor:
            return -E.misfit(objects.amax(2), x[:, None], search)

        for decode in (decoders.linear, decoders.exact):
            found = E.last(E.fit(decode, chosen, pose, whole, E.Ascent(25, 0.2)))
            pose = found.pose
        best = E.Explanation.of(found, E.MAXIMUM)
        return Answer(self.names[best.capsule], best.objects, best.owner)

    @cache  # noqa: B019
    def groups(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The codes of training images, their spectral groups, and the names of the groups."""
        config = self.model.config
        codes = codes_in_memory(self.model, self.train.pixels[:GROUPED])
        group = spectral_groups(codes, self.model.top.upper[0], config.neighbours, config.seed)
        assert group is not None
        names = commonest(group, self.train.labels[:GROUPED], self.model.top.upper[0])
        return codes.reshape(len(codes), -1).astype(np.float32), group, names

    @cache  # noqa: B019
    def linear(self) -> E.Decoders:
        """16 principal components of each group of codes instead of capsules."""
        model, (J, N), (flat, group, _) = self.model, self.model.top.upper, self.groups()
        prior, means, axes = CapsulePrior(J, N, 1), [], []
        for j in range(J):
            pca = PCA(N, random_state=0).fit(flat[group == j])
            prior.fit(j, pca.transform(flat[group == j]), components=1)
            means.append(pca.mean_)
            axes.append(pca.components_)
        mean, axis = torch.from_numpy(np.stack(means)), torch.from_numpy(np.stack(axes))

        def decode(capsule: Tensor, white: Tensor) -> Tensor:
            code = mean[capsule] + torch.einsum("rn,rnv->rv", prior.from_white(capsule, white), axis[capsule])
            code = torch.sigmoid(E.Search.logit_scale * torch.logit(code, eps=1e-3))
            return model.codec.decode(code.view(-1, *model.codec.capsules))

        return E.Decoders(E.linear_decoder(decode, (J, N)), decode, (J, N))

    @cache  # noqa: B019
    def capsule_of_group(self) -> Tensor:
        """The capsule of each spectral group: as many images as possible have both in common."""
        group, on = self.groups()[1], self.model.encode(self.train.pixels[:GROUPED]).on.argmax(1)
        both = np.zeros((self.model.top.upper[0],) * 2)
        np.add.at(both, (group, on), 1)
        return torch.from_numpy(linear_sum_assignment(-both)[1])

    def pca(self, scenes: Scenes, recognition: bool = True) -> Answer:
        decoders, names, k = self.linear(), self.groups()[2], scenes.objects.shape[1]
        parts = []
        for x in self.model.tensor(scenes.images).split(E.Search.chunk_size):
            odds = self.odds(x)[:, self.capsule_of_group()] if recognition else None
            parts.append(E.Explanation.of(E.last(E.search_steps(decoders, x, k, log_odds=odds)), E.MAXIMUM))
        found = E.Explanation.concatenate(parts)
        return Answer(names[found.capsule], found.objects, found.owner)

    @cache  # noqa: B019
    def strokes(self) -> Tensor:
        """For each group 16 non-negative components of its images, (J, 16, P)."""
        pixels, (_, group, _) = self.train.pixels[:GROUPED].reshape(GROUPED, -1) / 255, self.groups()
        N = self.model.top.upper[1]
        fits = [NMF(N, random_state=0, tol=1e-3).fit(pixels[group == j][:500]) for j in np.unique(group)]
        return torch.from_numpy(np.stack([fit.components_ for fit in fits])).float()

    def factors(self, scenes: Scenes, steps: int = 40) -> Answer:
        """Every pair of groups, the sum of their components fitted by multiplicative updates; the best fit wins."""
        parts, J = self.strokes(), self.model.top.upper[0]
        pairs = torch.tensor(list(itertools.combinations(range(J), 2)))
        basis = parts[pairs].flatten(1, 2)  # (pairs, 2 N, P)
        gram, found = basis @ basis.mT, []
        for x in self.model.tensor(scenes.images):
            target, weight = (basis @ x.flatten())[:, :, None], torch.ones(len(pairs), basis.shape[1], 1)
            for _ in range(steps):
                weight = weight * target / (gram @ weight).clamp_min(1e-9)
            error = ((basis.mT @ weight)[:, :, 0] - x.flatten()).square().sum(1)
            best = int(error.argmin())
            alone = torch.einsum("mn,mnp->mp", weight[best].view(2, -1), parts[pairs[best]])
            found.append((self.groups()[2][pairs[best]], alone.clamp_max(1).view(2, *x.shape)))
        objects = torch.stack([alone for _, alone in found])
        owner = E.COMPOSITIONS["sum"].responsibilities(objects).numpy()
        return Answer(np.stack([names for names, _ in found]), objects.permute(0, 1, 3, 4, 2).numpy(), owner)

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
        owner = E.MAXIMUM.responsibilities(bank[index]).numpy()
        return Answer(self.train.labels[index.numpy()], bank[index].permute(0, 1, 3, 4, 2).numpy(), owner)

    @cache  # noqa: B019
    def network(self, capsules: bool) -> nn.Module:
        """A network trained with labels on superposed training images for `MINUTES`.

        Two convolutions, or a narrower copy of Sabour's capsules, with their loss.
        """
        torch.manual_seed(self.seed)
        (height, width, colours), classes = self.train.pixels.shape[1:], int(self.train.labels.max()) + 1
        net: nn.Module = nn.Sequential(
            nn.Conv2d(colours, 32, 5, 2, 2), nn.ReLU(), nn.Conv2d(32, 64, 5, 2, 2), nn.ReLU(), nn.Flatten(),
            nn.Linear(64 * -(-height // 4) * -(-width // 4), 256), nn.ReLU(), nn.Linear(256, classes),
        )  # fmt: skip
        if capsules:
            net = CapsuleNetwork(height, classes, channels=32)
        optimizer, start = torch.optim.Adam(net.parameters(), 1e-3), time.process_time()
        for block in itertools.count(self.seed + 1):
            data = make_scenes(Images(self.train.pixels, self.train.labels), "superposed", 6_400, block)
            for rows in np.split(np.arange(6_400), 100):
                done = (time.process_time() - start) / 60 / MINUTES
                if done >= 1:
                    return net.requires_grad_(False)
                optimizer.param_groups[0]["lr"] = 1e-3 * (1 - done)
                x = torch.from_numpy(data.images[rows]).float().permute(0, 3, 1, 2) / 255
                target = F.one_hot(torch.from_numpy(data.labels[rows]), classes).amax(1).float()
                loss = pair_loss(net(x), target) if capsules else F.binary_cross_entropy_with_logits(net(x), target)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        raise AssertionError

    def supervised(self, scenes: Scenes, capsules: bool = False) -> Answer:
        with kernels.use("auto"):
            parts = [self.network(capsules)(x) for x in self.model.tensor(scenes.images).split(100)]
        return Answer(torch.cat(parts).topk(scenes.objects.shape[1], 1).indices.numpy())


def pair_loss(length: Tensor, there: Tensor) -> Tensor:
    """The margin loss of Sabour et al. (their Eq. 4), for several classes at once."""
    short, long = F.relu(0.9 - length).square(), F.relu(length - 0.1).square()
    return (there * short + 0.5 * (1 - there) * long).sum(-1).mean()


def commonest(group: np.ndarray, labels: np.ndarray, groups: int) -> np.ndarray:
    """The commonest label of each group."""
    return np.array([np.bincount(labels[group == j], minlength=1).argmax() for j in range(groups)])


class SoftMaximum(E.Maximum):
    """The maximum with every pixel shared between the objects: routing weights in the middle of the search."""

    def compose(self, objects: Tensor) -> Tensor:
        return (self.responsibilities(objects)[:, :, None] * objects).sum(1)


def rows(bench: Bench) -> dict[str, tuple[str, Callable[[Scenes], Answer]]]:
    """Name of a row: the kind of scene, and who explains it."""
    found: dict[str, tuple[str, Callable[[Scenes], Answer]]] = {
        "search": ("superposed", bench.search),
        "search alone": ("superposed", bench.alone),
        "recognition network": ("superposed", bench.recognition),
        "gate's two best": ("superposed", bench.gate),
        "gate's two best, no routing": ("superposed", lambda s: bench.gate(s, "lower", 1)),
        "gate's two best, routing over upper capsules": ("superposed", lambda s: bench.gate(s, "upper")),
        "spectral groups + PCA, same search": ("superposed", bench.pca),
        "spectral groups + PCA, search alone": ("superposed", lambda s: bench.pca(s, recognition=False)),
        "shifted, gate": ("shifted", bench.gate),
        "shifted, recognition network": ("shifted", bench.recognition),
        "shifted, search": ("shifted", bench.search),
        "shifted, search with shift": ("shifted", lambda s: bench.search(s, shift=2.0)),
        "told the capsules": ("superposed", bench.oracle),
        "nearest pair of 2,000 images": ("superposed", bench.nearest),
        "codes composed": ("superposed", bench.codes),
        "spectral groups + NMF": ("superposed", bench.factors),
        "supervised network": ("superposed", bench.supervised),
        "supervised capsules": ("superposed", lambda s: bench.supervised(s, capsules=True)),
        "assignment energy": ("superposed", bench.assigned),
        "starts by assignment": ("superposed", lambda s: bench.searched(s, start=bench.assigned_start)),
        "as it is": ("superposed", bench.searched),
        "soft maximum": ("superposed", lambda s: bench.searched(s, SoftMaximum())),
        "starts by routing": ("superposed", lambda s: bench.searched(s, start=bench.routed_start(3))),
        "starts without routing": ("superposed", lambda s: bench.searched(s, start=bench.routed_start(1))),
        "three, gate": ("three", bench.gate),
        "three, recognition network": ("three", bench.recognition),
        "three, search": ("three", bench.search),
    }
    for kind in ("hole", "missing side", "fragments"):
        found |= {
            f"{kind}, {who}": (kind, answer)
            for who, answer in (
                ("gate", bench.gate),
                ("search alone", bench.alone),
                ("recognition network", bench.recognition),
                ("search", bench.search),
            )
        }
    occlusion = ("occluded", lambda s: bench.search(s, "occlusion"))
    return found | {
        "occluded, gate": ("occluded", bench.gate),
        "occluded, recognition network": ("occluded", bench.recognition),
        "occluded, search alone": ("occluded", lambda s: bench.alone(s, "occlusion")),
        "occluded, search": occlusion,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("--count", type=int, help="scenes of every row")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.run:
        measure(options)
    print((DOCS / "scenes.md").write_text(page()), "characters in docs/scenes.md")


def measure(options: argparse.Namespace) -> None:
    bench = Bench(options.run, options.seed)
    if options.figure:
        scenes = make_scenes(bench.test, "superposed", 10, bench.seed)
        write(draw_pairs(scenes, bench.search(scenes)), options.figure)
        return
    path = RECORDS / f"scenes-{bench.model.config.data}-{options.seed}.json"
    record: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    wanted = options.only or {
        n for data, names, _ in TABLES.values() if data == bench.model.config.data for n in names
    }
    for name, (kind, answer) in rows(bench).items():
        count = options.count or (MAIN if name in MANY else OTHER)
        if name not in wanted or record.get(name, {}).get("scenes", 0) >= count:
            continue
        scenes = make_scenes(bench.test, kind, count, options.seed)
        answer(Scenes(*(part[:2] for part in scenes)))  # kernels, decoders and baselines are made once
        start = time.process_time()
        scores = score(scenes, answer(scenes))
        scores["cpu_seconds"] = (time.process_time() - start) / count
        record[name] = {"scenes": count, **{key: round(value, 4) for key, value in scores.items()}}
        path.write_text(json.dumps(record, indent=1) + "\n")
        print(name, record[name], flush=True)


if __name__ == "__main__":
    with kernels.use("reference"):  # few images: nothing to compile
        main()
