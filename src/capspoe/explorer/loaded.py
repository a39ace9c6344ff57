"""What is loaded of a run: its newest checkpoint, its images, and what these say of the capsules."""

from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from capspoe import checkpoint, data, hub
from capspoe.encoding import open_for
from capspoe.errors import CapspoeError, InputError, RunError
from capspoe.explorer.ink import MNIST, Framing
from capspoe.figures.gallery import label_name
from capspoe.model import CapsulePoE
from capspoe.stages import fit_prior

T = TypeVar("T")
Steps = Generator[None, None, T]  # work that yields every few milliseconds and returns its result

STUDIED = 1024  # images from which a capsule gets its name
STUDIED_IN_TRAINING = 256
PIECE = 4  # images handled between two yields


class Loaded:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        run = checkpoint.open_run(folder)
        self.config, self.image = run.config, run.image
        self.model_or_none: CapsulePoE | None = None
        self.checkpoint, self.stage, self.studies = 0, "", 0
        self.source: data.Source | None = None
        self.no_source = "the images of the run are being opened"
        self.framing = MNIST if run.image[2] == 1 else Framing(None)
        self.winners: np.ndarray | None = None  # (n,) the capsule that is on for each studied image
        self.kept: dict[Any, Any] = {}  # results that hold for this revision
        self.reload()

    @property
    def model(self) -> CapsulePoE:
        if self.model_or_none is None:
            raise RunError("the run has no checkpoint yet; it appears here as soon as there is one")
        return self.model_or_none

    @property
    def revision(self) -> str:
        """Changes whenever the page may have something else to show: a model, names, a reason without images."""
        return f"{self.checkpoint}.{self.studies}"

    @property
    def gated(self) -> bool:
        return self.config.capsules.gate != "none"

    def reload(self) -> bool:
        """Load the newest checkpoint if it is another one than before."""
        numbers = [int(path.name) for path in checkpoint.numbered(self.folder)]
        newest = max(numbers, default=1 if hub.exported(self.folder) else 0)
        if newest == self.checkpoint:
            return False
        saved = hub.newest(self.folder)
        model = CapsulePoE(self.config, self.image)
        model.load_weights(saved.weights)
        model.requires_grad_(False)
        self.model_or_none = model.eval()
        self.checkpoint, self.stage, self.winners = newest, saved.state.stage, None
        self.kept.clear()
        return True

    def open_images(self) -> None:
        """The run's own test images. May take a while, or fail where they are no longer to be had."""
        try:
            source = open_for(CapsulePoE(self.config, self.image), None, "test")
            if not len(source):
                raise InputError("the run's data has no test images")
            self.framing = Framing.of(source.batch(np.arange(min(200, len(source)))))
            self.source = source
        except (CapspoeError, OSError) as error:
            self.no_source = str(error)
            self.studies += 1  # there will be none to tell the page

    def images(self) -> data.Source:
        if self.source is None:
            raise RunError(self.no_source)
        return self.source

    @torch.no_grad()
    def study(self) -> Steps[None]:
        """Name the capsules by the images that switch them on; fit a simple prior where training has not yet."""
        model, source = self.model, self.images()
        count = min(len(source), STUDIED if self.stage == "done" else STUDIED_IN_TRAINING)
        codes, winners = [], []
        for start in range(0, count, PIECE):
            x = model.autoencoder.encode(
                model.tensor(source.batch(np.arange(start, min(start + PIECE, count))))
            )
            codes.append(x)
            winners.append(model.top.on_given_visible(model.top(model.lift(x)).z).argmax(-1))
            yield
        if self.stage != "done":
            fit_prior(model, torch.cat(codes).numpy(), components=1)
        if model is self.model_or_none:
            self.winners = torch.cat(winners).numpy()
            self.studies += 1
            self.kept.clear()

    def names(self) -> list[dict[str, Any] | None]:
        """For each capsule what most of its images are, by their labels, which training never saw."""
        J = self.model.top.upper[0]
        source = self.source
        if self.winners is None or source is None or source.labels is None:
            return [None] * J
        names: list[dict[str, Any] | None] = []
        for j in range(J):
            labels = source.labels[: len(self.winners)][self.winners == j]
            if not len(labels):
                names.append(None)
                continue
            label, times = Counter(labels.tolist()).most_common(1)[0]
            names.append(
                {
                    "label": label_name(source, label),
                    "share": round(times / len(labels), 3),
                    "images": len(labels),
                }
            )
        return names
