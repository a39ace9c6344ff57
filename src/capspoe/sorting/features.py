"""From what was read of each image to points whose distances say how alike images are."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, UInt8

from capspoe.data import evenly_spaced
from capspoe.errors import InputError
from capspoe.sorting.silhouette import silhouette
from capspoe.training.spectral import PCA_IMAGES, fit_pca
from capspoe.training.views import (
    choose_view,
    colour_histogram,
    colour_layout,
    colourfulness,
    hog,
    photos_installed,
    upright_hog,
)
from capspoe.training.views.hog import small_images
from capspoe.training.views.photos import INSTALL
from capspoe.training.views.upright import border_ink

Kind = Literal["outlines", "photos"]
OUTLINES: dict[str, Callable[[np.ndarray], np.ndarray]] = {"hog": hog, "upright-hog": upright_hog}
# What is compared beside outlines, and its weight, by the colours that images have. Chosen on emoji and 4,000 images
# of CIFAR-10, whose labels we looked at.
BESIDE: dict[str, list[tuple[Callable[[np.ndarray], np.ndarray], float]]] = {
    "histogram": [(colour_histogram, 0.7), (silhouette, 0.7)],
    "layout": [(colour_layout, 0.4)],
    "none": [],
}
COLOURFUL = 0.1  # share of an image's pixels from which on it is a coloured image
NO_BACKGROUND = 0.7  # ink of the border from which on an image has no plain background: photographs have .8
CHOICE_IMAGES = 100  # fewer are too few to tell whether upright outlines are better
PIECE = 512  # images whose features are computed at once


class Choice(NamedTuple):
    """Which features to compute, and a sentence that says why and how to choose the others."""

    kind: Kind
    why: str


def choose_kind(pixels: UInt8[np.ndarray, "n H W 3"]) -> Choice:
    """Features of photographs if most images are coloured or have no background, otherwise outlines."""
    coloured = colourfulness(pixels) > COLOURFUL
    full = border_ink(small_images(pixels)).numpy() > NO_BACKGROUND
    if np.mean(coloured | full) <= 0.5:
        other = "--features photos compares what they show" if photos_installed() else f"for photographs: {INSTALL}"
        return Choice("outlines", f"most images are drawings without colour: comparing outlines ({other})")
    if not photos_installed():
        need = f"for photographs and colour drawings, features that know objects do better: {INSTALL}"
        return Choice("outlines", f"comparing outlines and colours ({need})")
    origin = "by a network that learned from ImageNet's labels"
    other = "--features outlines uses no pretrained network"
    return Choice("photos", f"most images are photographs or in colour: comparing what they show, {origin} ({other})")


def check_kind(kind: str) -> None:
    """Refuse features whose extra is not installed."""
    if kind == "photos" and not photos_installed():
        raise InputError(f"--features photos needs its extra: {INSTALL}")


@dataclass(frozen=True)
class Projection:
    """Features in their leading principal components, fitted to some images and applicable to others.

    view      "photos", "hog" or "upright-hog"
    colours   beside outlines: "histogram" for drawings, "layout" for images without a background, or "none"
    scales    factors of the outlines and of what is compared beside them
    centre    of the features of photographs, whose directions from it are compared; 0 for outlines
    mean, components    of the PCA
    """

    view: str
    colours: str
    scales: tuple[float, ...]
    centre: Float[np.ndarray, " V"]
    mean: Float[np.ndarray, " V"]
    components: Float[np.ndarray, "D V"]

    @classmethod
    def fit(
        cls, kind: Kind, small: np.ndarray, photos: np.ndarray | None, neighbours: int, seed: int
    ) -> "Projection":
        """Fit to images: choose upright outlines or not, weigh the colours, find the principal components."""
        rows = evenly_spaced(len(small), PCA_IMAGES)
        if kind == "photos":
            assert photos is not None
            features = photos[rows].astype(np.float32)
            centre = features.mean(0)
            return cls._of("photos", "none", (1.0,), centre, directions(features, centre), seed)
        colours = suitable_colours(small[rows])
        view = "hog"
        if colours == "none" and len(small) >= CHOICE_IMAGES:
            view = choose_view(grey(small), neighbours, seed)
        scales: tuple[float, ...] = (1 / spread(computed(OUTLINES[view], small[rows])),)
        for function, weight in BESIDE[colours]:
            scales = (*scales, weight / spread(computed(function, small[rows])))
        sample = side_by_side(small[rows], view, colours, scales)
        return cls._of(view, colours, scales, np.zeros(sample.shape[1], np.float32), sample, seed)

    @classmethod
    def _of(
        cls, view: str, colours: str, scales: tuple[float, ...], centre: np.ndarray, sample: np.ndarray, seed: int
    ) -> "Projection":
        if len(np.unique(sample, axis=0)) < 2:  # there are no principal components
            return cls(view, colours, scales, centre, sample.mean(0), np.zeros((1, sample.shape[1]), np.float32))
        pca = fit_pca(sample, seed)
        return cls(view, colours, scales, centre, pca.mean_.astype(np.float32), pca.components_.astype(np.float32))

    @property
    def separates(self) -> bool:
        """Whether images of one kind form clusters: outlines of photographs do not (CIFAR-10)."""
        return self.colours != "layout"

    @property
    def noisy(self) -> bool:
        """Whether neighbours are often of another kind, so that edges need weights.

        With weights the mean purity of emoji of three vendors and of mixed pictures is .589 instead of .569, and .674
        instead of .643 for features of photographs of emoji; but that of letters is .83 instead of .92, because
        nearly equal fonts then become groups of their own.
        """
        return self.view == "photos" or self.colours == "histogram"

    def points(self, small: np.ndarray, photos: np.ndarray | None) -> Float[np.ndarray, "n D"]:
        """The points of images. The last coordinate is the distance from the subspace of the components.

        It tells images that are unlike those of the fit, which may be projected into the middle of them.
        """
        points = np.empty((len(small), len(self.components) + 1), np.float32)
        for start in range(0, len(small), PIECE):
            part = slice(start, start + PIECE)
            if self.view == "photos":
                assert photos is not None
                features = directions(photos[part].astype(np.float32), self.centre)
            else:
                features = side_by_side(small[part], self.view, self.colours, self.scales)
            centred = features - self.mean
            inside = centred @ self.components.T
            outside = np.square(centred).sum(1) - np.square(inside).sum(1)
            points[part, :-1] = inside
            points[part, -1] = np.sqrt(np.maximum(outside, 0))
        return points


def directions(features: Float[np.ndarray, "n V"], centre: Float[np.ndarray, " V"]) -> Float[np.ndarray, "n V"]:
    """The directions in which features lie from a centre: their distances are those of angles."""
    away = features - centre
    return away / np.maximum(np.linalg.norm(away, axis=1, keepdims=True), 1e-6)


def suitable_colours(small: UInt8[np.ndarray, "n S S 3"]) -> str:
    """Which colours to compare beside outlines."""
    if float(border_ink(small_images(small)).median()) > NO_BACKGROUND:
        return "layout"
    if np.mean(colourfulness(small) > COLOURFUL) > 0.25:
        return "histogram"
    return "none"


def side_by_side(
    small: UInt8[np.ndarray, "n S S 3"], view: str, colours: str, scales: tuple[float, ...]
) -> Float[np.ndarray, "n V"]:
    """Outlines of images and what is compared beside them, each times its scale."""
    functions = [OUTLINES[view], *(function for function, _ in BESIDE[colours])]
    parts = [computed(function, small) * np.float32(scale) for function, scale in zip(functions, scales, strict=True)]
    return np.hstack(parts)


def computed(function: Callable[[np.ndarray], np.ndarray], pixels: np.ndarray) -> Float[np.ndarray, "n V"]:
    """A function of images, in pieces."""
    pieces = [function(pixels[start : start + PIECE]) for start in range(0, len(pixels), PIECE)]
    return np.concatenate(pieces)


def spread(points: Float[np.ndarray, "n V"]) -> float:
    """The root of the mean squared distance of two points; 1 if all are equal."""
    return float(np.sqrt(2 * points.var(0).sum())) or 1.0


def grey(pixels: UInt8[np.ndarray, "n H W 3"]) -> UInt8[np.ndarray, "n H W 1"]:
    """The images without colour."""
    weights = torch.tensor([0.299, 0.587, 0.114])
    image = torch.from_numpy(pixels).float() @ weights
    return image.round().clamp(0, 255).to(torch.uint8)[..., None].numpy()
