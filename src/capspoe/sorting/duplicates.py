"""Images that are there twice: files with the same bytes, and images that nearly agree pixel by pixel."""

from collections import defaultdict
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8, UInt16

COMPARED_SIDE = 14  # pixels: a smaller picture does not show how an image was resized or compressed
RELATIVE = 0.06  # of the contrast: how much two images may differ (root mean square); resized ones differ by .05
ABSOLUTE = 3.0  # grey levels that they may always differ by
PROPORTIONS = 0.03  # by which the ratio of width and height may differ
MIN_CONTRAST = 6.0  # images that are all of one colour are equal only if their bytes are


class Duplicates(NamedTuple):
    """For each image the original of those that it is equal to or nearly equal to; itself if there is none.

    first    (n,)
    exact    (n,): whether the file has the same bytes as the first one's
    """

    first: Int[np.ndarray, " n"]
    exact: Bool[np.ndarray, " n"]


def find_duplicates(
    digests: list[bytes],
    small: UInt8[np.ndarray, "n S S 3"],
    sizes: Int[np.ndarray, "n 2"],
    modified: Int[np.ndarray, " n"],
    pairs: Int[np.ndarray, "p 2"],
) -> Duplicates:
    """Find duplicates.

    Parameters
    ----------
    digests : of the files' bytes
    small : the images, reduced
    sizes : width and height
    modified : when the files were; of equal images the largest, and then the oldest, is the original
    pairs : images that are near each other in the graph, and so may be nearly equal
    """
    order = np.lexsort([np.arange(len(digests)), modified, -sizes.prod(1)])
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    first = np.arange(len(digests))
    by_digest: dict[bytes, int] = {}
    for row in order.tolist():
        first[row] = by_digest.setdefault(digests[row], row)
    same = first.copy()

    ends = np.sort(first[pairs], axis=1)
    ends = ends[ends[:, 0] != ends[:, 1]]
    numbers = np.unique(ends[:, 0] * len(first) + ends[:, 1])  # many times faster than pairs
    ends = np.stack(np.divmod(numbers, len(first)), 1)
    ends = ends[same_shape(sizes, ends)]
    sums, weight = reduced(small)
    links: dict[int, set[int]] = defaultdict(set)
    for start in range(0, len(ends), 4096):
        piece = ends[start : start + 4096]
        a_pixels = sums[piece[:, 0]] / weight
        b_pixels = sums[piece[:, 1]] / weight
        for a, b in piece[nearly_equal(a_pixels, b_pixels)].tolist():
            links[a].add(b)
            links[b].add(a)
    # Each image joins the first original that it is linked to, so that a long chain does not become one.
    for row in sorted(links, key=lambda row: rank[row]):
        if first[row] != row:
            continue
        for other in links[row]:
            if rank[other] > rank[row] and first[other] == other:
                first[other] = row
    first = first[first]
    return Duplicates(first, (same == first) & (first != np.arange(len(first))))


def same_shape(sizes: Int[np.ndarray, "n 2"], pairs: Int[np.ndarray, "p 2"]) -> Bool[np.ndarray, " p"]:
    """Whether the images of each pair have about the same ratio of width and height."""
    ratio = np.log(sizes[:, 0] / sizes[:, 1])
    return np.abs(ratio[pairs[:, 0]] - ratio[pairs[:, 1]]) < PROPORTIONS


def nearly_equal(a: Float[np.ndarray, "p s s 3"], b: Float[np.ndarray, "p s s 3"]) -> Bool[np.ndarray, " p"]:
    """Whether the images of each pair agree but for scale, compression and small changes."""
    difference = np.sqrt(np.square(a - b).mean((1, 2, 3)))
    contrast = np.minimum(a.std((1, 2)).max(1), b.std((1, 2)).max(1))
    allowed = np.maximum(ABSOLUTE, RELATIVE * contrast)
    return (difference <= allowed) & (contrast > MIN_CONTRAST)


def reduced(pixels: UInt8[np.ndarray, "n S S 3"]) -> tuple[UInt16[np.ndarray, "n s s 3"], np.float32]:
    """The images with about COMPARED_SIDE pixels to a side: the sums of blocks, and the pixels in a block."""
    side = pixels.shape[1]
    factor = max(1, round(side / COMPARED_SIDE))
    cut = side // factor * factor
    sums = np.zeros((len(pixels), cut // factor, cut // factor, 3), np.uint16)
    for row in range(factor):
        for column in range(factor):
            sums += pixels[:, row:cut:factor, column:cut:factor]
    return sums, np.float32(factor**2)
