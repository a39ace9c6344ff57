"""The scikit-learn face: capsules as a transformer that also clusters, paints and scores."""

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from capspoe import fitting
from capspoe.config import AutoencoderConfig, CapsuleConfig, Config, TrainingConfig, check
from capspoe.errors import InputError
from capspoe.features import FeatureCode
from capspoe.model import CHUNK, Encoded
from capspoe.model import CapsulePoE as Network
from capspoe.pseudolikelihood import pseudo_likelihood
from capspoe.scaling import BLOCK, Range, range_of, with_channels

# Settings that the estimator does not have, and why.
LEFT_OUT = {
    "seed": "is random_state here",
    "checkpoint_seconds": "there is no run folder",
    "tensorboard": "there is no run folder",
}


class CapsulePoE(TransformerMixin, BaseEstimator):
    """Capsules trained without labels, on images or on any table of numbers.

    Images are arrays (n, H, W) or (n, H, W, C), or flat rows (n, pixels) with `image_shape` given. They are coded
    by the convolutional autoencoder, as in the paper. A table (n, features) without `image_shape` has no autoencoder:
    every eight neighbouring features are a lower capsule.

    `transform` gives the numbers of all capsules, `predict` the capsule that is on.

    The parameters that are not explained here are settings of `capspoe train`, with its defaults;
    `capspoe train --help` explains them.

    Parameters
    ----------
    image_shape : (H, W), (H, W, C) or None
        The shape of an image in each row of a flat X; None takes X as it comes.
    value_range : (low, high) or "auto"
        What becomes 0 and 1; values outside are clipped. "auto" is 0 and 255 for uint8 images, 0 and 1 for images
        within, else the smallest and the largest value of the first X: of all images, or of each feature.
    random_state : int, RandomState or None
        The seed of everything random; None draws one.

    Attributes
    ----------
    model_ : capspoe.CapsulePoE, the network
    image_shape_ : (H, W, C), or None without images
    range_ : (low, high), each a number or one for each feature
    n_features_in_ : pixels or features in a row
    """

    model_: Network
    image_shape_: tuple[int, int, int] | None
    range_: Range

    def __init__(
        self,
        image_shape: tuple[int, ...] | None = None,
        value_range: tuple[float, float] | Literal["auto"] = "auto",
        *,
        layers: str = "20x16",
        iterations: int = 3,
        normalize: Literal["lower", "upper"] = "lower",
        agreement: Literal["cosine", "dot"] = "cosine",
        sharpness: float = 0.3,
        gate: Literal["winner", "none"] = "winner",
        neurons: Literal["gaussian", "binary"] = "gaussian",
        bias: bool = True,
        centred: bool = True,
        prior: Literal["fitted", "standard"] = "fitted",
        components: int = 8,
        spread: float = 1.5,
        contrast: float | None = None,
        channels: int = 32,
        dropout: float = 0.1,
        code_noise: float = 1.0,
        optimizer: Literal["adam", "sgd"] = "adam",
        autoencoder_epochs: int = 3,
        autoencoder_lr: float = 2e-3,
        autoencoder_l2: float = 0.0,
        epochs: int = 10,
        least_steps: int = 1400,
        batch: int = 128,
        lr: float = 3e-3,
        momentum: float = 0.9,
        l2: float = 1e-5,
        cd: int = 1,
        neighbours: int = 5,
        teach: float = 1.0,
        temperature: float = 30.0,
        anneal: float = 0.7,
        balance: float = 0.3,
        threads: int | None = None,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.image_shape = image_shape
        self.value_range = value_range
        self.layers = layers
        self.iterations = iterations
        self.normalize = normalize
        self.agreement = agreement
        self.sharpness = sharpness
        self.gate = gate
        self.neurons = neurons
        self.bias = bias
        self.centred = centred
        self.prior = prior
        self.components = components
        self.spread = spread
        self.contrast = contrast
        self.channels = channels
        self.dropout = dropout
        self.code_noise = code_noise
        self.optimizer = optimizer
        self.autoencoder_epochs = autoencoder_epochs
        self.autoencoder_lr = autoencoder_lr
        self.autoencoder_l2 = autoencoder_l2
        self.epochs = epochs
        self.least_steps = least_steps
        self.batch = batch
        self.lr = lr
        self.momentum = momentum
        self.l2 = l2
        self.cd = cd
        self.neighbours = neighbours
        self.teach = teach
        self.temperature = temperature
        self.anneal = anneal
        self.balance = balance
        self.threads = threads
        self.random_state = random_state

    # Training.

    def fit(self, X: ArrayLike, y: Any = None) -> "CapsulePoE":
        """Train both stages on X, from the start; y is ignored."""
        rows = self._start(X)
        with self._threads():
            fitting.fit(self.model_, rows)
        self.model_.eval()
        return self

    def partial_fit(self, X: ArrayLike, y: Any = None) -> "CapsulePoE":
        """Carry on with one pass over X, in its order, at learning rates that do not fall; y is ignored.

        The first call settles the shape and the range of the values.
        """
        if hasattr(self, "model_"):
            rows = self._for_training(self._flat(X, reset=False)[0])
            partial = getattr(self, "_partial", None) or fitting.Partial(self.model_, trained=True)
        else:
            rows = self._start(X)
            partial = fitting.Partial(self.model_)
        with self._threads():
            partial.fit(rows)
        self._partial = partial
        self.model_.eval()
        return self

    def _start(self, X: ArrayLike) -> np.ndarray:
        """Settle everything that the first X decides, and give it as the network is trained on it."""
        config = self._config()
        flat, shape = self._flat(X, reset=True)
        self.image_shape_ = shape
        self.range_ = range_of(flat, self.value_range, images=shape is not None)
        self._partial = None
        if shape is None:
            self.model_ = Network(config, (1, flat.shape[1], 1), FeatureCode(flat.shape[1]))
        else:
            self.model_ = Network(config, shape)
        return self._for_training(flat)

    def _for_training(self, flat: np.ndarray) -> np.ndarray:
        """Pixels as uint8 (n, H, W, C), features as codes (n, I, M)."""
        network, images = self.model_.autoencoder, self.image_shape_ is not None
        rows: np.ndarray
        if images:
            rows = np.empty((len(flat), *self.model_.image), np.uint8)
        else:
            rows = np.empty((len(flat), *network.capsules), np.float32)
        start = 0
        for block in self.range_.scaled(flat, self.model_.image):
            rows[start : start + len(block)] = (
                np.rint(255 * block) if images else network.encode(torch.from_numpy(block)).numpy()
            )
            start += len(block)
        return rows

    def _config(self) -> Config:
        """The settings of a run, with one of its seeds."""
        names = {
            f.name
            for part in (AutoencoderConfig, CapsuleConfig, TrainingConfig)
            for f in dataclasses.fields(part)
        }
        settings = {name: _plain(getattr(self, name)) for name in names - set(LEFT_OUT)}
        seed = self.random_state
        if not isinstance(seed, (int, np.integer)):
            seed = check_random_state(seed).randint(2**31)
        config = Config().replace(seed=int(seed), **settings)
        check(config)
        return config

    @contextlib.contextmanager
    def _threads(self) -> Iterator[None]:
        before = torch.get_num_threads()
        if self.threads:
            torch.set_num_threads(self.threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    # What comes in.

    def _flat(self, X: ArrayLike, reset: bool) -> tuple[np.ndarray, tuple[int, int, int] | None]:
        """X as checked rows, and the shape of the images in them, if they are images."""
        shape = self.image_shape if reset else getattr(self, "image_shape_", None)
        if getattr(X, "ndim", 2) in (3, 4):
            X = np.asarray(X)
            if shape is not None and with_channels(X.shape[1:]) != with_channels(shape):
                raise InputError(f"X has images of shape {X.shape[1:]}, but image_shape is {tuple(shape)}")
            shape = X.shape[1:] if reset else shape
            X = X.reshape(len(X), math.prod(X.shape[1:]))
        flat = validate_data(self, X, reset=reset, dtype="numeric", ensure_min_samples=1)
        if flat.dtype.kind not in "uif":
            flat = flat.astype(np.float64)
        if shape is None:
            return flat, None
        shape = with_channels(shape)
        if math.prod(shape) != flat.shape[1]:
            raise InputError(
                f"image_shape {tuple(shape)} has {math.prod(shape)} pixels, but X has {flat.shape[1]} features"
            )
        return flat, shape

    def _blocks(self, X: ArrayLike) -> Iterator[NDArray[np.float32]]:
        """X as the network takes it, some images at a time."""
        check_is_fitted(self)
        return self.range_.scaled(self._flat(X, reset=False)[0], self.model_.image)

    def _encoded(self, X: ArrayLike) -> Iterator[Encoded]:
        return (self.model_.encode(images) for images in self._blocks(X))

    # What a trained network is for.

    def transform(self, X: ArrayLike) -> NDArray[np.float32]:
        """The numbers of all capsules, (n, J N): each capsule's as if it were on."""
        hidden = np.concatenate([block.hidden for block in self._encoded(X)])
        return hidden.reshape(len(hidden), -1)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float32]:
        """The probability that each capsule is on, (n, J). Rows sum to 1 with the gate, not without it."""
        return np.concatenate([block.on for block in self._encoded(X)])

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """The capsule that is most probably on, (n,)."""
        return self.predict_proba(X).argmax(1)

    def inverse_transform(self, X: ArrayLike) -> NDArray[np.float32]:
        """Rows painted from the numbers of the capsules (n, J N), on the scale of the training data.

        With the gate one capsule paints: the one that the numbers make most probable, or the only one not at 0.
        """
        check_is_fitted(self)
        J, N = self.model_.top.upper
        numbers = check_array(X, dtype=np.float32)
        if numbers.shape[1] != J * N:
            raise InputError(
                f"X must have {J * N} columns, {N} for each of {J} capsules, not {numbers.shape[1]}"
            )
        blocks = numbers.reshape(-1, J, N)
        return np.concatenate([self._painted(blocks[k : k + BLOCK]) for k in range(0, len(blocks), BLOCK)])

    def _painted(self, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
        """Rows from capsule numbers (n, J, N)."""
        top = self.model_.top
        if not top.gated:
            return self.range_.original(self.model_.decode(hidden))
        h = torch.from_numpy(hidden.copy())
        z = torch.logit(h, eps=1e-6) if top.neurons == "binary" else h
        with torch.no_grad():
            on = top.on_given_visible(z)
        alone = (h != 0).any(-1)
        on = torch.where(alone.sum(-1, keepdim=True) == 1, alone.to(on), on)
        return self.range_.original(self.model_.decode(hidden, on.numpy()))

    def sample(
        self, n_samples: int = 1, capsule: int | list[int] | None = None, random_state: Any = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """New rows on the scale of the training data, and the capsule that was on for each.

        `capsule` is a number, a list to go through in turn, or None: in proportion to their use. Without
        `random_state` each call draws the same.
        """
        check_is_fitted(self)
        seed = 0 if random_state is None else check_random_state(random_state).randint(2**31)
        images, on = self.model_.sample(n_samples, capsule, seed=int(seed))
        return self.range_.original(images), on

    def score_samples(self, X: ArrayLike) -> NDArray[np.float64]:
        """The pseudo-log-likelihood of each row's code under the top layer, with the row's own routing weights.

        Higher is more like the training data. Codes differ between autoencoders, so only models of plain features
        can be compared by it.
        """
        blocks, scores = self._blocks(X), []
        model = self.model_
        for images in blocks:
            for part in model.tensor(images).split(CHUNK):
                with torch.no_grad():
                    x = model.lift(model.autoencoder.encode(part))
                    c = None if model.top.iterations == 1 else model.top(x).c
                    scores.append(pseudo_likelihood(model.top, x, c).double().cpu().numpy())
        return np.concatenate(scores)

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """The mean of `score_samples`."""
        return float(self.score_samples(X).mean())

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """capsule0_0, capsule0_1, ...: the columns of `transform`."""
        check_is_fitted(self)
        J, N = self.model_.top.upper
        return np.array([f"capsule{j}_{n}" for j in range(J) for n in range(N)], dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


def _plain(value: Any) -> Any:
    """NumPy's numbers, which parameter grids are made of, as Python's."""
    return value.item() if isinstance(value, np.generic) else value
