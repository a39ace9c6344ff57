"""The whole network: a codec, the capsule layers on its code, and the prior of the top layer."""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, cast, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from capspoe.config import Config
from capspoe.errors import CapspoeWarning, InputError
from capspoe.model.checks import check_choice
from capspoe.model.codec import as_codec
from capspoe.model.gates import Gate, only, place
from capspoe.model.layer import CapsuleLayer
from capspoe.model.prior import CapsulePrior, Sampling
from capspoe.model.recognition import Recognition

Posterior = Literal["recognition", "energy"]  # where P(on) comes from

CHUNK = 256  # images processed at once, so that memory does not grow with their number


class Up(NamedTuple):
    """Images on their way up."""

    code: Float[Tensor, "B i m"]  # the codec's code, as lower capsules
    x: Float[Tensor, "B I M"]  # the input of the top layer: the code, unless there are several layers
    c: Float[Tensor, "B J I"]  # routing weights of the top layer
    z: Float[Tensor, "B J N"]  # pre-activations of the top layer
    on: Float[Tensor, "B J"]  # P(capsule is on)
    hidden: Float[Tensor, "B J N"]  # each capsule's pose: the mean of h given that it is on
    gate: Gate  # of the top layer

    @property
    def winner(self) -> Int[Tensor, " B"]:
        """The capsule that is most probably on."""
        return self.on.argmax(-1)

    @property
    def state(self) -> Float[Tensor, "B J N"]:
        """The top-layer state of the images: the winner alone where one capsule is on, else all capsules."""
        return self.gate.mask(self.hidden, self.winner)


class Encoded(NamedTuple):
    """Images as capsules.

    on        (n, J): the probability that each capsule is on
    hidden    (n, J, N): the pose of each capsule, given that it is on
    """

    on: np.ndarray
    hidden: np.ndarray


