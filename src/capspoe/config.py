"""Every setting of a run in one table, the presets, and how settings are checked and stored.

Imports nothing heavy, so that `capspoe train --help` is quick.
"""

import dataclasses
import os
import shlex
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from capspoe.errors import InputError, RunError

Prior = Literal["fitted", "model", "standard"]
Device = Literal["auto", "cpu", "cuda", "mps"]
Compose = Literal["maximum", "sum", "occlusion"]  # the names in infer/explain/compose.py


def setting(
    default: Any,
    help: str,  # one sentence for `capspoe train --help`
    low: float | None = None,  # limits of numbers, inclusive
    high: float | None = None,
    *,
    advanced: bool = False,  # whether the help lists it under "advanced"
    no_help: str | None = None,  # the help of --no-NAME, for a switch that is on by default
) -> Any:
    """A row of the table."""
    metadata = {"help": help, "limits": (low, high), "advanced": advanced, "no_help": no_help}
    return dataclasses.field(default=default, metadata=metadata)


advanced = partial(setting, advanced=True)


@dataclass(frozen=True)
class Config:
    """All settings of a run."""

    # Images
    data: str = setting("mnist", "Data set, or path to a folder of images, an .npy, an .npz or a file.")
    size: int | None = setting(
        None, "Resize to this many pixels (default: 28 for a folder, none otherwise).", 5, 4096
    )
    crop: int | None = setting(
        None, "Crop to this many pixels: at random in training, else from the centre.", 5, 4096
    )
    colour: Literal["keep", "grey", "rgb"] = setting("keep", "Keep the colours of the images, or convert them.")
    limit: int | None = setting(None, "Use only this many images, from the start of the data set.", 1, 1e12)
    skip_bad: bool = advanced(False, "Skip unreadable image files instead of stopping.")

    # The codec: from images to lower capsules and back
    codec: Literal["autoencoder", "pixels", "drawn-pixels"] = setting(
        "autoencoder",
        "Lower capsules: the autoencoder's, or binary pixels: 1 above one half, or drawn with their brightness.",
    )
    patch: int = advanced(4, "Side of the square of pixels that forms a lower capsule.", 1, 4096)

    # The capsule layers
    layers: str = setting("20x16", "CAPSULESxNEURONS of each layer, as 64x16,20x16; autox16 counts groups of images.")
    gate: Literal["winner", "none"] = setting("winner", "winner: one capsule is on. none: the energy of the paper.")
    neurons: Literal["gaussian", "binary"] = setting("gaussian", "Neurons of the top layer; those below are binary.")
    iterations: int = setting(3, "Routing iterations; 1 turns routing off.", 1, 1000)
    normalize: Literal["lower", "upper"] = advanced("lower", "Axis of the routing softmax; upper is Sabour's.")
    agreement: Literal["cosine", "dot"] = advanced("cosine", "Agreement in routing: cosine, or dot product (Sabour).")
    sharpness: float = advanced(1.0, "Factor on the agreement in routing (the paper's is 1).", -1000, 1000)
    initial_std: float = advanced(0.05, "Standard deviation of the initial weights, in units of W / I.", 0, 100)
    bias: bool = advanced(True, "Learn biases.", no_help="Without biases, as in the paper.")
    centred: bool = advanced(True, "Subtract the mean code.", no_help="Without centring, as in the paper.")

    # The autoencoder (stage 1)
    channels: int = setting(32, "Channels of each convolution; every 8 form a lower capsule.", 8, 65536)
    autoencoder_epochs: int = setting(1, "Epochs of the autoencoder.", 1, 1e6)
    autoencoder_batch_size: int = advanced(32, "Images per training step of the autoencoder.", 1, 1e6)
    dropout: float = advanced(0.1, "Dropout on the code.", 0, 0.95)
    code_noise: float = advanced(1.0, "Noise before the code's sigmoid (std); drives the code to 0 and 1.", 0, 100)
    upsampling: Literal["even", "mirrored"] = advanced(
        "even", "First layer of the decoder: a kernel with even sides, alike for all pixels, or the paper's."
    )
    edge_weight: float = advanced(1.0, "Weight of the error of differences between pixels in the loss.", 0, 1000)
    autoencoder_optimizer: Literal["adam", "sgd"] = advanced("adam", "Optimizer of stage 1; sgd is the paper's.")
    autoencoder_learning_rate: float = advanced(3e-3, "Learning rate of the autoencoder.", 0, 10)
    autoencoder_weight_decay: float = advanced(0.0, "Weight decay (l2) of the autoencoder.", 0, 10)
    warmup: float = advanced(0.05, "Fraction of stage 1 in which the learning rate rises.", 0, 1)
    clip_norm: float | None = advanced(1.0, "Clip the norm of the autoencoder's gradient (none: do not).", 0, 1e9)

    # The capsules (stage 2)
    epochs: int = setting(3, "Epochs of each capsule layer.", 1, 1e6)
    learning_rate: float = setting(1e-3, "Learning rate of the capsules (binary neurons: 30 times as much).", 0, 100)
    batch_size: int = setting(128, "Images per training step.", 1, 1e6)
    min_steps: int = setting(1400, "Minimum steps of each stage: small data sets get extra epochs.", 0, 1e9)
    start: Literal["low-rank", "random", "mixture"] = advanced(
        "low-rank",
        "Weights before the first step: the logistic PCA of each capsule's group of images, or random. mixture: then "
        "capsules take the images that they explain, and learn by the likelihood alone, without targets.",
    )
    momentum: float = advanced(0.9, "Momentum of SGD.", 0, 0.999)
    weight_decay: float = advanced(1e-5, "Weight decay (l2) of the capsules' weights.", 0, 10)
    chains: int | None = advanced(
        None,
        "Persistent chains in each capsule; 0: contrastive divergence (default: up to 16 with gate targets and "
        "gaussian neurons, else 0).",
        0,
        10**5,
    )
    cd_steps: int = advanced(1, "Gibbs steps of contrastive divergence (CD-k).", 1, 10**6)
    reconstruction: Literal["together", "alone", "pair"] = advanced(
        "together",
        "Without the gate: capsules reconstruct an image together, or each alone; pair: without c on the way down.",
    )
    capsule_dropout: float = advanced(
        0.0,
        "Without the gate, reconstructing together: probability that a capsule sits out an image's update.",
        0,
        0.99,
    )
    hidden_states: Literal["drawn", "mean"] = advanced("drawn", "Hidden states of the chain: drawn, or their means.")
    visible_states: Literal["drawn", "mean"] = advanced("mean", "Visible states of the chain: drawn, or their means.")
    gate_targets: Literal["spectral", "none"] = advanced(
        "spectral", "spectral: the gate learns spectral clusters of the images' neighbour graph. none: anneal it."
    )
    view: Literal["codes", "pixels", "hog", "upright-hog", "auto"] = advanced(
        "auto",
        "What the graph compares; upright-hog centres and de-slants. auto: hog or upright-hog, by the images.",
    )
    kinds: int = advanced(0, "Kinds to find first, then divided by appearance (0: as many as capsules).", 0, 10**6)
    neighbours: int = advanced(10, "Neighbours of each image in the nearest-neighbour graph.", 1, 1000)
    gate_loss_weight: float = advanced(1.0, "Weight of the gate's cross-entropy loss.", 0, 1000)
    balance_rate: float = advanced(0.3, "Rate at which the gate's bias moves toward the targets' shares.", 0, 100)
    gate_temperature: float = advanced(30.0, "Initial temperature of the gate when annealing; it falls to 1.", 1, 1e6)
    anneal_fraction: float = advanced(0.7, "Fraction of stage 2 spent annealing.", 0, 1)

    # The recognition network (stage 3)
    recognition_steps: int = setting(2000, "Steps of the recognition network, the amortised gate; 0: none.", 0, 1e7)
    recognition_shift: float = advanced(2.5, "Pixels by which objects move in its training scenes.", 0, 1000)

    # Sampling
    prior: Prior = setting("fitted", "Prior of poses: fitted to images, model (the energy), standard (the paper's).")  # noqa: RUF009
    prior_components: int = advanced(16, "Gaussians in each capsule's fitted prior.", 1, 256)
    prior_scale: float | None = advanced(
        None,
        "Factor on the prior's standard deviation, the sampling temperature "
        "(default: the one whose codes are distributed most like those of the images).",
        0,
        100,
    )
    logit_scale: float | None = advanced(
        None,
        "Factor on the decoded code's logits (default: the largest up to 5 that preserves brightness and shades).",
        0.1,
        1e6,
    )

    # The run
    seed: int = setting(0, "Random seed.", -(2**62), 2**62)
    device: Device = setting("auto", "Where to compute; auto takes a GPU if there is one.")  # noqa: RUF009
    threads: int | None = setting(None, "CPU threads (default: all cores).", 1, 1024)
    checkpoint_seconds: float = advanced(20.0, "Seconds between checkpoints.", 0, 1e9)
    tensorboard: bool = advanced(False, "Also write TensorBoard events (needs the `tensorboard` extra).")

    def replace(self, **changes: Any) -> "Config":
        """A copy with some settings changed."""
        unknown = set(changes) - set(FIELDS)
        if unknown:
            raise InputError(f"there is no setting {min(unknown)!r}; `capspoe train --help` lists them")
        return dataclasses.replace(self, **changes)


