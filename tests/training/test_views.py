"""Views: histograms of gradients written out pixel by pixel, slants that were made, and points of copies."""

import math

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from sklearn.decomposition import PCA

from capspoe import data
from capspoe.data import ArrayDataset
from capspoe.errors import InputError
from capspoe.training import views
from capspoe.training.views import Features, Given, hog, upright, upright_hog
from capspoe.training.views.hog import small_images
from capspoe.training.views.upright import border_ink


def histogram_by_loops(image: np.ndarray) -> np.ndarray:
    """As `hog` for one image of 28x28 pixels: a loop over windows, pixels and channels."""
    image = image.astype(float)
    bins = np.zeros((28, 28, 9))
    for y in range(28):
        for x in range(28):
            across = image[y, min(x + 1, 27)] - image[y, max(x - 1, 0)]
            down = image[min(y + 1, 27), x] - image[max(y - 1, 0), x]
            strength = np.hypot(across, down)
            channel = int(strength.argmax())
            # Opposite gradients have the same orientation.
            orientation = math.atan2(down[channel], across[channel]) % math.pi / math.pi * 9
            part = orientation - math.floor(orientation)
            bins[y, x, math.floor(orientation) % 9] += strength[channel] * (1 - part)
            bins[y, x, (math.floor(orientation) + 1) % 9] += strength[channel] * part
    histograms = np.zeros((9, 6, 6))
    for row in range(6):
        for column in range(6):
            window = bins[4 * row : 4 * row + 8, 4 * column : 4 * column + 8]
            histograms[:, row, column] = np.sqrt(window.sum((0, 1)))
    return histograms.ravel() / np.linalg.norm(histograms)


def strokes(count: int, slant: float = 0.0, height: int = 28, width: int = 28) -> np.ndarray:
    """The letter T in as many sizes as wanted, light on dark, sheared by `slant`."""
    images = np.empty((count, height, width, 1), np.uint8)
    for k in range(count):
        large = Image.new("L", (8 * width, 8 * height))
        half = (2 + k / count) * height
        x, y = 4 * width, 4 * height
        pen = ImageDraw.Draw(large)
        pen.line([(x, y - half), (x, y + half)], 255, 16)
        pen.line([(x - half / 2, y - half), (x + half / 2, y - half)], 255, 16)
        shear = (1, slant, -slant * y, 0, 1, 0)
        images[k, :, :, 0] = large.transform(large.size, Image.Transform.AFFINE, shear).resize((width, height))
    return images


@pytest.mark.parametrize("channels", [1, 3])
def test_hog_is_what_loops_give(channels):
    images = np.random.default_rng(0).integers(0, 256, (3, 28, 28, channels), dtype=np.uint8)
    expected = np.stack([histogram_by_loops(image) for image in images])
    np.testing.assert_allclose(hog(images), expected, atol=1e-5)