class Network(nn.Module):
    """From images to capsules and back.

    Images go in as uint8 (0 to 255), bool or float (0 to 1) arrays or tensors of shape (n, H, W), (n, H, W, C) or
    (n, C, H, W), or one image without n. They come out as float32 in [0, 1] of shape (n, H, W, C). Where both layouts
    fit, C comes last.

    Parameters
    ----------
    codec : images to lower capsules and back: a `Codec`, or any nn.Module with `encode` and `decode`
    layers : the capsule layers, bottom first; each one's upper capsules are the lower ones of the next
    prior : the prior of the top layer's poses, fitted after training
    sampling : how images are generated unless a call says otherwise
    image : (height, width, colours), for a codec that does not know it
    crop : images larger than this are cropped from the centre
    """

    logit_scale: Tensor
    recognition: Recognition | None  # the amortised gate, which also helps `explain`; None if there is none
    built_from: Config | None = None  # its settings, unless it was put together from parts

    def __init__(
        self,
        codec: nn.Module,
        layers: Sequence[CapsuleLayer],
        prior: CapsulePrior | None = None,
        sampling: Sampling = Sampling(),  # noqa: B008
        image: tuple[int, int, int] | None = None,
        crop: int | None = None,
    ) -> None:
        super().__init__()
        self.codec = as_codec(codec, image)
        self.image = self.codec.image
        self.sampling = sampling
        self.crop = crop
        if not layers:
            raise InputError("a network needs one capsule layer or more")
        below = self.codec.capsules
        for depth, layer in enumerate(layers):
            if layer.lower != below:
                raise InputError(f"layer {depth} takes {layer.lower} lower capsules, but there are {below} below it")
            below = layer.upper
        self.layers = nn.ModuleList(layers)
        self.prior = CapsulePrior(*below) if prior is None else prior
        self.register_buffer("logit_scale", torch.ones(()))
        self.register_module("recognition", None)

    @property
    def stack(self) -> list[CapsuleLayer]:
        """The capsule layers, bottom first."""
        return cast(list[CapsuleLayer], list(self.layers))

    @property
    def top(self) -> CapsuleLayer:
        return self.stack[-1]

    @property
    def device(self) -> torch.device:
        return self.top.w_JNMI.device

    # Tensors: one way up, one way down.

    def forward(self, images: Any) -> Up:
        """The way up: `network(images)`. Gradients flow through a float tensor (B, C, H, W); see also `encode`."""
        height, width, colours = self.image
        if not (isinstance(images, Tensor) and images.is_floating_point()) or images.shape[1:] != (
            colours,
            height,
            width,
        ):
            images = self.tensor(images)
        return self.up(images.to(self.device))

    def layer_input(self, code: Float[Tensor, "B i m"], depth: int) -> Float[Tensor, "B I M"]:
        """Code to the input of layer `depth`: the hidden means of the layers below it."""
        for layer in self.stack[:depth]:
            code = layer.hidden_mean(layer(code).z)
        return code

    def up_from_code(self, code: Float[Tensor, "B i m"]) -> Up:
        """Route a code through all layers."""
        x = self.layer_input(code, len(self.layers) - 1)
        c, z = self.top(x)
        on = self.top.on_probability(z, x)
        hidden = self.top.hidden_mean(z)
        return Up(code, x, c, z, on, hidden, self.top.gate)

    def up(self, images: Float[Tensor, "B C H W"], posterior: Posterior = "recognition") -> Up:
        """Images to capsules; `posterior` says which network P(on) is of, see `encode`."""
        up = self.up_from_code(self.codec.encode(images))
        if posterior == "recognition" and self.recognition is not None:
            return up._replace(on=self.recognition.on_probability(images))
        return up

    def down(
        self,
        h: Float[Tensor, "B J N"],
        c: Float[Tensor, "B J I"] | None = None,
        logit_scale: float | None = None,
        on: Tensor | None = None,
    ) -> Float[Tensor, "B C H W"]:
        """Top-layer states to images.

        Parameters
        ----------
        h : the states
        c : routing weights of the top layer, such as those of the way up; by default those of `CapsuleLayer.reverse`
        logit_scale : factor on the code's logits; by default the model's own. P(x | h) averages over what h leaves
            open, so it is less decided than real codes. 1 leaves the probabilities unchanged.
        on : the capsule that is on, (B,), or the weight of each, (B, J); by default those that are not 0
        """
        return self.codec.decode(self.down_to_code(h, c, logit_scale, on))

    def down_to_code(
        self, h: Float[Tensor, "B J N"], c: Tensor | None, logit_scale: float | None, on: Tensor | None
    ) -> Float[Tensor, "B i m"]:
        """The code that `down` decodes."""
        x = self.top.visible_mean(h, self.top.reverse(h) if c is None else c, on)
        scale: Tensor | float | None = self.sampling.logit_scale if logit_scale is None else logit_scale
        if scale is None:
            scale = self.logit_scale
        if isinstance(scale, Tensor) or scale != 1:
            x = torch.sigmoid(scale * torch.logit(x, eps=1e-6))
        for layer in reversed(self.stack[:-1]):
            x = layer.visible_mean(x, layer.reverse(x))
        return x

    def decode_pose(
        self, capsule: Int[Tensor, " B"], z: Float[Tensor, "B N"], logit_scale: float | None = None
    ) -> Float[Tensor, "B C H W"]:
        """Images with one capsule on, given its pre-activations."""
        h = place(self.top.hidden_mean(z), capsule, self.top.upper[0])
        return self.down(h, None, logit_scale, capsule)

    # Arrays.

    def tensor(self, images: Any) -> Float[Tensor, "B C H W"]:
        """Images as the network expects them; larger images of a cropped data set are cropped to their centre."""
        height, width, colours = self.image
        given = as_array(images)
        array = given
        if array.dtype == np.uint8:
            if array.size and array.max() == 1:
                # A nearly black picture from a file is possible, so this is no error.
                text = "uint8 images that are only 0 and 1 are nearly black; pass black and white images as bool"
                warnings.warn(text, CapspoeWarning, stacklevel=2)
            array = array.astype(np.float32) / 255
        elif array.dtype == bool:
            array = array.astype(np.float32)
        elif array.dtype.kind != "f":
            kind = "a name or a path" if array.dtype.kind == "U" else array.dtype
            raise InputError(f"images must be an array or a tensor of uint8 or float, not {kind}")
        if array.ndim == 2 or (array.ndim == 3 and colours in (array.shape[0], array.shape[-1])):
            array = array[None]
        if array.ndim == 3:
            array = array[..., None]
        if array.ndim == 4:
            array = channels_last(array, colours)
        if array.ndim == 4 and self.crop:
            array = centre_crop(array, self.crop)
        if array.ndim != 4 or array.shape[1:] != self.image or not len(array):
            raise InputError(
                f"images must have shape (n, {height}, {width}, {colours}) or (n, {colours}, {height}, {width}), "
                f"not {given.shape}; resize or convert them first"
            )
        tensor = torch.from_numpy(np.ascontiguousarray(array, np.float32)).permute(0, 3, 1, 2)
        if not bool(((tensor >= 0) & (tensor <= 1)).all()):
            raise InputError("float images must have values in [0, 1], and no NaN")
        return tensor.to(self.device)

    def array(self, tensor: Float[Tensor, "B C H W"]) -> np.ndarray:
        return tensor.permute(0, 2, 3, 1).contiguous().cpu().numpy()

    def chunks(self, images: Any) -> Iterator[Float[Tensor, "B C H W"]]:
        """Images as tensors, a few at a time."""
        images = as_array(images)
        if images.ndim < 4:  # one image, or grey ones without a last axis
            yield from self.tensor(images).split(CHUNK)
            return
        if not len(images):
            raise InputError("there are no images: the array is empty")
        for start in range(0, len(images), CHUNK):
            yield self.tensor(images[start : start + CHUNK])

    @torch.no_grad()
    def encode(self, images: Any, posterior: Posterior = "recognition") -> Encoded:
        """Which capsule is on for each image, and the pose of every capsule.

        Parameters
        ----------
        images : the images
        posterior : "recognition" takes P(on) from the recognition network, if there is one; "energy" is the energy's
            own P(on | x)
        """
        check_choice("posterior", posterior, get_args(Posterior))
        on = []
        hidden = []
        for chunk in self.chunks(images):
            up = self.up(chunk, posterior)
            on.append(up.on.cpu().numpy())
            hidden.append(up.hidden.cpu().numpy())
        return Encoded(np.concatenate(on), np.concatenate(hidden))

    @torch.no_grad()
    def decode(self, hidden: Any, on: Any = None) -> np.ndarray:
        """Images from poses, by the reverse pass.

        Parameters
        ----------
        hidden : (n, J, N), the pose of every capsule
        on : which capsule is on: numbers (n,), or probabilities (n, J); the largest wins. With the gate it
            is needed unless all but one capsule are 0.
        """
        J, N = self.top.upper
        h = torch.as_tensor(np.asarray(hidden, np.float32), device=self.device)
        if h.ndim != 3 or h.shape[1:] != (J, N) or not len(h):
            raise InputError(f"hidden must have shape (n, {J}, {N}), not {tuple(h.shape)}")
        if not bool(torch.isfinite(h).all()):
            raise InputError("hidden contains NaN or infinite values")
        if on is None:
            active = (h != 0).any(-1)
            for count in active.sum(-1).unique().tolist():
                self.top.gate.check_on(count)
            winner = active.float().argmax(-1)
        else:
            winner = winners(on, len(h), J).to(self.device)
            h = only(h, winner)
        decoded = [self.down(part, on=own) for part, own in zip(h.split(CHUNK), winner.split(CHUNK), strict=True)]
        return np.concatenate([self.array(images) for images in decoded])

    @torch.no_grad()
    def reconstruct(self, images: Any, through: Literal["capsules", "autoencoder"] = "capsules") -> np.ndarray:
        """Images through the network and back, with the routing weights of the way up.

        With the gate, the most probable capsule alone carries each image.
        """
        check_choice("through", through, ("capsules", "autoencoder"))
        decoded = []
        for x in self.chunks(images):
            if through == "autoencoder":
                decoded.append(self.array(self.codec.decode(self.codec.encode(x))))
            else:
                up = self.up(x)
                decoded.append(self.array(self.down(up.state, up.c, on=up.winner)))
        return np.concatenate(decoded)


