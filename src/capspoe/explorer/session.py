"""The run as the page sees it: its newest checkpoint, its images, and the answers of the API.

Poses are whitened: 0 is the mean over the capsule's images, 1 a standard deviation along a
principal axis of its prior. Images are PNG data URLs, several as one sheet. Long work is a
generator (see scheduler.py).
"""

from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from capspoe import data
from capspoe.data.drawings import MNIST_SIZE, object_size
from capspoe.errors import CapspoeError, InputError, RunError
from capspoe.explorer.encoding import data_url, in_the_order_of, rounded, run_name, sheet
from capspoe.explorer.live_metrics import training_status
from capspoe.explorer.preprocessing import from_data_url
from capspoe.figures.explanation import tinted, tinted_alone
from capspoe.figures.gallery import label_of, shown_split
from capspoe.figures.summary import Summary, read_summary, reconstruction_error, summary
from capspoe.figures.traversal import sliders
from capspoe.infer.explain import MAXIMUM, Explanation, Search, explain_steps
from capspoe.infer.polarity import Polarity
from capspoe.model.checks import check_capsule
from capspoe.model.noise import Noise
from capspoe.run.checkpoint import DONE, exported, newest, numbered, open_run
from capspoe.run.model import SHIFT, CapsulePoE
from capspoe.run.pictures import sample_grid, tile_columns
from capspoe.training.codec_stage import CodecStage
from capspoe.training.prior_stage import fit_prior

Answer = dict[str, Any]
Steps = Generator[None, None, Answer]
Poses = Mapping[int, Sequence[float]]  # the pose of each capsule that is on

STRIP = (-3, -2, -1, 0, 1, 2, 3)  # positions in a strip
SURVEYED = {"test": 1024, "all": 4096}  # images that decide what a capsule is called
SURVEYED_IN_TRAINING = 256
PIECE = 4  # images processed between two yields
COMPLETIONS = 4  # of an image


