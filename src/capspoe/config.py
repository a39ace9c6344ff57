"""Every setting of a run, the presets, and how they are written down. Imports nothing heavy."""

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_type_hints

import tyro

from capspoe.errors import InputError, RunError


@dataclass(frozen=True)
class DataConfig:
    """Which images, and how they are brought to the network's size."""

    data: Annotated[str, tyro.conf.Suppress] = "mnist"
    size: int | None = None
    """Resize images so that they are this many pixels wide and high (own images: 28 unless said)."""
    crop: int | None = None
    """Cut this many pixels: at random places in training, from the centre otherwise."""
    colour: Literal["keep", "grey", "rgb"] = "keep"
    """Keep the images' colours, or convert them."""
    limit: int | None = None
    """Use only the first so many images."""
    skip_bad: bool = False
    """Leave out files of a folder that are not readable images, instead of stopping."""


@dataclass(frozen=True)
class AutoencoderConfig:
    """Stage 1, the convolutional autoencoder."""

    channels: int = 32
    """Channels of both convolutions; every 8 make a lower capsule at each position."""
    dropout: float = 0.1
    """Share of the code dropped in training."""
    code_noise: float = 1.0
    """Standard deviation of the noise before the code's sigmoid; it drives the code toward 0 and 1."""
    optimizer: Literal["adam", "sgd"] = "adam"
    """sgd is with momentum, as in the paper."""
    autoencoder_epochs: int = 3
    """Passes over the images in stage 1."""
    autoencoder_lr: float = 2e-3
    """Learning rate of stage 1, falling to 0."""
    autoencoder_l2: float = 0.0
    """l2 penalty of stage 1."""


@dataclass(frozen=True)
class CapsuleConfig:
    """The capsule layers and their energy."""

    layers: str = "20x16"
    """Upper capsules x neurons, from the bottom; several layers are separated by commas."""
    iterations: int = 3
    """Routing iterations; 1 turns routing off."""
    normalize: Literal["lower", "upper"] = "lower"
    """Axis of the routing softmax: over lower capsules as in this paper, or upper ones as in Sabour's."""
    agreement: Literal["cosine", "dot"] = "cosine"
    """How predictions are compared with their sum."""
    sharpness: float = 0.3
    """Factor on the agreement; 1 is the paper's."""
    gate: Literal["winner", "none"] = "winner"
    """winner: exactly one capsule is on. none: the paper's energy to the letter."""
    neurons: Literal["gaussian", "binary"] = "gaussian"
    """Kind of upper neurons in the top layer; the layers below it are binary without a gate."""
    bias: bool = True
    """Biases in the energy."""
    centred: bool = True
    """Subtract the mean code."""
    prior: Literal["fitted", "standard"] = "fitted"
    """What `sample` draws from by default: the capsule's own distribution, or the paper's."""
    components: int = 8
    """Gaussians in each capsule's fitted prior."""
    spread: float = 1.5
    """Factor on the spread of the fitted prior when drawing: more gives variety, less gives typical images."""
    contrast: float | None = None
    """Factor on the code's logits when painting; 1: none. Unless said, up to 5, as brightness bears it."""


@dataclass(frozen=True)
class TrainingConfig:
    """Stage 2, contrastive divergence, and the run as a whole."""

    epochs: int = 10
    """Passes over the codes for each capsule layer."""
    least_steps: int = 1400
    """Steps that each stage has at least: few images are gone through more often."""
    batch: int = 128
    """Images in a step."""
    lr: float = 3e-3
    """Learning rate of the capsules, falling linearly to 0 (10 times as much for binary neurons)."""
    momentum: float = 0.9
    """Momentum of sgd."""
    l2: float = 1e-5
    """l2 penalty on the capsules' weights."""
    cd: int = 1
    """Steps of the Markov chain."""
    neighbours: int = 5
    """Nearest images that each is joined to in the graph whose groups the gate learns; 0: it learns by annealing."""
    teach: float = 1.0
    """How much the gate is taught to choose an image's group, beside what the energy learns of it."""
    temperature: float = 30.0
    """Annealing: the temperature at which the gate starts; it falls to 1."""
    anneal: float = 0.7
    """Annealing: the share of stage 2 over which it falls."""
    balance: float = 0.3
    """How quickly the gate's bias brings the use of the capsules to their groups' sizes (equal when annealing)."""
    seed: int = 0
    """Seed of everything random."""
    threads: int | None = None
    """CPU threads; all cores unless said."""
    checkpoint_seconds: float = 20.0
    """Save at least this often."""
    tensorboard: bool = False
    """Also write TensorBoard events into the run folder (needs the `tensorboard` extra)."""