def as_array(images: Any) -> np.ndarray:
    """Images as an array; a tensor may be on a GPU or have gradients."""
    if isinstance(images, Tensor):
        images = images.detach().cpu()
    return np.asarray(images)


def channels_last(images: np.ndarray, colours: int) -> np.ndarray:
    """Images (n, H, W, C), from (n, C, H, W) if only that fits."""
    if images.shape[-1] != colours and images.shape[1] == colours:
        return images.transpose(0, 2, 3, 1)
    return images


def centre_crop(images: np.ndarray, crop: int) -> np.ndarray:
    """At most crop x crop pixels from the centre of images (n, H, W, C)."""
    top, left = (max(side - crop, 0) // 2 for side in images.shape[1:3])
    return images[:, top : top + crop, left : left + crop]


def winners(on: Any, count: int, capsules: int) -> Int[Tensor, " B"]:
    """Which capsule is on, from numbers (n,) or probabilities (n, J)."""
    array = np.asarray(on)
    if array.shape == (count, capsules):
        return torch.from_numpy(array.argmax(-1))
    if array.shape in ((), (count,)) and array.dtype.kind in "iu" and ((array >= 0) & (array < capsules)).all():
        return torch.from_numpy(np.broadcast_to(array.astype(np.int64), (count,)).copy())
    raise InputError(f"on must be {count} capsule numbers below {capsules}, or probabilities ({count}, {capsules})")