class Session:
    """A run folder, opened. Its public methods answer the requests listed in api.py."""

    def __init__(self, folder: Path, moved: str | None = None, groups: bool = False) -> None:
        """`moved` says where the run's images are now, `groups` whether there is a page of a sorted folder."""
        self.folder = folder
        self.moved = moved
        self.groups = groups
        self.config, self.image, _ = open_run(folder)
        self.split = shown_split(moved or self.config.data)
        self.loaded: CapsulePoE | None = None
        self.checkpoint = 0  # the number of the loaded one
        self.surveys = 0
        self.stage: str | None = None
        self.dataset: data.Dataset | None = None
        self.no_dataset: str | None = None  # why the images cannot be opened
        self.polarity = Polarity()  # of the network
        self.object_size = MNIST_SIZE if self.image[2] == 1 else None
        self.winners = np.zeros(0, int)  # the winning capsule of each surveyed image
        self.summary = Summary([])
        self.sliders_of: dict[int, Answer] = {}
        self.reload()

    @property
    def network(self) -> CapsulePoE:
        if self.loaded is None:
            raise RunError("the run has no checkpoint yet; the page shows it as soon as there is one")
        return self.loaded

    @property
    def all_images(self) -> data.Dataset:
        if self.dataset is None:
            raise RunError(self.no_dataset or "the images are being opened")
        return self.dataset

    @property
    def revision(self) -> str:
        """Changes when the page may have something new to show: weights, labels, or that there are no images."""
        return f"{self.checkpoint}.{self.surveys}"

    # What is loaded.

    def reload(self) -> bool:
        """Load the newest checkpoint; False if it is the one already loaded."""
        # An exported folder has no checkpoints and counts as number 1; an empty run as 0.
        numbers = [int(path.name) for path in numbered(self.folder)]
        number = max(numbers, default=int(exported(self.folder)))
        if number == self.checkpoint:
            return False
        saved = newest(self.folder)
        network = CapsulePoE.build(self.config, self.image)
        network.load_weights(saved.weights)
        self.loaded = network.requires_grad_(False).eval()
        self.polarity = Polarity.of_network(network)
        self.checkpoint = number
        self.stage = saved.state.stage
        # What was found with the old weights no longer holds.
        self.winners = np.zeros(0, int)
        J = network.top.upper[0]
        self.summary = Summary([None] * J)
        if stored := read_summary(self.folder, J):
            self.summary = stored
            self.object_size = stored.object_size
        self.sliders_of = {}
        return True

    def open_images(self) -> None:
        """Open the run's images; this may take a while, and fails if they are gone."""
        try:
            dataset = data.open_for(self.config, self.image, self.moved, self.split, run=self.folder)
            if not len(dataset):
                raise InputError("the run's data set has no test images")
            some = dataset.batch(np.arange(min(200, len(dataset))))
            self.object_size = object_size(some)
            self.dataset = dataset
        except (CapspoeError, OSError) as error:
            self.no_dataset = str(error)
            self.surveys += 1  # tells the page that there will be none

    def survey(self) -> Generator[None, None, None]:
        """Find the winning capsule of many images; fit a simple prior if training has not yet fitted one."""
        network = self.network
        dataset = self.all_images
        count = SURVEYED[self.split] if self.stage == DONE else SURVEYED_IN_TRAINING
        count = min(len(dataset), count)
        codes = []
        winners = []
        errors = []
        for index in np.array_split(np.arange(count), -(-count // PIECE)):
            x = network.tensor(dataset.batch(index))
            up = network.up(x)
            codes.append(up.code)
            winners.append(up.winner)
            errors.append(reconstruction_error(network, x, up))
            yield
        if self.stage != DONE:
            fit_prior(network, torch.cat(codes).numpy(), components=1)
        # A newer checkpoint may have been loaded between two steps.
        if network is self.loaded:
            J = network.top.upper[0]
            self.winners = torch.cat(winners).numpy()
            self.sliders_of = {}
            self.summary = summary(J, dataset, self.winners, np.concatenate(errors))
            self.surveys += 1

    def run(self) -> Answer:
        J = None
        N = None
        if self.loaded:
            J, N = self.loaded.top.upper
        return {
            "name": run_name(self.folder),
            "groups": self.groups,
            "view": "play" if self.object_size is None else "two",
            "image": self.image,
            "dark": self.polarity.dark,
            "capsules": J,
            "dimensions": N,
            "gated": self.config.gate != "none",
            "stage": self.stage,
            "revision": self.revision,
            "images": len(self.dataset) if self.dataset else 0,
            "no_images": self.no_dataset,
            "kind": "images" if self.split == "all" else "test images",
        }

    def training(self) -> Answer:
        return {**training_status(self.folder, self.config, self.stage), "revision": self.revision}

    # From poses to images.

    def hidden(self, poses: Poses) -> Tensor:
        """The top-layer state with these capsules on, (1, J, N)."""
        top = self.network.top
        prior = self.network.prior
        J, N = top.upper
        top.gate.check_on(len(poses))
        h = torch.zeros(1, J, N)
        for j, pose in poses.items():
            check_capsule("capsule", j, J)
            if len(pose) != N:
                raise InputError(f"the pose of capsule {j} has {N} dimensions, not {len(pose)}")
            z = prior.from_white(torch.tensor([j]), torch.tensor([pose]).float())
            h[0, j] = top.hidden_mean(z)[0]
        return h

    def images_of(self, *states: Poses) -> np.ndarray:
        """What the network decodes from states in which these capsules are on."""
        network = self.network
        h = torch.cat([self.hidden(poses) for poses in states])
        on = torch.zeros(h.shape[:2])
        # The capsules that are on share the image evenly.
        for row, poses in enumerate(states):
            on[row, list(poses)] = 1 / len(poses)
        return network.array(network.down(h, on=on))

    def decode(self, poses: Poses) -> Answer:
        return {"image": sheet(self.images_of(poses))}

    def strips(self, poses: Poses, capsule: int) -> Steps:
        """A row for each dimension of the capsule's pose, which moves there, and the mean change of a pixel."""
        if capsule not in poses:
            raise InputError(f"capsule {capsule} is not on")
        self.hidden(poses)  # refuses poses that do not fit
        pose = poses[capsule]
        rows = []
        effect = []
        for n in range(len(pose)):
            moved = [{**poses, capsule: [*pose[:n], at, *pose[n + 1 :]]} for at in STRIP]
            row = self.images_of(*moved)
            change = row[STRIP.index(2)] - row[STRIP.index(-2)]
            rows.append(row)
            effect.append(float(np.abs(change).mean()))
            yield
        return {"strips": sheet(*rows), "effect": effect}

    def gallery(self) -> Steps:
        """What every capsule decodes to at its mean, its use, and the most common label of its images."""
        J, N = self.network.top.upper
        images = []
        for j in range(J):
            images.append(self.images_of({j: [0.0] * N})[0])
            yield
        names: list[Answer | None] = []
        for label_and_share in self.summary.labels:
            if label_and_share:
                label, share = label_and_share
                names.append({"label": label, "share": round(share, 3)})
            else:
                names.append(None)
        return {
            "sheet": sheet(images),
            "names": names,
            "surveyed": len(self.winners),  # images that the names were found on; 0 if they come with the network
            "use": rounded(self.network.prior.use),
        }

    def sliders(self, capsule: int) -> Answer:
        """The dimensions of the capsule's pose, strongest first, and what each changes, where that was measured."""
        check_capsule("capsule", capsule, self.network.top.upper[0])
        if capsule not in self.sliders_of:
            order, names = zip(*sliders(self.network, capsule), strict=True)
            self.sliders_of[capsule] = {"order": order, "names": names}
        return self.sliders_of[capsule]

    def samples(self) -> Answer:
        """Samples of every capsule; while the autoencoder trains, images above their reconstructions."""
        if self.stage == CodecStage.name:
            images = self.pixels(np.arange(min(10, len(self.all_images))))
            grid = np.stack([images, self.network.reconstruct(images, "autoencoder")])
        else:
            grid = sample_grid(self.network)
        return {"image": data_url(tile_columns(grid, scale=2))}

    def random(self, capsule: int, seed: int) -> Answer:
        """A pose drawn from the capsule's prior."""
        check_capsule("capsule", capsule, self.network.top.upper[0])
        prior = self.network.prior
        j = torch.tensor([capsule])
        noise = Noise(seed, 0, torch.zeros(1, dtype=torch.int64))
        z = prior.sample(j, noise, self.network.sampling.prior_scale)
        return {"capsule": capsule, "pose": rounded(prior.to_white(j, z)[0])}

    # From images to poses.

    def pixels(self, index: np.ndarray) -> np.ndarray:
        """Images of the data set as the network sees them, (n, H, W, C) in [0, 1]."""
        return self.network.array(self.network.tensor(self.all_images.batch(index)))

    def images(self, start: int, count: int, capsule: int) -> Answer:
        """Images of the data set: those of one capsule, among the surveyed ones, or all if `capsule` is -1."""
        matches = np.arange(len(self.all_images))
        if capsule >= 0:
            matches = np.flatnonzero(self.winners == capsule)
        index = matches[start : start + count]
        pixels = np.zeros((0, *self.image))
        if len(index):
            pixels = self.pixels(index)
        files = self.all_images.file_names
        images = []
        for k, image in zip(index.tolist(), pixels, strict=True):
            file = files and files[k]
            label = label_of(self.all_images, k)
            images.append({"index": k, "label": label, "file": file, "image": sheet([image])})
        return {"images": images, "more": start + count < len(matches)}

    def read(self, image: Mapping[str, Any]) -> np.ndarray:
        """The image that a request means, (H, W, C) in [0, 1]: one of the data set or a file."""
        if "index" in image:
            return self.pixels(np.array([image["index"]]))[0]
        return from_data_url(image["data"], self.image, self.object_size, image["fit"], self.polarity)

    def recognise(self, image: Mapping[str, Any]) -> Answer:
        """P(on) and the pose of every capsule, the reconstruction, and whether it is worse than most."""
        network = self.network
        pixels = self.read(image)
        x = network.tensor(pixels)
        up = network.up(x)
        error = float(reconstruction_error(network, x, up)[0])
        limit = self.summary.error
        poses = network.prior.to_white(torch.arange(len(up.z[0])), up.z[0])
        label = None
        if "index" in image:
            label = label_of(self.all_images, image["index"])
        return {
            "on": rounded(up.on[0], 6),
            "winner": int(up.winner),
            "poses": [rounded(pose) for pose in poses],
            "label": label,
            "unlike": limit is not None and error > limit,
            "input": sheet([pixels]),
            "reconstruction": sheet(network.array(network.down(up.state, up.c, on=up.winner))),
        }

    def explain(self, image: Mapping[str, Any]) -> Steps:
        """Two objects that overlap: the search as two rows of frames, and which object each pixel belongs to.

        All pictures have light ink, like the page's pad.
        """
        network = self.network
        pixels = self.read(image)
        frames = []
        x = network.tensor(pixels)
        for sets in explain_steps(network, x, 2, MAXIMUM, Search(shift=SHIFT)):
            explanation = Explanation.of(sets, MAXIMUM)
            frames.append(explanation.objects[0])
            yield
        frames = [in_the_order_of(frames[-1], frame) for frame in frames]
        first_row = [tinted_alone(frame[0], 0) for frame in frames]
        second_row = [tinted_alone(frame[1], 1) for frame in frames]
        ink = self.polarity.ink(pixels)
        neurons = network.top.upper[1]
        return {
            "frames": sheet(first_row, second_row),
            "count": len(frames),
            "capsules": explanation.capsule[0].tolist(),
            "probability": rounded(explanation.probability[0]),
            "poses": [rounded(pose[:neurons]) for pose in explanation.pose[0]],
            "owner": sheet([tinted(ink, explanation.owner[0])]),
            "input": sheet([ink]),
        }

    def complete(self, image: Mapping[str, Any], hidden: list[int], seed: int) -> Answer:
        """Several completions of an image whose pixels `hidden` are erased."""
        mask = np.zeros(self.image[:2], bool)
        if max(hidden) >= mask.size:
            raise InputError(f"hidden: the image has {mask.size} pixels")
        mask.flat[hidden] = True
        completion = self.network.complete(self.read(image), mask, COMPLETIONS, seed)
        return {"sheet": sheet(completion.images[0]), "capsules": completion.capsule[0].tolist()}