FIELDS = {field.name: field for field in dataclasses.fields(Config)}
OF_THE_NETWORK = (
    "codec", "patch", "layers", "gate", "neurons", "iterations", "normalize", "agreement", "sharpness", "initial_std",
    "bias", "centred", "channels", "dropout", "code_noise", "upsampling", "edge_weight", "crop", "prior",
    "prior_components", "prior_scale", "logit_scale",
)  # fmt: skip  # settings that a network is built from; training does not read them
FREE_TO_CHANGE = ("device", "threads", "checkpoint_seconds", "tensorboard")  # do not change the result of a run


def from_dict(stored: Any, where: str = "config.json") -> Config:
    """The inverse of `dataclasses.asdict`; every field must be there and valid."""
    if not isinstance(stored, dict) or set(stored) != set(FIELDS):
        raise RunError(f"{where} is damaged: its settings are incomplete or unknown")
    config = Config(**stored)
    try:
        check(config)
    except InputError as error:
        raise RunError(f"{where} is damaged: {error}") from error
    return config


def parse_layers(text: str) -> list[tuple[int, int]]:
    """'64x16,20x16' to [(64, 16), (20, 16)]."""
    example = "20x16, 64x16,20x16 or autox16 (capsules x neurons)"
    problem = InputError(f"layers must look like {example}, not {text!r}")
    layers = []
    try:
        for part in text.split(","):
            capsules, neurons = part.split("x")
            layers.append((int(capsules), int(neurons)))
    except (ValueError, AttributeError):
        raise problem from None
    for capsules_and_neurons in layers:
        if not all(0 < number <= 10**6 for number in capsules_and_neurons):
            raise problem
    return layers


