"""Choose a view without labels."""

import numpy as np

from capspoe.data import workers_for
from capspoe.train.spectral import COUNT_IMAGES, MIN_IMAGES, distinct_sample, modularities
from capspoe.train.views.hog import hog, upright_hog
from capspoe.train.views.view import Features, Function, Images, as_dataset

CANDIDATES: dict[str, Function] = {"hog": hog, "upright hog": upright_hog}
NUMBERS = (10, 15, 20, 30)  # of groups


def choose_view(images: Images, neighbours: int = 5, seed: int = 0) -> str:
    """The name of the view whose neighbour graph falls best into groups: "hog" or "upright hog".

    Removing the slant joins what only the slant separates, such as the slants of a digit, so that groups have fewer
    edges between them. Where the slant means something, or where there is no empty background and the slant is
    noise, it takes away what separates the groups. "hog" for fewer than 100 images.
    """
    scores = view_scores(images, neighbours, seed)
    return max(scores, key=lambda name: scores[name])


def view_scores(images: Images, neighbours: int = 5, seed: int = 0) -> dict[str, float]:
    """The mean modularity of 10 to 30 spectral groups in each candidate, on up to 5,000 images.

    Modularities compare only views of the same kind. Pixels are no candidate: a few of their components, such as the
    brightness, have most of the variance, and any cloud of few dimensions falls into groups of high modularity.
    """
    few = as_dataset(images).spread(COUNT_IMAGES)
    pixels = few.images(workers_for(few)).pixels
    scores = {}
    for name, function in CANDIDATES.items():
        points = distinct_sample(Features(function, seed).points(pixels))
        numbers = [number for number in NUMBERS if number * MIN_IMAGES <= len(points)]
        if numbers:
            scores[name] = float(np.mean(modularities(points, numbers, neighbours, seed)))
        else:
            scores[name] = 0.0
    return scores
