"""Images that are there twice: files with the same bytes, and images that nearly agree pixel by pixel."""

from collections import defaultdict
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

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

    ends = np.sort(np.unique(first[pairs], axis=0), axis=1) if len(pairs) else np.empty((0, 2), np.int64)
    ends = ends[ends[:, 0] != ends[:, 1]]
    links: dict[int, set[int]] = defaultdict(set)
    for start in range(0, len(ends), 4096):
        piece = ends[start : start + 4096]
        for a, b in piece[nearly_equal(small, sizes, piece)].tolist():
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


def nearly_equal(
    small: UInt8[np.ndarray, "n S S 3"], sizes: Int[np.ndarray, "n 2"], pairs: Int[np.ndarray, "p 2"]
) -> Bool[np.ndarray, " p"]:
    """Whether the images of each pair agree but for scale, compression and small changes."""
    a = reduced(small[pairs[:, 0]])
    b = reduced(small[pairs[:, 1]])
    difference = np.sqrt(np.square(a - b).mean((1, 2, 3)))
    contrast = np.minimum(a.std((1, 2)).max(1), b.std((1, 2)).max(1))
    allowed = np.maximum(ABSOLUTE, RELATIVE * contrast)
    ratio = np.log(sizes[:, 0] / sizes[:, 1])
    same_shape = np.abs(ratio[pairs[:, 0]] - ratio[pairs[:, 1]]) < PROPORTIONS
    return (difference <= allowed) & same_shape & (contrast > MIN_CONTRAST)


def reduced(pixels: UInt8[np.ndarray, "n S S 3"]) -> Float[np.ndarray, "n s s 3"]:
    """The images with about COMPARED_SIDE pixels to a side, by averaging."""
    n, side = pixels.shape[:2]
    factor = max(1, round(side / COMPARED_SIDE))
    cut = side // factor * factor
    blocks = pixels[:, :cut, :cut].astype(np.float32).reshape(n, cut // factor, factor, cut // factor, factor, 3)
    return blocks.mean((2, 4))