def counts_groups(layers: str) -> bool:
    """Whether the top layer has as many capsules as there are groups of images: "autox16"."""
    return layers.split(",")[-1].startswith("autox")


def fill_auto(layers: str, capsules: int) -> str:
    """The layers, with the number of capsules instead of "auto" in the top one."""
    *below, top = layers.split(",")
    if counts_groups(layers):
        top = f"{capsules}{top.removeprefix('auto')}"
    return ",".join([*below, top])


def check(config: Config) -> None:
    """Raise an InputError that names the first invalid setting."""
    for name, kind in get_type_hints(Config).items():
        value = getattr(config, name)
        low, high = FIELDS[name].metadata["limits"]
        if not _fits(value, kind):
            hint = ""
            if get_origin(kind) is Literal:
                hint = f"; choose one of {', '.join(map(str, get_args(kind)))}"
            raise InputError(f"{name} cannot be {value!r}{hint}")
        if value is not None and low is not None and not low <= value <= high:
            raise InputError(f"{name} must be between {low:g} and {high:g}, not {value!r}")
    if config.channels % 8:
        raise InputError(f"channels must be a multiple of 8, not {config.channels}")
    parse_layers(fill_auto(config.layers, 1))


def _fits(value: Any, kind: Any) -> bool:
    choices = get_args(kind)
    if get_origin(kind) is Literal:
        return value in choices
    if choices:  # a union
        return any(_fits(value, choice) for choice in choices)
    if isinstance(value, bool):
        return kind is bool
    if kind is float:
        return isinstance(value, (int, float)) and value == value  # NaN differs from itself
    return isinstance(value, kind)


