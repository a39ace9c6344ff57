"""The scikit-learn estimator: capsules as a transformer that also clusters, generates and scores."""

import dataclasses
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data
from torch import Tensor

from capspoe.config import Config, check, from_dict
from capspoe.data.scaling import Range, find_range, with_channels
from capspoe.errors import InputError
from capspoe.model.features import FeatureCode
from capspoe.model.gates import only
from capspoe.model.network import Encoded
from capspoe.model.noise import Noise
from capspoe.run.model import CapsulePoE as Network
from capspoe.threads import use_threads
from capspoe.training.build import build_stages
from capspoe.training.fit import Callback, fit
from capspoe.training.stage import Stage, Step

SAME = ("gate", "neurons", "learning_rate", "batch_size")
# From parameters of the estimator to settings.
SETTINGS = {**{name: name for name in SAME}, "n_iter": "epochs", "random_state": "seed"}
DRAW_STREAM = 300  # of random numbers: of rows that are drawn as 0 and 1
WITHOUT_FOLDER = ("data", "checkpoint_seconds", "tensorboard", "layers")  # not settings of an estimator


class Printer(Callback):
    """Print the progress of each stage, ten times."""

    @contextmanager
    def stage(self, stage: Stage, first: int, last: int) -> Iterator[None]:
        self.last = last
        yield

    def step(self, stage: Stage, step: Step) -> None:
        if step.number % max(1, self.last // 10) == 0:
            name = stage.shown[0]
            progress = f"{stage.name} {step.number}/{self.last} {name} {step.metrics[name]:.4f}"
            print(f"[CapsulePoE] {progress}", file=sys.stderr)


class CapsulePoE(ClusterMixin, TransformerMixin, BaseEstimator):
    """Capsules trained without labels, on images or on any table of numbers.

    Images are arrays (n, H, W) or (n, H, W, C), or flat rows (n, pixels) with `image_shape`. The
    convolutional autoencoder encodes them, as in the paper. A table (n, features) has no
    autoencoder: every eight neighbouring features form a lower capsule.

    Parameters
    ----------
    n_components : int, number of capsules
    n_neurons : int, dimensions of a capsule's pose
    gate : "winner" or "none"; see `capspoe train --help`
    neurons : "gaussian" or "binary"
    learning_rate : float
    batch_size : int
    n_iter : int, epochs of the capsule layer
    image_shape : (H, W), (H, W, C) or None, the shape of the images in the rows of a flat X
    value_range : (low, high) or "auto", what becomes 0 and 1; values outside are clipped. "auto" is
        0 and 255 for uint8 images, 0 and 1 for images within that range, else the minimum and
        maximum of X: of all pixels, or of each feature.
    config : mapping of further settings of `capspoe train`, such as {"iterations": 1, "channels": 64};
        {"recognition_steps": 2000} adds a recognition network, which names the capsule of new images better
    verbose : int, print progress if not 0
    random_state : int, RandomState or None

    Attributes
    ----------
    model_ : capspoe.CapsulePoE, the network
    labels_ : (n,), the capsule that is on for each training row
    image_shape_ : (H, W, C), or None without images
    range_ : (low, high), numbers or one for each feature
    binary_ : whether all values of X were the two ends of the range: then samples are 0 or 1 too
    n_features_in_ : pixels or features in a row
    """

    model_: Network
    labels_: NDArray[np.int64]
    n_features_in_: int
    image_shape_: tuple[int, int, int] | None
    range_: Range
    binary_: bool

    def __init__(
        self,
        n_components: int = 20,
        n_neurons: int = 16,
        *,
        gate: str = "winner",
        neurons: str = "gaussian",
        learning_rate: float = 1e-3,
        batch_size: int = 128,
        n_iter: int = 3,
        image_shape: tuple[int, ...] | None = None,
        value_range: tuple[float, float] | Literal["auto"] = "auto",
        config: Mapping[str, Any] | None = None,
        verbose: int = 0,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.n_components = n_components
        self.n_neurons = n_neurons
        self.gate = gate
        self.neurons = neurons
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.n_iter = n_iter
        self.image_shape = image_shape
        self.value_range = value_range
        self.config = config
        self.verbose = verbose
        self.random_state = random_state

    # Training.

    def fit(self, X: ArrayLike, y: Any = None) -> "CapsulePoE":
        """Train on X from scratch; y is ignored."""
        config = self._config()
        flat, self.image_shape_ = self._flat(X, reset=True)
        self.range_ = find_range(flat, self.value_range, images=self.image_shape_ is not None)
        # Images are grey even where all training pixels are black or white.
        self.binary_ = self.image_shape_ is None and bool(np.isin(flat, (0, 1)).all())
        self.model_ = new_network(config, self.image_shape_, flat.shape[1])
        if config.threads:
            use_threads(config.threads)
        stages = build_stages(config, self.model_)
        callbacks = [Printer()] if self.verbose else []
        blocks = self.range_.scaled(flat, self.model_.image)
        # A table has no stage 1: its codes are known before training.
        if self.image_shape_ is None:
            rows = [self.model_.codec.encode(torch.from_numpy(block)).numpy() for block in blocks]
            fit(self.model_, None, stages, callbacks, codes=np.concatenate(rows))
        else:
            pixels = [np.rint(255 * block).astype(np.uint8) for block in blocks]
            fit(self.model_, np.concatenate(pixels), stages, callbacks)
        self.labels_ = self.predict(X)
        return self

    def _config(self) -> Config:
        more = dict(self.config or {})
        wrong = [name for name in more if name in WITHOUT_FOLDER or name in SETTINGS.values()]
        if wrong:
            reason = "an estimator has its own parameter for it, or none"
            raise InputError(f"config cannot set {wrong[0]!r}: {reason}")
        seed = self.random_state
        if not isinstance(seed, (int, np.integer)):
            seed = check_random_state(seed).randint(2**31)
        settings = {name: getattr(self, parameter) for parameter, name in SETTINGS.items()}
        settings["recognition_steps"] = 0  # it takes a minute; `config` can ask for it
        settings |= more
        settings["layers"] = f"{self.n_components}x{self.n_neurons}"
        settings["seed"] = int(seed)
        # Searches over grids give NumPy's numbers.
        for name, value in settings.items():
            if isinstance(value, np.generic):
                settings[name] = value.item()
        config = Config().replace(**settings)
        check(config)
        return config

    # Input.

    def _flat(self, X: ArrayLike, reset: bool) -> tuple[np.ndarray, tuple[int, int, int] | None]:
        """X as validated rows, and the shape of the images in them, if they are images."""
        shape = self.image_shape if reset else getattr(self, "image_shape_", None)
        if getattr(X, "ndim", 2) in (3, 4):
            X = np.asarray(X)
            if shape is not None and with_channels(X.shape[1:]) != with_channels(shape):
                raise InputError(f"X has images of shape {X.shape[1:]}, but image_shape is {tuple(shape)}")
            if reset:
                shape = X.shape[1:]
            X = X.reshape(len(X), math.prod(X.shape[1:]))
        flat = validate_data(self, X, reset=reset, dtype="numeric", ensure_min_samples=1)
        if flat.dtype.kind not in "uif":
            flat = flat.astype(np.float64)
        if shape is None:
            return flat, None
        shape = with_channels(shape)
        if math.prod(shape) != flat.shape[1]:
            needed = f"image_shape {shape} has {math.prod(shape)} pixels"
            raise InputError(f"{needed}, but X has {flat.shape[1]} features")
        return flat, shape

    def _blocks(self, X: ArrayLike) -> Iterator[NDArray[np.float32]]:
        """X as images in [0, 1], some at a time."""
        check_is_fitted(self)
        return self.range_.scaled(self._flat(X, reset=False)[0], self.model_.image)

    def _encoded(self, X: ArrayLike) -> Iterator[Encoded]:
        return (self.model_.encode(images) for images in self._blocks(X))

    # Using a trained network.

    def transform(self, X: ArrayLike) -> NDArray[np.float32]:
        """The poses of all capsules, (n, J N): each as if that capsule were on."""
        hidden = np.concatenate([block.hidden for block in self._encoded(X)])
        return hidden.reshape(len(hidden), -1)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float32]:
        """The probability that each capsule is on, (n, J). Rows sum to 1 with the gate."""
        return np.concatenate([block.on for block in self._encoded(X)])

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """The capsule that is most probably on, (n,)."""
        return self.predict_proba(X).argmax(1)

    def inverse_transform(self, X: ArrayLike) -> NDArray[np.float32]:
        """Rows decoded from poses (n, J N), on the scale of the training data.

        With the gate one capsule is on: the only one that is not 0, or the one whose decoded row has
        the given poses.
        """
        check_is_fitted(self)
        J, N = self.model_.top.upper
        poses = check_array(X, dtype=np.float32)
        if poses.shape[1] != J * N:
            needed = f"{J * N} columns, {N} for each of {J} capsules"
            raise InputError(f"X must have {needed}, not {poses.shape[1]}")
        h = torch.from_numpy(poses.reshape(-1, J, N).copy())
        if not self.model_.top.gate.one_on:
            return self.range_.original(self.model_.decode(h, None))
        active = (h != 0).any(-1)
        on = active.int().argmax(-1)
        # `transform` gives the poses of all capsules, and does not say which one is on.
        several = active.sum(-1) != 1
        if several.any():
            on[several] = self._find_on(h[several])
        return self.range_.original(self.model_.decode(h, on.numpy()))

    @torch.no_grad()
    def _find_on(self, h: Tensor) -> Tensor:
        """The capsule that is on, from the poses of all.

        Decode each alone, encode the result, and compare its poses with the given ones.
        """
        top = self.model_.top
        J, _ = top.upper
        errors = []
        for j in range(J):
            on = torch.full((len(h),), j)
            x = top.visible_mean(only(h, on), None, on)
            h_again = top.hidden_mean(top(x).z)
            errors.append((h_again - h).square().sum((1, 2)))
        return torch.stack(errors).argmin(0)

    def sample(
        self,
        n_samples: int = 1,
        capsule: int | list[int] | None = None,
        random_state: Any = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """New rows on the scale of the training data, and the capsule that was on for each.

        Rows of a table of 0 and 1 are drawn as 0 and 1.
        `capsule` is a number, a list to cycle through, or None: in proportion to their use. Without
        `random_state` every call returns the same rows.
        """
        check_is_fitted(self)
        seed = 0
        if random_state is not None:
            seed = check_random_state(random_state).randint(2**31)
        images, on = self.model_.sample(n_samples, capsule, seed=int(seed))
        return self._drawn(self.range_.original(images), int(seed)), on

    def gibbs(self, X: ArrayLike, random_state: Any = None) -> NDArray[np.float32]:
        """One step of Gibbs sampling from each row, as scikit-learn's `BernoulliRBM.gibbs`.

        h ~ P(h | x), then x ~ P(x | h), with the routing weights of the way up; with the gate the capsule that is on
        is drawn too. Rows of a table are drawn as 0 and 1 if the training data were; images are decoded from a drawn
        code. Without `random_state` every call with the same rows returns the same.
        """
        check_is_fitted(self)
        seed = 0
        if random_state is not None:
            seed = check_random_state(random_state).randint(2**31)
        rows = [self._gibbs_step(block, int(seed), number) for number, block in enumerate(self._blocks(X))]
        return self._drawn(self.range_.original(np.concatenate(rows)), int(seed))

    @torch.no_grad()
    def _gibbs_step(self, images: NDArray[np.float32], seed: int, number: int) -> NDArray[np.float32]:
        model = self.model_
        top = model.top
        up = model.up(model.tensor(images), "energy")
        noise = Noise(seed, 1 + number, torch.arange(len(images)))
        on = top.gate.choose(up.on, noise, 0)
        h = top.sample_hidden(up.hidden, noise, 1)
        if on is not None:
            h = only(h, on)
        return model.array(model.down(h, up.c, 1.0, on))

    def _drawn(self, rows: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
        """Rows of probabilities drawn as 0 and 1, if the training data were."""
        if not self.binary_:
            return rows
        uniform = Noise(seed, 0, torch.arange(len(rows))).uniform(DRAW_STREAM, rows.shape[1]).numpy()
        return (uniform < rows).astype(np.float32)

    def score_samples(self, X: ArrayLike) -> NDArray[np.float64]:
        """The log-likelihood of each row's code and, for images, of its pixels given the code.

        Higher is more typical. Codes differ between autoencoders, so only models of plain features
        can be compared by it. It needs the gate and gaussian neurons, or binary neurons without the gate.
        """
        return np.concatenate([self.model_.score(images).total for images in self._blocks(X)])

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """The mean of `score_samples`."""
        return float(self.score_samples(X).mean())

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """capsule0_0, capsule0_1, ...: the columns of `transform`."""
        check_is_fitted(self)
        J, N = self.model_.top.upper
        names = []
        for j in range(J):
            names += [f"capsule{j}_{n}" for n in range(N)]
        return np.array(names, dtype=object)

    def __getstate__(self) -> dict[str, Any]:
        """The network as settings and arrays, which `skops` can store."""
        state = dict(super().__getstate__())
        if "model_" in state:
            model = state.pop("model_")
            weights = {name: value.cpu().numpy() for name, value in model.state_dict().items()}
            state["_network"] = {"config": dataclasses.asdict(model.config), "weights": weights}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        stored = state.pop("_network", None)
        super().__setstate__(state)
        if stored:
            config = from_dict(stored["config"], "the estimator")
            self.model_ = new_network(config, self.image_shape_, self.n_features_in_).eval()
            # Stored arrays may be read-only; PyTorch needs its own.
            weights = {k: torch.from_numpy(v.copy()) for k, v in stored["weights"].items()}
            self.model_.load_weights(weights)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


def new_network(config: Config, shape: tuple[int, int, int] | None, features: int) -> Network:
    """An untrained network for images of this shape, or for a table of features."""
    if shape is not None:
        return Network.build(config, shape)
    codec = FeatureCode(features)
    return Network.build(config, codec.image, codec)