@dataclass(frozen=True)
class Config:
    """A run's settings."""

    data: DataConfig = field(default_factory=DataConfig)
    autoencoder: AutoencoderConfig = field(default_factory=AutoencoderConfig)
    capsules: CapsuleConfig = field(default_factory=CapsuleConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def replace(self, **changes: Any) -> "Config":
        """A copy with fields changed by their plain names, whichever part they belong to."""
        parts = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        for name, value in changes.items():
            owner = next((p for p, part in parts.items() if hasattr(part, name)), None)
            if owner is None:
                raise InputError(f"there is no setting {name!r}; `capspoe train --help` lists them")
            parts[owner] = dataclasses.replace(parts[owner], **{name: value})
        return Config(**parts)


def from_dict(stored: Any, where: str = "config.json") -> Config:
    """The inverse of `dataclasses.asdict`; every field is checked, none is guessed."""
    parts: dict[str, Any] = {}
    for name, cls in get_type_hints(Config).items():
        values = stored.get(name) if isinstance(stored, dict) else None
        if not isinstance(values, dict) or set(values) != {f.name for f in dataclasses.fields(cls)}:
            raise RunError(f"{where} is damaged: its settings for {name!r} are not complete")
        parts[name] = cls(**values)
    config = Config(**parts)
    try:
        check(config)
    except InputError as error:
        raise RunError(f"{where} is damaged: {error}") from error
    return config


def parse_layers(text: str) -> list[tuple[int, int]]:
    """'64x16,20x16' to [(64, 16), (20, 16)]."""
    try:
        layers = [(int(j), int(n)) for j, n in (part.split("x") for part in text.split(","))]
    except (ValueError, AttributeError):
        layers = []
    if not layers or any(not (0 < j <= 10**6 and 0 < n <= 10**6) for j, n in layers):
        raise InputError(f"layers must look like 20x16 or 64x16,20x16 (capsules x neurons), not {text!r}")
    return layers


_LIMITS: dict[str, tuple[float, float]] = {
    "size": (5, 4096), "crop": (5, 4096), "limit": (1, 1e12),
    "channels": (8, 65536), "dropout": (0, 0.95), "code_noise": (0, 100), "autoencoder_epochs": (1, 1e6),
    "autoencoder_lr": (0, 10), "autoencoder_l2": (0, 10),
    "iterations": (1, 1000), "sharpness": (-1000, 1000), "components": (1, 256), "spread": (0, 100),
    "contrast": (0.1, 100),
    "epochs": (1, 1e6), "least_steps": (0, 1e9), "batch": (1, 1e6), "lr": (0, 100),
    "momentum": (0, 0.999), "l2": (0, 10), "cd": (1, 10**6), "neighbours": (0, 1000),
    "teach": (0, 1000),
    "temperature": (1, 1e6), "anneal": (0, 1), "balance": (0, 100),
    "seed": (-(2**62), 2**62), "threads": (1, 1024), "checkpoint_seconds": (0, 1e9),
}  # fmt: skip


def check(config: Config) -> None:
    """Refuse settings that cannot work, naming the one that cannot."""
    for part in (config.data, config.autoencoder, config.capsules, config.training):
        for name, kind in get_type_hints(type(part)).items():
            value = getattr(part, name)
            if not _fits(value, kind):
                raise InputError(f"{name} cannot be {value!r}")
            if value is not None and name in _LIMITS:
                low, high = _LIMITS[name]
                if not low <= value <= high:
                    raise InputError(f"{name} must be between {low:g} and {high:g}, not {value!r}")
    if config.autoencoder.channels % 8:
        raise InputError(f"channels must be a multiple of 8, not {config.autoencoder.channels}")
    parse_layers(config.capsules.layers)


def _fits(value: Any, kind: Any) -> bool:
    choices = getattr(kind, "__args__", ())
    if getattr(kind, "__origin__", None) is Literal:
        return value in choices
    if choices:  # a union
        return any(_fits(value, choice) for choice in choices)
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)


# What a preset changes from the defaults above, for every data set and for some.
_PRESETS: dict[str, dict[str, Any]] = {
    "small": {},
    "paper": {
        "channels": 128,
        "autoencoder_epochs": 2,
        "autoencoder_lr": 1e-3,
        "epochs": 6,
        "least_steps": 750,
    },
}
_FOR_DATA: dict[str, dict[str, Any]] = {
    "cifar10": {"crop": 28},
    "digits": {"batch": 64},
}
_LITERAL: dict[str, Any] = {
    "gate": "none", "neurons": "binary", "bias": False, "centred": False, "code_noise": 0.0,
    "sharpness": 1.0, "prior": "standard", "spread": 1.0, "contrast": 1.0, "optimizer": "sgd", "autoencoder_lr": 0.2,
    "autoencoder_l2": 1e-5, "lr": 0.02, "neighbours": 0,
}  # fmt: skip


def preset(
    name: str = "small", data: str = "mnist", literal: bool = False, neurons: str | None = None
) -> Config:
    """The settings of a preset for a data set, before the user's own changes."""
    if name not in _PRESETS:
        raise InputError(f"there is no preset {name!r}; there are {', '.join(_PRESETS)}")
    config = Config().replace(data=data, **_PRESETS[name])
    config = config.replace(**_FOR_DATA.get(data, {}))
    if neurons == "binary":
        config = config.replace(neurons="binary", lr=10 * config.training.lr)
    return config.replace(**_LITERAL) if literal else config
