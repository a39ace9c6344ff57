"""Ten shapes of five cubes, rendered from any side: objects whose parts keep their places relative to each other."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, UInt8

from capspoe.data import Images

SIDE = 28  # pixels of an image
CUBE = 4.4  # pixels along an edge of a cube
POINTS = 10  # along an edge of a face: two for each pixel
SIZE_CHANGE = 0.12  # standard deviation of the logarithm of an object's length along each axis
SHIFT = 1.5  # pixels, the farthest that an object moves
LIGHT = np.array([-0.5, 0.6, 0.62])  # toward the light, in the camera's frame: from the upper left
AMBIENT = 0.25
EDGE_ON = 1e-3  # cosine of the angle to the camera from which on a face can be seen
# Each shape as the positions x y z of its cubes.
SHAPES = (
    "000 100 200 300 400",
    "000 100 200 300 010",
    "000 100 200 110 120",
    "100 010 110 210 120",
    "000 100 200 010 210",
    "000 100 110 120 220",
    "000 100 200 010 001",
    "000 100 110 111 211",
    "000 100 010 110 020",
    "000 100 200 110 101",
)


class Range(NamedTuple):
    """Degrees."""

    low: float
    high: float


class Views(NamedTuple):
    """Directions to look from: the azimuth around the vertical axis, and the elevation above the horizon."""

    azimuth: Range
    elevation: Range


def cubes(shape: int) -> Float[np.ndarray, "5 3"]:
    """The centres of a shape's cubes, around the middle of its bounding box."""
    corners = np.array([[int(digit) for digit in cube] for cube in SHAPES[shape].split()], float)
    return corners - (corners.max(0) + corners.min(0)) / 2


def surface() -> tuple[Float[np.ndarray, "n 3"], Float[np.ndarray, "n 3"]]:
    """Points on the faces of the cube with sides of 1 around 0, and the normals there."""
    line = (np.arange(POINTS) + 0.5) / POINTS - 0.5
    u, v = (grid.ravel() for grid in np.meshgrid(line, line))
    points = []
    normals = []
    for axis in range(3):
        for sign in (-1, 1):
            face = np.empty((POINTS**2, 3))
            face[:, axis] = sign / 2
            face[:, axis - 2] = u
            face[:, axis - 1] = v
            normal = np.zeros(3)
            normal[axis] = sign
            points.append(face)
            normals.append(np.broadcast_to(normal, face.shape))
    return np.concatenate(points), np.concatenate(normals)


FACE_POINTS, FACE_NORMALS = surface()
SURFACES = [
    ((cubes(shape)[:, None] + FACE_POINTS).reshape(-1, 3), np.tile(FACE_NORMALS, (5, 1)))
    for shape in range(len(SHAPES))
]


def rotation(azimuth: float, elevation: float) -> Float[np.ndarray, "3 3"]:
    """From the object's axes (y is up) to the camera's: x to the right, y up, z toward the camera."""
    a, e = np.radians((azimuth, elevation))
    turn = np.array([[np.cos(a), 0, -np.sin(a)], [0, 1, 0], [np.sin(a), 0, np.cos(a)]])
    tilt = np.array([[1, 0, 0], [0, np.cos(e), -np.sin(e)], [0, np.sin(e), np.cos(e)]])
    return tilt @ turn


def render(
    shape: int,
    azimuth: float,
    elevation: float,
    size: Float[np.ndarray, " 3"] | float = 1.0,
    shift: Float[np.ndarray, " 2"] | float = 0.0,
) -> UInt8[np.ndarray, "28 28"]:
    """A shape in parallel projection, with diffuse light; `size` scales its axes, `shift` moves it in the image."""
    points, normals = SURFACES[shape]
    turned = rotation(azimuth, elevation)
    facing = normals @ turned.T
    front = facing[:, 2] > EDGE_ON
    camera = (size * points[front]) @ turned.T
    shade = AMBIENT + (1 - AMBIENT) * (facing[front] @ LIGHT).clip(0, 1)
    # The nearest point of a pixel is written last.
    order = camera[:, 2].argsort()
    right, down = np.broadcast_to(shift, 2)
    column = np.rint(SIDE / 2 - 0.5 + CUBE * camera[order, 0] + right).astype(int)
    row = np.rint(SIDE / 2 - 0.5 - CUBE * camera[order, 1] + down).astype(int)
    inside = (row >= 0) & (row < SIDE) & (column >= 0) & (column < SIDE)
    image = np.zeros((SIDE, SIDE))
    image[row[inside], column[inside]] = shade[order][inside]
    return np.rint(255 * image).astype(np.uint8)


def draw_shapes(count: int, views: Views, seed: int) -> Images:
    """Images of all shapes in turn, from directions that are uniform in the ranges; azimuths of either sign."""
    rng = np.random.default_rng([seed, 5])
    labels = np.arange(count) % len(SHAPES)
    pixels = np.empty((count, SIDE, SIDE, 1), np.uint8)
    for image, shape in zip(pixels, labels, strict=True):
        azimuth = rng.uniform(*views.azimuth) * rng.choice((-1, 1))
        size = np.exp(SIZE_CHANGE * rng.standard_normal(3))
        shift = rng.uniform(-SHIFT, SHIFT, 2)
        image[..., 0] = render(shape, azimuth, rng.uniform(*views.elevation), size, shift)
    return Images(pixels, labels)
