"""Capsules made directly from a table of features, without an autoencoder."""

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from capspoe.model.checks import check_count
from capspoe.model.codec import NEURONS, Codec


class FeatureCode(Codec):
    """The identity, used instead of an autoencoder: neighbouring features form a lower capsule.

    Up to eight features are one capsule; more are divided evenly, at most eight in each, and the last capsule is
    padded with zeros. A row of features in [0, 1] is an image of one line.
    """

    has_images = False

    def __init__(self, features: int) -> None:
        super().__init__()
        check_count("the number of features", features)
        self.image = (1, features, 1)
        self.features = features
        count = -(-features // NEURONS)
        self.capsules = (count, -(-features // count))

    def encode(self, rows: Float[Tensor, "B 1 1 features"]) -> Float[Tensor, "B I M"]:
        I, M = self.capsules
        return F.pad(rows.reshape(len(rows), -1), (0, I * M - self.features)).reshape(-1, I, M)

    def decode(self, x: Float[Tensor, "B I M"]) -> Float[Tensor, "B 1 1 features"]:
        return x.reshape(len(x), -1)[:, None, None, : self.features]

    def log_likelihood(
        self, images: Float[Tensor, "B 1 1 features"], x: Float[Tensor, "B I M"]
    ) -> Float[Tensor, " B"]:
        """0: the code is the row itself."""
        return images.new_zeros(len(images))