# What a preset, a data set and --literal change from the defaults above. Where images have shades and texture, less
# noise on the code and a longer stage 1 keep them.
_SHADED: dict[str, Any] = {"autoencoder_epochs": 2, "code_noise": 0.5, "dropout": 0.0}
_PHOTOS: dict[str, Any] = {"autoencoder_epochs": 3, "code_noise": 0.25, "dropout": 0.0}
PRESETS: dict[str, dict[str, Any]] = {
    "small": {},
    "paper": {
        "channels": 128,
        "autoencoder_learning_rate": 1e-3,
        "epochs": 2,
        "min_steps": 750,
    },
    "photos": {**_PHOTOS, "layers": "20x32"},
}
_FOR_DATA: dict[str, dict[str, Any]] = {
    "fashion-mnist": _SHADED,
    "cifar10": {"crop": 28, **_PHOTOS},
    "digits": {"batch_size": 64},
}
# Twenty capsules of sixteen numbers leave much of a photograph out; --preset paper has them all the same. With 128
# capsules there are few chains in each: contrastive divergence keeps more of an image (FID 11.0 against 13.0).
_LARGER: dict[str, dict[str, Any]] = {
    "cifar10": {"layers": "128x32", "kinds": 32, "chains": 0, "learning_rate": 3e-3},
}
# The twenty capsules of the paper share an image, so one alone has a fraction of the logits: hence the scale. With
# dropout a capsule learns to do without the others. benchmarks/quality/literal.py is the search for these values.
_LITERAL: dict[str, Any] = {
    "gate": "none", "neurons": "binary", "bias": False, "centred": False, "code_noise": 0.0,
    "prior": "standard", "prior_scale": 1.0, "logit_scale": 20.0, "autoencoder_optimizer": "sgd",
    "autoencoder_learning_rate": 0.2, "autoencoder_weight_decay": 1e-5, "learning_rate": 0.005,
    "initial_std": 0.01, "gate_targets": "none", "reconstruction": "together", "capsule_dropout": 0.5,
    "hidden_states": "mean", "warmup": 0.0, "clip_norm": None, "recognition_steps": 0, "autoencoder_epochs": 2,
    "autoencoder_batch_size": 128, "dropout": 0.1, "upsampling": "mirrored", "edge_weight": 0.0,
    "start": "random", "epochs": 1, "min_steps": 450,
}  # fmt: skip
BINARY_RATE = 30.0  # binary neurons take a learning rate this many times that of gaussian ones


def preset(name: str = "small", data: str = "mnist", literal: bool = False, neurons: str | None = None) -> Config:
    """The settings of a preset for a data set, before the user's own changes."""
    if name not in PRESETS:
        raise InputError(f"there is no preset {name!r}; choose one of {', '.join(PRESETS)}")
    if literal:  # the paper has one size
        name = "paper"
    config = Config().replace(data=data, **(PRESETS[name] | _FOR_DATA.get(data, {})))
    if name == "small":
        config = config.replace(**_LARGER.get(data, {}))
    if neurons == "binary":
        config = config.replace(neurons="binary", learning_rate=BINARY_RATE * Config().learning_rate)
    if literal:
        config = config.replace(**_LITERAL)
    return config


def data_name(config: Config) -> str:
    """The name of the data set, without the folders above it: reports are shared."""
    first, *others = config.data.split(os.pathsep)
    name = Path(first).name or first
    return f"{name} and {len(others)} more" if others else name


def train_command(config: Config) -> str:
    """The shortest `capspoe train` command that gives these settings."""
    commands = []
    # Each of these flags changes several defaults, so all combinations are tried.
    for name, literal, neurons in product(PRESETS, (False, True), (None, config.neurons)):
        words = []
        if name != "small":
            words += ["--preset", name]
        if literal:
            words += ["--literal"]
        elif neurons:
            words += ["--neurons", neurons]
        start = dataclasses.asdict(preset(name, config.data, literal, neurons))
        for setting, value in dataclasses.asdict(config).items():
            flag = setting.replace("_", "-")
            if value == start[setting]:
                continue
            if value is True:
                words += [f"--{flag}"]
            elif value is False:
                words += [f"--no-{flag}"]
            else:
                words += [f"--{flag}", str(value)]
        commands.append(words)
    return shlex.join(["capspoe", "train", data_name(config), *min(commands, key=len)])
