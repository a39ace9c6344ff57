"""From settings to a network: the only place in this package that reads settings."""

from typing import TypeVar

from capspoe.config import Config, parse_layers
from capspoe.model.autoencoder import UPSAMPLINGS, ConvAutoencoder, EdgeLoss, cross_entropy
from capspoe.model.codec import Codec
from capspoe.model.layer import CapsuleLayer
from capspoe.model.network import Network
from capspoe.model.pixels import Pixels
from capspoe.model.prior import CapsulePrior, Sampling

AnyNetwork = TypeVar("AnyNetwork", bound=Network)


def build_network(
    config: Config,
    image: tuple[int, int, int],
    codec: Codec | None = None,
    kind: type[AnyNetwork] = Network,  # type: ignore[assignment]
) -> AnyNetwork:
    """An untrained network for images of shape (height, width, colours); `codec` replaces that of the settings."""
    if codec is None:
        codec = build_codec(config, image)
    layers = build_layers(config, codec.capsules)
    prior = CapsulePrior(*layers[-1].upper, components=config.prior_components)
    sampling = Sampling(config.prior, config.prior_scale, config.logit_scale)
    network = kind(codec, layers, prior, sampling, crop=config.crop)
    network.built_from = config
    return network


def build_codec(config: Config, image: tuple[int, int, int]) -> Codec:
    if config.codec in ("pixels", "drawn-pixels"):
        return Pixels(image, config.patch, drawn=config.codec == "drawn-pixels")
    return ConvAutoencoder(
        image,
        config.channels,
        config.dropout,
        config.code_noise,
        UPSAMPLINGS[config.upsampling],
        EdgeLoss(config.edge_weight) if config.edge_weight else cross_entropy,
        seed=config.seed,
    )


def build_layers(config: Config, lower: tuple[int, int]) -> list[CapsuleLayer]:
    """The capsule layers, bottom first. Only the top one has the gate and the neurons of the settings."""
    shapes = parse_layers(config.layers)
    layers = []
    for depth, upper in enumerate(shapes):
        top = depth == len(shapes) - 1
        layer = CapsuleLayer(
            lower,
            upper,
            iterations=config.iterations,
            gate=config.gate if top else "none",
            neurons=config.neurons if top else "binary",
            bias=config.bias,
            centred=config.centred,
            normalize=config.normalize,
            agreement=config.agreement,
            sharpness=config.sharpness,
            initial_std=config.initial_std,
            seed=config.seed + depth,
        )
        layers.append(layer)
        lower = upper
    return layers
