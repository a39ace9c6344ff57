"""The rows of the table: a run, what it could be instead, and the baselines, all scored alike."""

import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from capspoe.errors import DivergedError
from capspoe.evaluate import baselines
from capspoe.evaluate.material import Made, Material, codes_of, hidden_of
from capspoe.evaluate.probe import probe
from capspoe.evaluate.scoring import Yardstick, yardstick_for
from capspoe.evaluate.settings import Settings
from capspoe.evaluate.specialise import specialisation
from capspoe.model import CapsulePoE

Row = dict[str, Any]


class Rows:
    """Rows of one run, each made when asked for."""

    def __init__(self, material: Material, settings: Settings) -> None:
        self.model, self.material, self.settings = material.model, material, settings

    @property
    def yardstick(self) -> Yardstick:
        return yardstick_for(self.model, told=self.material.told)

    def row(self, name: str, make: Callable[[], Made], probed: bool = True) -> Row:
        """A model's samples, groups and features, scored; what it has not is None."""
        began = time.monotonic()
        made = make()
        row: Row = {"name": name, **self.yardstick.score(made.images, self.settings.neighbours)}
        labels = self.material.test_labels
        row["purity"] = row["nmi"] = row["probe"] = None
        if made.winner is not None and labels is not None:
            row |= specialisation(made.winner, labels, made.groups, self.yardstick.classes)
        if made.features is not None and probed:
            row["probe"] = probe(self.material, made.features, self.settings.probe_images)
        row["seconds"] = round(time.monotonic() - began, 1)
        return row

    def baseline(self, name: str, make: Callable[[Material], Made]) -> list[Row]:
        return [self.row(name, lambda: make(self.material))]

    def floors(self) -> list[Row]:
        """What no model can be much better than: training images, themselves and through the network."""
        some = self.yardstick.train_some(self.settings.samples)
        reconstruct = self.model.reconstruct
        return [
            self.row("floor: training images", lambda: Made(some)),
            self.row("floor: autoencoder reconstructions", lambda: Made(reconstruct(some, "autoencoder"))),
            self.row("floor: capsule reconstructions", lambda: Made(reconstruct(some))),
        ]

    def own(self) -> list[Row]:
        """The run itself, by its three ways to generate."""
        model, material, gibbs = self.model, self.material, self.settings.gibbs
        return [
            self.row("capspoe", lambda: baselines.of_capsules(model, material)),
            self.row(
                "capspoe, the paper's sampling",
                lambda: baselines.of_capsules(model, material, "standard"),
                probed=False,
            ),
            self.row(
                f"capspoe, after {gibbs} Gibbs steps",
                lambda: baselines.of_capsules(model, material, gibbs=gibbs),
                probed=False,
            ),
        ]

    def variant(self, name: str, **changes: Any) -> list[Row]:
        """The run with other capsules on the same codes."""
        material = self.material

        @cache  # the first row trains it, and its seconds say so
        def other() -> CapsulePoE:
            return baselines.variant(self.model, material.train_codes, material.told, **changes)

        try:
            return [
                self.row(name, lambda: baselines.of_capsules(other(), material, "fitted")),
                self.row(
                    f"{name}, the paper's sampling",
                    lambda: baselines.of_capsules(other(), material, "standard"),
                    probed=False,
                ),
            ]
        except DivergedError as error:
            return [{"name": name, "failed": str(error)}]

    def literal(self, folder: Path) -> list[Row]:
        """The paper to the letter, autoencoder included, trained into the folder."""
        name = "the paper to the letter"

        def make() -> Made:
            other = baselines.train_literal(self.model, folder)
            own_codes = codes_of(other, self.material.test_pixels)
            made = baselines.of_capsules(other, self.material, own_codes=own_codes)
            return made._replace(features=lambda pixels, _: hidden_of(other, codes_of(other, pixels))[1])

        try:
            return [self.row(name, make)]
        except DivergedError as error:
            return [{"name": name, "failed": str(error)}]
