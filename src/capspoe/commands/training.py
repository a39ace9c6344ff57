"""`capspoe train`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from capspoe.commands.parsing import parse


def train(argv: list[str]) -> None:
    """Presets change the defaults that --help shows, so they are looked up before everything is parsed."""
    import tyro

    from capspoe.config import (
        AutoencoderConfig,
        CapsuleConfig,
        Config,
        DataConfig,
        TrainingConfig,
        check,
        preset,
    )

    @dataclass(frozen=True)
    class Train:
        """Train the autoencoder, then the capsules on its code, and leave a run folder.

        The same command again carries an unfinished run on.
        """

        data: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="DATA")]]
        """mnist, fashion-mnist, cifar10, digits, or a path: a folder of images, an .npy, an .npz"""
        preset: Literal["small", "paper"] = "small"
        """Sizes: small takes minutes on a laptop, paper is the paper's 576x8 -> 20x16."""
        literal: bool = False
        """Exactly what the paper says: no gate, binary neurons, no biases, no centring, no code noise."""
        out: Path | None = None
        """The run folder (default: runs/NAME)."""
        resume: bool = False
        """Carry on the run in --out with the settings that it has."""
        images: DataConfig = field(default_factory=DataConfig)
        autoencoder: AutoencoderConfig = field(default_factory=AutoencoderConfig)
        capsules: CapsuleConfig = field(default_factory=CapsuleConfig)
        training: TrainingConfig = field(default_factory=TrainingConfig)

    def parsed(data: str) -> Train:
        name = _value_of(argv, "--preset")
        start = preset(name if name in ("small", "paper") else "small", data, "--literal" in argv,
                       _value_of(argv, "--neurons"))  # fmt: skip
        default = Train(tyro.MISSING, images=start.data, autoencoder=start.autoencoder, capsules=start.capsules,
                        training=start.training)  # fmt: skip
        return parse(Train, "train", argv, default)

    guess = _value_of(argv, None) or "mnist"
    a = parsed(guess)
    if a.data != guess:  # it stands behind a flag, where only the parser finds it
        a = parsed(a.data)
    config: Config = Config(a.images, a.autoencoder, a.capsules, a.training).replace(data=a.data)
    check(config)
    from capspoe import training

    training.command(config, a.out or training.default_folder(config, a.preset, a.literal), a.resume)


def _value_of(argv: list[str], option: str | None) -> str | None:
    """The value of an option, or the first positional argument, before the real parser has run."""
    for k, word in enumerate(argv):
        if option is None and not word.startswith("-") and (k == 0 or not argv[k - 1].startswith("--")):
            return word
        if option and word.startswith(option + "="):
            return word.split("=", 1)[1]
        if option and word == option and k + 1 < len(argv):
            return argv[k + 1]
    return None