def test_hog_sees_outlines_not_brightness():
    images = data.load("digits").pixels[:50]
    np.testing.assert_allclose(hog(255 - images), hog(images), atol=1e-5)  # dark on light
    np.testing.assert_allclose(hog(images // 2 * 2), hog(images // 2), atol=1e-5)  # less contrast
    assert not hog(np.full((2, 28, 28, 1), 7, np.uint8)).any()


@pytest.mark.parametrize("shape", [(1, 1, 1), (8, 8, 1), (5, 40, 3), (200, 3, 1), (57, 80, 3), (256, 256, 1)])
@pytest.mark.parametrize("function", [hog, upright_hog])
def test_images_of_any_size(shape, function):
    images = np.random.default_rng(0).integers(0, 256, (4, *shape), dtype=np.uint8)
    features = function(images)
    assert features.shape[0] == 4
    assert 9 <= features.shape[1] <= 1000
    if min(shape[:2]) > 1:
        np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, rtol=1e-5)


def test_large_images_are_reduced():
    small = data.load("digits").pixels[:20]
    large = small.repeat(9, 1).repeat(9, 2)
    np.testing.assert_allclose(hog(large), hog(small), atol=1e-5)


def moments(images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The ink's centre, from the middle, and its slant: the covariance of x and y over the variance of y."""
    ink = images.abs().amax(1)
    height, width = ink.shape[1:]
    y, x = torch.meshgrid(
        torch.arange(height) - (height - 1) / 2, torch.arange(width) - (width - 1) / 2, indexing="ij"
    )
    weight = ink / ink.sum((1, 2), keepdim=True)
    centre_x = (weight * x).sum((1, 2))
    centre_y = (weight * y).sum((1, 2))
    from_x = x - centre_x[:, None, None]
    from_y = y - centre_y[:, None, None]
    return centre_x, centre_y, (weight * from_x * from_y).sum((1, 2)) / (weight * from_y.square()).sum((1, 2))


@pytest.mark.parametrize("shape", [(28, 28), (40, 30), (25, 45)])
def test_upright_images_have_a_centre_and_no_slant(shape):
    images = strokes(10, 0.4, *shape)
    images[5:] = np.roll(images[5:], (2, -3), (1, 2))
    before = moments(small_images(images))
    assert before[2].abs().min() > 0.2
    after = moments(upright(small_images(images)))
    for moment in after[:2]:
        assert moment.abs().max() < 0.1
    assert after[2].abs().max() < 0.05


@pytest.mark.parametrize("slant", [-0.5, 0.3, 0.6])
def test_slanted_and_moved_strokes_are_the_same_upright(slant):
    straight = strokes(20)
    slanted = np.roll(strokes(20, slant), (1, -2), (1, 2))
    cosine = (upright_hog(straight) * upright_hog(slanted)).sum(1)
    assert cosine.min() > 0.93
    assert (hog(straight) * hog(slanted)).sum(1).max() < 0.85


def test_ink_may_be_dark_or_coloured():
    light = strokes(10, 0.4)
    dark = 255 - light
    on_orange = np.array([230, 140, 30]) * (1 - light / 255) + np.array([10, 60, 240]) * (light / 255)
    np.testing.assert_allclose(upright_hog(dark), upright_hog(light), atol=1e-3)
    cosine = (upright_hog(on_orange.astype(np.uint8)) * upright_hog(light)).sum(1)
    assert cosine.min() > 0.99


def test_points_are_the_principal_components_of_all_pieces():
    images = np.concatenate([data.load("digits").pixels, data.load("digits", "test").pixels])
    points = Features(hog).points(images)
    assert points.dtype == np.float32
    expected = PCA(64, svd_solver="full").fit_transform(hog(images))
    for few in (slice(0, 100), slice(1600, 1700)):
        distances = np.linalg.norm(points[few, None] - points[None, few], axis=2)
        exact = np.linalg.norm(expected[few, None] - expected[None, few], axis=2)
        np.testing.assert_allclose(distances, exact, atol=0.02)


def test_points_of_a_data_set_are_those_of_its_pixels():
    images = data.load("digits").pixels[:700]
    assert np.array_equal(Features(hog).points(ArrayDataset(images)), Features(hog).points(images))


@pytest.mark.parametrize("function", views.FUNCTIONS.values(), ids=views.FUNCTIONS)
def test_copies_have_equal_points(function):
    """To the last bit: copies share a node of the graph."""
    images = data.load("digits").pixels[:301, :25, :25]
    rows = np.random.default_rng(0).permutation(np.tile(np.arange(301), 4))
    points = Features(function).points(images[rows])
    for k in range(301):
        assert len(np.unique(points[rows == k], axis=0)) == 1
    assert len(np.unique(points, axis=0)) == 301


def sheared(images: np.ndarray, slants: np.ndarray) -> np.ndarray:
    """Images (n, H, W, 1), each sheared about its middle."""
    result = np.empty_like(images)
    middle = images.shape[1] / 2
    for k, slant in enumerate(slants):
        shear = (1, slant, -slant * middle, 0, 1, 0)
        image = Image.fromarray(images[k, :, :, 0]).transform(
            images.shape[1:3], Image.Transform.AFFINE, shear, Image.Resampling.BILINEAR
        )
        result[k, :, :, 0] = image
    return result


def test_upright_is_chosen_where_slant_is_noise():
    digits = data.load("digits").pixels
    slants = np.random.default_rng(0).uniform(-0.7, 0.7, len(digits))
    assert views.choose_view(sheared(digits, slants)) == "upright-hog"


def test_upright_is_not_chosen_where_slant_is_what_differs():
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 12, 1200)
    bars = sheared(strokes(1200), -0.8 + 1.6 * kind / 11 + rng.normal(0, 0.01, 1200))
    assert views.choose_view(bars) == "hog"


def test_a_data_set_has_the_choice_of_its_pixels():
    images = data.load("digits").pixels[:400]
    scores = views.view_scores(images)
    best = max(scores, key=lambda name: scores[name])
    assert views.choose_view(images) == views.choose_view(ArrayDataset(images)) == best


def test_photographs_and_few_images_are_not_made_upright():
    digits = data.load("digits").pixels
    slanted = sheared(digits, np.random.default_rng(0).uniform(-0.7, 0.7, len(digits)))
    assert views.choose_view(slanted[:20]) == "hog"
    everywhere = np.tile(slanted, (1, 2, 2, 1))[:, 14:42, 14:42]  # objects across the border
    assert border_ink(small_images(slanted)).median() < 0.5
    assert border_ink(small_images(everywhere)).median() > 0.7
    assert views.choose_view(everywhere) == "hog"


def test_the_ink_of_a_border():
    image = torch.zeros(1, 1, 4, 4)
    image[0, 0, 1:3, 1:3] = -1
    assert border_ink(image).item() == 0
    image[0, 0, 0, 1] = 2  # one of 16 pixels along the border, whose corners count twice
    assert border_ink(image).item() == pytest.approx((2 / 16) / (6 / 16))


def test_points_of_your_own():
    images = data.load("digits").pixels[:300]
    brightness = images.mean((1, 2, 3))
    points = Features(lambda pixels: pixels.mean((1, 2, 3))).points(images)
    assert points.shape == (300, 1)
    assert abs(np.corrcoef(points[:, 0], brightness)[0, 1]) == pytest.approx(1)
    assert Given(brightness).points(images) is brightness
    with pytest.raises(InputError, match="300 points were given for 299 images"):
        Given(brightness).points(images[:299])
