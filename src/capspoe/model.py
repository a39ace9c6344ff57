"""CapsulePoE: an autoencoder, the capsule layers on its code, and the prior of the top one."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from capspoe import checkpoint, hub
from capspoe.autoencoder import ConvAutoencoder
from capspoe.capsules import CapsuleLayer
from capspoe.config import Config, parse_layers
from capspoe.contrastive import switched_on
from capspoe.errors import DamageWarning, InputError
from capspoe.features import FeatureCode
from capspoe.prior import CapsulePrior
from capspoe.validate import check_choice, check_count

if TYPE_CHECKING:
    from capspoe.sampling import Samples

CHUNK = 256  # images handled at once, so that memory does not grow with their number


class Encoded(NamedTuple):
    """What the capsules say of some images.

    on        (n, J): the probability that each capsule is on
    hidden    (n, J, N): the mean of each capsule's numbers, given that it is on
    """

    on: np.ndarray
    hidden: np.ndarray


class CapsulePoE(nn.Module):
    """A trained network, from images to capsules and back.

    Images go in as uint8 (0 to 255) or float (0 to 1) arrays of shape (n, H, W), (n, H, W, C) or one image
    without n, and come out as float32 in [0, 1] of shape (n, H, W, C).
    """

    def __init__(self, config: Config, image: tuple[int, int, int], code: FeatureCode | None = None) -> None:
        """`code` takes the place of the autoencoder where there are features and no images."""
        super().__init__()
        self.config, self.image = config, image
        seed = config.training.seed
        self.autoencoder = cast(ConvAutoencoder, code) or ConvAutoencoder(
            image,
            config.autoencoder.channels,
            config.autoencoder.dropout,
            config.autoencoder.code_noise,
            seed=seed,
        )
        lower = self.autoencoder.capsules
        shapes = parse_layers(config.capsules.layers)
        self.layers = nn.ModuleList()
        for depth, upper in enumerate(shapes):
            top = depth == len(shapes) - 1
            self.layers.append(
                CapsuleLayer(
                    lower,
                    upper,
                    iterations=config.capsules.iterations,
                    gate=config.capsules.gate if top else "none",
                    neurons=config.capsules.neurons if top else "binary",
                    bias=config.capsules.bias,
                    centred=config.capsules.centred,
                    normalize=config.capsules.normalize,
                    agreement=config.capsules.agreement,
                    sharpness=config.capsules.sharpness,
                    seed=seed + depth,
                )
            )
            lower = upper
        self.prior = CapsulePrior(*shapes[-1], components=config.capsules.components)
        self.autoencoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @property
    def stack(self) -> list[CapsuleLayer]:
        """The capsule layers, from the bottom."""
        return cast(list[CapsuleLayer], list(self.layers))

    @property
    def top(self) -> CapsuleLayer:
        return self.stack[-1]

    @property
    def device(self) -> torch.device:
        return self.top.w_JNMI.device

    # Images in and out.

    def tensor(self, images: Any) -> Float[Tensor, "B C H W"]:
        """Images as the network takes them; larger ones of a cropped data set are cut from the centre."""
        array = np.asarray(images)
        height, width, colours = self.image
        if array.dtype == np.uint8:
            array = array.astype(np.float32) / 255
        elif array.dtype.kind != "f":
            raise InputError(f"images must be uint8 or float, not {array.dtype}")
        if array.ndim == 2 or (array.ndim == 3 and array.shape[-1] == colours):
            array = array[None]
        if array.ndim == 3:
            array = array[..., None]
        crop = self.config.data.crop
        if array.ndim == 4 and crop:
            array = centre_crop(array, crop)
        if array.ndim != 4 or array.shape[1:] != self.image or not len(array):
            raise InputError(
                f"images must have shape (n, {height}, {width}, {colours}), not {np.shape(images)}; "
                "resize or convert them first"
            )
        tensor = torch.from_numpy(np.ascontiguousarray(array, np.float32)).permute(0, 3, 1, 2)
        if not bool(((tensor >= 0) & (tensor <= 1)).all()):
            raise InputError("float images must have values in [0, 1], and no NaN")
        return tensor.to(self.device)

    def array(self, tensor: Float[Tensor, "B C H W"]) -> np.ndarray:
        return tensor.permute(0, 2, 3, 1).contiguous().cpu().numpy()

    def _chunks(self, images: Any) -> Iterator[Tensor]:
        images = np.asarray(images)
        if images.ndim < 4:  # one image, or grey ones without a last axis: `tensor` sorts it out
            yield from self.tensor(images).split(CHUNK)
            return
        if not len(images):
            raise InputError("there are no images: the array is empty")
        for start in range(0, len(images), CHUNK):
            yield self.tensor(images[start : start + CHUNK])

    # Up and down through the layers.

    def lift(self, x: Float[Tensor, "B I M"], depth: int | None = None) -> Float[Tensor, "B i m"]:
        """Code to the input of layer `depth` (of the top layer unless said): hidden probabilities on the way."""
        for layer in self.stack[: len(self.layers) - 1 if depth is None else depth]:
            x = layer.hidden_given_visible(layer(x).z)
        return x

    def lower_down(self, x: Float[Tensor, "B I M"], depth: int | None = None) -> Float[Tensor, "B i m"]:
        """The inverse direction: the visible side of layer `depth` down to the code, routed in reverse."""
        for layer in reversed(self.stack[: len(self.layers) - 1 if depth is None else depth]):
            x = layer.visible_given_hidden(x, layer.reverse(x) if layer.iterations > 1 else None)
        return x

    def paint(
        self,
        h: Float[Tensor, "B J N"],
        c: Float[Tensor, "B J I"] | None,
        contrast: float | None = None,
    ) -> Float[Tensor, "B C H W"]:
        """Top-layer states to images, with the routing weights c.

        P(x | h) averages over what h leaves open, so it is greyer than real codes are. `contrast` multiplies its
        logits (by the model's own factor unless said); 1 leaves the probabilities as they are.
        """
        x = self.top.visible_given_hidden(h, c)
        said = self.config.capsules.contrast if contrast is None else contrast
        if said != 1:
            factor = self.prior.contrast if said is None else said
            x = torch.sigmoid(factor * torch.logit(x, eps=1e-6))
        return self.autoencoder.decode(self.lower_down(x))

    @torch.no_grad()
    def encode(self, images: Any) -> Encoded:
        """Which capsule is on for each image, and the numbers of every capsule."""
        on, hidden = [], []
        for x in self._chunks(images):
            z = self.top(self.lift(self.autoencoder.encode(x))).z
            on.append(self.top.on_given_visible(z).cpu().numpy())
            hidden.append(self.top.hidden_given_visible(z).cpu().numpy())
        return Encoded(np.concatenate(on), np.concatenate(hidden))

    @torch.no_grad()
    def decode(self, hidden: Any, on: Any = None) -> np.ndarray:
        """Images from capsule numbers (n, J, N), by the reverse pass.

        With the gate one capsule is on: `on` names it (n,), or gives probabilities (n, J) of which the largest
        counts. It may be left out when all but one capsule are 0.
        """
        J, N = self.top.upper
        h = torch.as_tensor(np.asarray(hidden, np.float32), device=self.device)
        if h.ndim != 3 or h.shape[1:] != (J, N) or not len(h):
            raise InputError(f"hidden must have shape (n, {J}, {N}), not {tuple(h.shape)}")
        if not bool(torch.isfinite(h).all()):
            raise InputError("hidden contains NaN or infinite values")
        if on is not None:
            h = switched_on(h, winners(on, len(h), J).to(self.device))
        elif self.top.gated and bool(((h != 0).any(-1).sum(-1) > 1).any()):
            raise InputError("hidden has several capsules on; pass `on` to say which one counts")
        images = []
        for part in h.split(CHUNK):
            images.append(self.array(self.paint(part, self.reverse_weights(part))))
        return np.concatenate(images)

    def reverse_weights(self, h: Float[Tensor, "B J N"]) -> Float[Tensor, "B J I"] | None:
        """Routing weights of the reverse pass; None for uniform ones, which a single capsule has by its cosines."""
        alone = self.top.agreement == "cosine" and bool(((h != 0).any(-1).sum(-1) <= 1).all())
        if alone or self.top.iterations == 1:
            return None
        return self.top.reverse(h)

    @torch.no_grad()
    def reconstruct(
        self, images: Any, through: Literal["capsules", "autoencoder"] = "capsules"
    ) -> np.ndarray:
        """Images through the network and back, with the routing weights of the way up.

        With the gate the most probable capsule alone carries each image.
        """
        check_choice("through", through, ("capsules", "autoencoder"))
        painted = []
        for x in self._chunks(images):
            code = self.autoencoder.encode(x)
            if through == "autoencoder":
                painted.append(self.array(self.autoencoder.decode(code)))
                continue
            c, z = self.top(self.lift(code))
            h = self.top.hidden_given_visible(z)
            if self.top.gated:
                h = switched_on(h, self.top.on_given_visible(z).argmax(-1))
            painted.append(self.array(self.paint(h, None if self.top.iterations == 1 else c)))
        return np.concatenate(painted)

    def sample(
        self,
        count: int,
        capsule: int | list[int] | None = None,
        prior: Literal["fitted", "standard"] | None = None,
        gibbs: int = 0,
        seed: int = 0,
        spread: float | None = None,
    ) -> "Samples":
        """New images; see `capspoe.sampling.sample`."""
        from capspoe import sampling

        return sampling.sample(self, count, capsule, prior, gibbs, seed, spread)

    # On disk.

    def save(self, folder: str | Path) -> None:
        """Write the network as a finished run folder that `load` and every command can read."""
        if not isinstance(self.autoencoder, ConvAutoencoder):
            raise InputError("a network on plain features has no run folder; pickle the estimator instead")
        checkpoint.create(Path(folder), self.config, self.image)
        checkpoint.save(Path(folder), checkpoint.State(stage="done", step=0), self.state_dict(), {})

    @classmethod
    def load(cls, folder: str | Path) -> "CapsulePoE":
        """Read a run folder, or one that `capspoe export` wrote.

        Of a run it is the newest checkpoint that is whole, with a warning when it is not the newest.
        """
        run = checkpoint.open_run(Path(folder))
        saved = hub.newest(Path(folder))
        for problem in [*([run.damaged] if run.damaged else []), *saved.damaged]:
            warnings.warn(
                f"{problem}; what the checkpoint before it says is used", DamageWarning, stacklevel=2
            )
        model = cls(run.config, run.image)
        model.load_weights(saved.weights)
        return model.eval()

    def load_weights(self, weights: dict[str, Tensor]) -> None:
        own = self.state_dict()
        if set(own) != set(weights) or any(own[k].shape != weights[k].shape for k in own):
            raise checkpoint.damaged("the weights do not fit the settings in config.json")
        if any(own[k].dtype != weights[k].dtype for k in own):
            raise checkpoint.damaged("the weights are of another type than the settings in config.json say")
        if not all(bool(torch.isfinite(value).all()) for value in weights.values()):
            raise checkpoint.damaged("the weights contain NaN or infinite values")
        self.load_state_dict(weights)


def centre_crop(images: np.ndarray, crop: int) -> np.ndarray:
    """At most crop x crop pixels from the centre of images (n, H, W, C); a side that is shorter stays whole."""
    top, left = (max(side - crop, 0) // 2 for side in images.shape[1:3])
    return images[:, top : top + crop, left : left + crop]


def winners(on: Any, count: int, capsules: int) -> Int[Tensor, " B"]:
    """Which capsule is on, from names (n,) or probabilities (n, J)."""
    array = np.asarray(on)
    if array.shape == (count, capsules):
        return torch.from_numpy(array.argmax(-1))
    if (
        array.shape in ((), (count,))
        and array.dtype.kind in "iu"
        and ((array >= 0) & (array < capsules)).all()
    ):
        return torch.from_numpy(np.broadcast_to(array.astype(np.int64), (count,)).copy())
    raise InputError(
        f"on must be {count} capsule numbers below {capsules}, or probabilities ({count}, {capsules})"
    )


def check_capsule(name: str, value: Any, capsules: int) -> None:
    check_count(name, value, least=0)
    if value >= capsules:
        raise InputError(f"{name} must be below {capsules}, the number of capsules, not {value}")
