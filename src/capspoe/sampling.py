"""The three ways to generate: the paper's, from the fitted prior, and with Gibbs steps."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from capspoe.contrastive import switched_on
from capspoe.errors import InputError
from capspoe.model import CHUNK, CapsulePoE, check_capsule
from capspoe.noise import Noise
from capspoe.npz import npz_writer
from capspoe.pictures import tile, write_picture
from capspoe.validate import check_choice, check_count, check_seed


class Samples(NamedTuple):
    """Images that were drawn.

    images     (count, H, W, C): float32 in [0, 1]
    capsule    (count,): the capsule that was on
    """

    images: np.ndarray
    capsule: np.ndarray


def sample(
    model: CapsulePoE,
    count: int,
    capsule: int | list[int] | None = None,
    prior: Literal["fitted", "standard"] | None = None,
    gibbs: int = 0,
    seed: int = 0,
    spread: float | None = None,
) -> Samples:
    """Draw images. Image k depends on the seed and on k alone, not on how many are drawn with it.

    capsule   a number, a list to go through in turn, or None: in proportion to the capsules' use
    prior     "fitted": z from the distribution of the capsule's own training images; "standard": the paper's,
              sigmoid(N(0, 1)); the model's own default if None
    gibbs     further steps of sampling, reverse pass and forward routing, with the same capsule on
    spread    factor on the spread of the fitted prior; the model's own if None
    """
    chunks = list(sample_chunks(model, count, capsule, prior, gibbs, seed, spread))
    return Samples(*(np.concatenate(parts) for parts in zip(*chunks, strict=True)))


def sample_chunks(
    model: CapsulePoE,
    count: int,
    capsule: int | list[int] | None = None,
    prior: Literal["fitted", "standard"] | None = None,
    gibbs: int = 0,
    seed: int = 0,
    spread: float | None = None,
) -> Iterator[Samples]:
    """The same a few at a time, so that a million need no more memory than a thousand."""
    check_count("count", count)
    names = None
    if capsule is not None:
        names = list(capsule) if isinstance(capsule, (list, tuple, np.ndarray)) else [capsule]
        if not names:
            raise InputError("capsule is an empty list")
        for name in names:
            check_capsule("capsule", name, model.top.upper[0])
    for start in range(0, count, CHUNK):
        index = np.arange(start, min(start + CHUNK, count))
        on = None if names is None else np.array(names)[index % len(names)]
        yield sample_at(model, index, on, prior, gibbs, seed, spread)


@torch.no_grad()
def sample_at(
    model: CapsulePoE,
    index: np.ndarray,
    on: np.ndarray | None = None,
    prior: Literal["fitted", "standard"] | None = None,
    gibbs: int = 0,
    seed: int = 0,
    spread: float | None = None,
) -> Samples:
    """The images numbered `index` of the endless row of images that the seed stands for."""
    check_count("gibbs", gibbs, least=0)
    check_seed(seed)
    prior = prior or model.config.capsules.prior
    check_choice("prior", prior, ("fitted", "standard"))
    spread = model.config.capsules.spread if spread is None else spread
    if not 0 <= spread <= 100:
        raise InputError(f"spread must be between 0 and 100, not {spread!r}")
    rows = torch.from_numpy(index).to(model.device)
    noise = Noise(int(seed), 0, rows)
    if on is None:
        chosen = noise.choose(100, model.prior.use.expand(len(index), -1))
    else:
        chosen = torch.from_numpy(on).to(model.device)
    h = switched_on_states(model, chosen, draw(model, chosen, prior, noise, spread))
    for step in range(gibbs):
        h = gibbs_step(model, h, chosen, Noise(int(seed), 1 + step, rows))
    images = model.paint(h, model.reverse_weights(h), contrast=1.0 if prior == "standard" else None)
    return Samples(model.array(images), chosen.cpu().numpy())


def draw(
    model: CapsulePoE, on: Int[Tensor, " B"], prior: str, noise: Noise, spread: float
) -> Float[Tensor, "B N"]:
    """The numbers of the capsule that is on."""
    if prior == "standard":
        return torch.sigmoid(noise.normal(102, model.top.upper[1]))
    return model.top.hidden_given_visible(model.prior.sample(on, noise, spread))


def switched_on_states(
    model: CapsulePoE, on: Int[Tensor, " B"], h_BN: Float[Tensor, "B N"]
) -> Float[Tensor, "B J N"]:
    """All capsules at 0 but `on`, which has the given numbers."""
    J, N = model.top.upper
    h = h_BN.new_zeros(len(on), J, N)
    h[torch.arange(len(on), device=h.device), on] = h_BN
    return h


def gibbs_step(
    model: CapsulePoE, mean: Float[Tensor, "B J N"], on: Int[Tensor, " B"], noise: Noise
) -> Float[Tensor, "B J N"]:
    """Draw from the means, down with the reverse routing weights, up with those of the forward pass: new means."""
    top = model.top
    h = switched_on(top.sample_hidden(mean, noise, 0), on)
    x = top.visible_given_hidden(h, model.reverse_weights(h))
    return switched_on(top.hidden_given_visible(top(x).z), on)


def write_samples(
    model: CapsulePoE,
    path: Path,
    count: int = 4,
    capsule: int | None = None,
    prior: Literal["fitted", "standard"] | None = None,
    gibbs: int = 0,
    seed: int = 0,
    spread: float | None = None,
) -> None:
    """`count` images of every capsule, or of one: a picture with a column a capsule, or arrays in an .npz."""
    J = model.top.upper[0]
    check_count("count", count)
    if capsule is not None:
        check_capsule("capsule", capsule, J)
    names = list(range(J)) if capsule is None else [capsule]

    def chunks(name: int) -> Iterator[np.ndarray]:
        # Image k of capsule j is drawn with index k J + j: the same alone, together, and in the paper's grid.
        for start in range(0, count, CHUNK):
            index = J * np.arange(start, min(start + CHUNK, count)) + name
            yield sample_at(model, index, np.full(len(index), name), prior, gibbs, seed, spread).images

    if path.suffix.lower() == ".npz":
        with npz_writer(path) as file:
            file.add("capsule", np.array(names, np.int64))
            shape = (len(names), count, *model.image)
            file.add_pieces("images", shape, np.float32, (part for name in names for part in chunks(name)))
        return
    columns = [np.concatenate(list(chunks(name))) for name in names]
    write_picture(tile(np.stack(columns, 1), scale=2), path)
