"""How one image is routed: the numbers behind Figure 1 of the paper and behind the heat map."""

from typing import Any, NamedTuple

import numpy as np
import torch

from capspoe.contrastive import switched_on
from capspoe.data import Source
from capspoe.errors import InputError
from capspoe.model import CHUNK, CapsulePoE
from capspoe.routing import on_probability
from capspoe.validate import check_count


class Routed(NamedTuple):
    """One image on its way up, and what each upper capsule would paint of it alone."""

    image: np.ndarray  # (H, W, C)
    code_on: np.ndarray  # (h, w, groups): |squash| of the capsules of the code, at their positions (Eq. 7)
    lower_on: np.ndarray  # (I,): the same of the capsules below the top layer, which are those of the code
    #                       unless there are several layers
    upper_on: np.ndarray  # (J,): P(capsule j is on)
    weight: np.ndarray  # (J, I): the routing weights c_ij of the top layer, relative to their mean
    place_weight: np.ndarray  # (J, h, w): the same brought down to the positions, relative to their mean
    painted: np.ndarray  # (J, H, W, C): the image as capsule j alone paints it

    @property
    def winner(self) -> int:
        return int(self.upper_on.argmax())


def one_image(source: Source, number: int, split: str = "test") -> np.ndarray:
    """Image `number` of a source, uint8 (H, W, C)."""
    check_count("image", number, least=0)
    if number >= len(source):
        raise InputError(f"image must be below {len(source)}, the number of {split} images, not {number}")
    return source.batch([number])[0]


@torch.no_grad()
def routed(model: CapsulePoE, image: Any) -> Routed:
    """Route one image through the network."""
    x = model.tensor(image)
    if len(x) != 1:
        raise InputError(f"routing is drawn of one image, not of {len(x)}")
    code = model.autoencoder.encode(x)
    _, h, w = model.autoencoder.code_shape
    lower = model.lift(code)
    c, z = model.top(lower)
    weight_JI = c[0] / c[0].mean()
    J = model.top.upper[0]
    hidden = model.top.hidden_given_visible(z).expand(J, -1, -1)
    alone = switched_on(hidden, torch.arange(J, device=hidden.device))
    weights = None if model.top.iterations == 1 else c.expand(J, -1, -1)
    painted = [
        model.paint(alone[k : k + CHUNK], None if weights is None else weights[k : k + CHUNK])
        for k in range(0, J, CHUNK)
    ]
    return Routed(
        image=model.array(x)[0],
        code_on=on_probability(code)[0].reshape(h, w, -1).cpu().numpy(),
        lower_on=on_probability(lower)[0].cpu().numpy(),
        upper_on=model.top.on_given_visible(z)[0].cpu().numpy(),
        weight=weight_JI.cpu().numpy(),
        place_weight=place_weights(model, code, c)[0].reshape(J, h, w).cpu().numpy(),
        painted=model.array(torch.cat(painted)),
    )


def place_weights(model: CapsulePoE, code: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """c_ij of the top layer as weights of the positions of the code, (B, J, h w), their mean being 1.

    Through a stack, the weight of a path is the product of its weights, and all paths to a position are summed.
    """
    reach = c
    for depth in reversed(range(len(model.stack) - 1)):
        reach = reach @ model.stack[depth](model.lift(code, depth)).c
    places = model.autoencoder.code_shape[1] * model.autoencoder.code_shape[2]
    summed = reach.reshape(*reach.shape[:2], places, -1).sum(-1)
    return summed / summed.mean(-1, keepdim=True)
