"""A convolutional variational autoencoder (Kingma and Welling 2014) with the run's own decoder, as a baseline."""

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from capspoe.autoencoder import ConvAutoencoder
from capspoe.evaluate.features import Told, as_tensor
from capspoe.model import CapsulePoE
from capspoe.stages import planned_steps

CHUNK = 500


class ConvVAE(nn.Module):
    """The run's convolutions on both sides of L normal numbers: image, code, L numbers, code, image."""

    def __init__(self, image: tuple[int, int, int], channels: int, latent: int, seed: int = 0) -> None:
        super().__init__()
        self.latent = latent
        self.conv = ConvAutoencoder(image, channels, dropout=0.0, code_noise=0.0, seed=seed)
        size = math.prod(self.conv.code_shape)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.posterior = nn.Linear(size, 2 * latent)
            self.expand = nn.Linear(latent, size)
        self.conv.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def encode(self, images: Float[Tensor, "B C H W"]) -> tuple[Tensor, Tensor]:
        """Mean and log variance of the numbers, (B, L) each."""
        mean, log_variance = self.posterior(F.leaky_relu(self.conv.code_logits(images)).flatten(1)).chunk(
            2, -1
        )
        return mean, log_variance

    def image_logits(self, z: Float[Tensor, "B L"]) -> Float[Tensor, "B C H W"]:
        return self.conv.image_logits(torch.sigmoid(self.expand(z)).view(-1, *self.conv.code_shape))

    def loss(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, ""]:
        """Minus the evidence lower bound, in nats per image."""
        mean, log_variance = self.encode(images)
        z = mean + torch.exp(log_variance / 2) * torch.randn_like(mean)
        painted = F.binary_cross_entropy_with_logits(self.image_logits(z), images, reduction="sum")
        divergence = (mean.square() + log_variance.exp() - 1 - log_variance).sum() / 2
        return (painted + divergence) / len(images)


def train_vae(
    like: CapsulePoE, pixels: np.ndarray, latent: int, epochs: int, told: Told | None = None
) -> ConvVAE:
    """Train on images (n, H, W, C) with Adam, the learning rate falling along a half cosine."""
    t = like.config.training
    vae = ConvVAE(like.image, like.config.autoencoder.channels, latent, t.seed)
    optimizer = torch.optim.Adam(vae.parameters(), 1e-3)
    per_epoch = -(-len(pixels) // t.batch)
    steps = planned_steps(epochs, len(pixels), t)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(t.seed)
        for step in range(steps):
            if step % per_epoch == 0:
                order = np.random.default_rng([t.seed % 2**64, step]).permutation(len(pixels))
            at = step % per_epoch * t.batch
            loss = vae.loss(as_tensor(pixels[order[at : at + t.batch]]))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(vae.parameters(), 100.0)
            optimizer.step()
            schedule.step()
            if told:
                told(step + 1, steps)
    return vae.eval()


@torch.no_grad()
def sample_vae(vae: ConvVAE, count: int, seed: int) -> np.ndarray:
    """Images (count, H, W, C) from standard normal numbers."""
    z = torch.randn(count, vae.latent, generator=torch.Generator().manual_seed(seed))
    parts = [torch.sigmoid(vae.image_logits(part)) for part in z.split(CHUNK)]
    return torch.cat(parts).permute(0, 2, 3, 1).contiguous().numpy()


@torch.no_grad()
def vae_means(vae: ConvVAE, pixels: np.ndarray) -> np.ndarray:
    """The mean numbers of images, (n, L)."""
    parts = [
        vae.encode(as_tensor(pixels[start : start + CHUNK]))[0] for start in range(0, len(pixels), CHUNK)
    ]
    return torch.cat(parts).numpy()
