"""Choose between histograms of the images as they are and of upright images, without labels."""

import numpy as np
from jaxtyping import UInt8

from capspoe.data import evenly_spaced, workers_for
from capspoe.training.spectral import COUNT_IMAGES, MIN_IMAGES, distinct_sample, modularities
from capspoe.training.views.hog import hog, small_images, upright_hog
from capspoe.training.views.upright import border_ink
from capspoe.training.views.view import PIECE, Features, Function, Images, as_dataset, raw_pixels

FUNCTIONS: dict[str, Function] = {"pixels": raw_pixels, "hog": hog, "upright-hog": upright_hog}  # by name
CANDIDATES: dict[str, Function] = {"hog": hog, "upright-hog": upright_hog}
NUMBERS = (10, 15, 20, 30)  # of groups
PHOTOGRAPH = 0.7  # ink of the border from which on there is no background: .8 for CIFAR-10, .65 for digits in noise


def find_view(name: str, images: Images, neighbours: int = 10, seed: int = 0) -> Features:
    """A view by its name in `FUNCTIONS`, fitted to images; "auto" chooses the one that suits them."""
    if name == "auto":
        name = choose_view(images, neighbours, seed)
    return Features(FUNCTIONS[name], seed).fit(images)


def choose_view(images: Images, neighbours: int = 10, seed: int = 0) -> str:
    """The name of the view to find groups in: "hog" or "upright-hog".

    Removing the slant joins what only the slant separates, such as the slants of a digit, and the groups then have
    fewer edges between them. Where the slant means something, removing it takes away what separates the groups. The
    modularity tells which. Photographs have no background from which an object and its slant could be told.

    Parameters
    ----------
    images : up to 5,000 of them, evenly spaced, are looked at; fewer than 100 are too few to choose: "hog"
    neighbours, seed : of the graph, as for `spectral_groups`
    """
    few = as_dataset(images).spread(COUNT_IMAGES)
    pixels = few.images(workers_for(few)).pixels
    some = pixels[evenly_spaced(len(pixels), PIECE)]
    if float(border_ink(small_images(some)).median()) > PHOTOGRAPH:
        return "hog"
    scores = view_scores(pixels, neighbours, seed)
    return max(scores, key=lambda name: scores[name])


def view_scores(pixels: UInt8[np.ndarray, "n H W C"], neighbours: int = 10, seed: int = 0) -> dict[str, float]:
    """The mean modularity of 10 to 30 spectral groups in each candidate; 0 for too few images.

    Modularities compare only views of the same kind. Pixels are no candidate: a few of their components, such as the
    brightness, have most of the variance, and any cloud of few dimensions falls into groups of high modularity.
    """
    points = {}
    for name, function in CANDIDATES.items():
        points[name] = distinct_sample(Features(function, seed).points(pixels))
    fewest = min(map(len, points.values()))
    numbers = [number for number in NUMBERS if number * MIN_IMAGES <= fewest]
    if not numbers:
        return dict.fromkeys(points, 0.0)
    scores = {}
    for name in points:
        scores[name] = float(np.mean(modularities(points[name], numbers, neighbours, seed)))
    return scores
