"""Views: what the neighbour graph of `capspoe.training.spectral` compares.

The graph decides which images form a group, and what it compares decides the graph. A view is anything with one
method, `points`.

>>> points = Features(upright_hog).points(pixels)
>>> group = spectral_groups(points, 10)
"""

from capspoe.training.views.choice import FUNCTIONS, choose_view, find_view, view_scores
from capspoe.training.views.colour import colour_histogram, colour_layout, colourfulness
from capspoe.training.views.hog import hog, upright_hog
from capspoe.training.views.photos import photo_features, photos_installed
from capspoe.training.views.upright import upright
from capspoe.training.views.view import Features, Given, View, raw_pixels

__all__ = [
    "FUNCTIONS", "Features", "Given", "View", "choose_view", "colour_histogram", "colour_layout", "colourfulness",
    "find_view", "hog", "photo_features", "photos_installed", "raw_pixels", "upright", "upright_hog", "view_scores",
]  # fmt: skip
