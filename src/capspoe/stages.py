"""The two stages of training, one visible loop each: the autoencoder, then the capsules on its code."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from capspoe import contrastive, data, distributed
from capspoe.capsules import CapsuleLayer
from capspoe.checkpoint import State
from capspoe.codes import code_batch
from capspoe.config import TrainingConfig
from capspoe.data.images import even_choice
from capspoe.errors import DivergedError
from capspoe.figures import write_grid
from capspoe.guide import guide_for
from capspoe.journal import Journal
from capspoe.model import CapsulePoE, centre_crop
from capspoe.noise import Noise
from capspoe.optimizers import (
    autoencoder_optimizer,
    capsule_lr,
    capsule_optimizer,
    optimizer_tensors,
    restore_optimizer,
    set_gradients,
)

PRIOR_IMAGES = 4000  # images of a capsule that its prior is fitted to
CONTRASTS = (5.0, 3.0, 2.0, 1.5, 1.2)  # tried in this order; then it is 1
BRIGHTNESS = 0.1  # by which pixels of the mean image may move, on average
BRIGHTNESS_IMAGES = 512  # of which that is the mean


def steps_in_order(
    count: int, batch: int, seed: int, stage: int, first: int, last: int
) -> Iterator[tuple[int, np.ndarray]]:
    """(step, indices) for the steps first to last - 1; each epoch goes through the images in an order of its own."""
    per_epoch = -(-count // batch)
    step = first
    while step < last:
        order = np.random.default_rng([seed % 2**64, stage, step // per_epoch]).permutation(count)
        for start in range((step % per_epoch) * batch, count, batch):
            if step == last:
                return
            yield step, order[start : start + batch]
            step += 1


def planned_steps(epochs: int, count: int, training: TrainingConfig) -> int:
    """Steps of a stage: so many passes, or more where the images are few."""
    per_epoch = -(-count // training.batch)
    return per_epoch * max(epochs, -(-training.least_steps // per_epoch))


def tell_stretched(journal: Journal, epochs: int, count: int, training: TrainingConfig) -> None:
    """Say so when there are more passes than were asked for."""
    passes = planned_steps(epochs, count, training) // -(-count // training.batch)
    if passes > epochs:
        journal.say(f"{passes} epochs rather than {epochs}, for --least-steps {training.least_steps}")


def image_steps(
    source: data.Source, batch: int, seed: int, first: int, last: int
) -> Iterator[tuple[int, distributed.Share, np.ndarray]]:
    """The steps of stage 1, each with this process's share of the images and their pixels, decoded ahead."""
    per_epoch = -(-len(source) // batch)
    for begin in range(first - first % per_epoch, last, per_epoch):
        end = min(begin + per_epoch, last)
        steps = steps_in_order(len(source), batch, seed, 1, max(first, begin), end)
        shares = [(step, distributed.share(index)) for step, index in steps]
        order = np.concatenate([mine.images for _, mine in shares])
        pixels = source.batches(len(shares[0][1].images), order, decoders(source))
        for (step, mine), decoded in zip(shares, pixels, strict=True):
            yield step, mine, decoded


def decoders(source: data.Source) -> int:
    """Worker processes that decode files; what is in memory needs none."""
    cores = (os.cpu_count() or 1) // distributed.on_this_machine()
    return 0 if not source.decodes or len(source) < 2000 else max(1, min(4, cores))


def cropped(pixels: np.ndarray, crop: int | None, noise: Noise | None) -> np.ndarray:
    """Cut out at most crop x crop pixels, at a random place for each image, or from the centre without noise."""
    if crop is None:
        return pixels
    if noise is None:
        return centre_crop(pixels, crop)
    spare = np.maximum(np.array(pixels.shape[1:3]) - crop, 0)
    corner = (noise.uniform(10, 2).cpu().numpy() * (spare + 1)).astype(int)
    return np.stack([p[y : y + crop, x : x + crop] for p, (y, x) in zip(pixels, corner, strict=True)])


def as_input(pixels: np.ndarray, device: torch.device) -> Tensor:
    """uint8 (B, H, W, C) to float (B, C, H, W) in [0, 1], laid out channels last as it already is."""
    return torch.from_numpy(np.ascontiguousarray(pixels)).to(device).permute(0, 3, 1, 2).float().div_(255)


def train_autoencoder(
    model: CapsulePoE,
    source: data.Source,
    folder: Path,
    journal: Journal,
    state: State,
    stored: dict[str, Tensor],
) -> None:
    """Stage 1: the autoencoder learns to paint an image from its noisy code."""
    c, t = model.config.autoencoder, model.config.training
    network = model.autoencoder
    distributed.same(*model.state_dict().values())
    optimizer = autoencoder_optimizer(model)
    restore_optimizer(optimizer, stored)
    steps = planned_steps(c.autoencoder_epochs, len(source), t)
    tell_stretched(journal, c.autoencoder_epochs, len(source), t)
    with journal.stage("autoencoder", "1 autoencoder", steps, state.step):
        for step, mine, pixels in image_steps(source, t.batch, t.seed, state.step, steps):
            noise = Noise(t.seed, step, torch.from_numpy(mine.images).to(model.device))
            x = as_input(cropped(pixels, model.config.data.crop, noise), model.device)
            for group in optimizer.param_groups:
                group["lr"] = c.autoencoder_lr * autoencoder_schedule(step / steps)
            loss = network.loss(x, noise).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            distributed.average(mine.weight, loss.detach(), *gradients_of(network))
            norm = torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            values = {"loss": loss.item(), "gradient_norm": norm.item()}
            journal.step(step + 1, mine.batch, values, show=("loss",))
            if journal.save_due():
                journal.save("autoencoder", step + 1, model.state_dict(), optimizer_tensors(optimizer))


def gradients_of(network: torch.nn.Module) -> list[Tensor]:
    return [parameter.grad for parameter in network.parameters() if parameter.grad is not None]


def autoencoder_schedule(done: float) -> float:
    """A short rise, then a fall along a half cosine."""
    return min(1.0, done / 0.05 + 0.05) * (0.5 + 0.5 * float(np.cos(np.pi * done)))


def train_capsules(
    model: CapsulePoE,
    depth: int,
    codes: np.ndarray,
    folder: Path,
    journal: Journal,
    state: State,
    stored: dict[str, Tensor],
) -> None:
    """Stage 2: route with the weights fixed, then update them with the routing fixed (section 3 of the paper)."""
    t, layer = model.config.training, model.stack[depth]
    top = depth == len(model.layers) - 1
    if state.step == 0:
        layer.start_from(mean_input(model, depth, codes))
    distributed.same(*model.state_dict().values())
    guide = guide_for(model, codes, folder, journal) if top else None
    optimizer = capsule_optimizer(model, layer)
    restore_optimizer(optimizer, stored)
    per_epoch = -(-len(codes) // t.batch)
    steps = planned_steps(t.epochs, len(codes), t)
    tell_stretched(journal, t.epochs, len(codes), t)
    lr = capsule_lr(model, layer)
    title = "2 capsules" if len(model.layers) == 1 else f"2 capsules, layer {depth + 1}"
    with journal.stage(f"capsules-{depth}", title, steps, state.step):
        for step, index in steps_in_order(len(codes), t.batch, t.seed, 2 + depth, state.step, steps):
            mine = distributed.share(index)
            noise = Noise(t.seed, step, torch.from_numpy(mine.images).to(model.device))
            with torch.no_grad():
                x = model.lift(code_batch(codes, mine.images, model.device), depth)
            temperature = 1.0 if guide else gate_temperature(step / steps, t.temperature, t.anneal)
            on = guide.winners(mine.images, model.device) if guide else None
            gradient, info = contrastive.step(
                layer, x, noise, k=t.cd, temperature=temperature, on=on, teach=t.teach
            )
            mean, square = x.mean(0), x.square().mean()
            distributed.average(mine.weight, *gradient, *info, mean, square)
            set_gradients(layer, gradient)
            for group in optimizer.param_groups:
                group["lr"] = lr * (1 - step / steps)
            optimizer.step()
            if layer.gated:
                layer.balance(info.use, t.balance, guide.share if guide else None)
            values = capsule_values(layer, gradient, info, square - mean.square().mean(), temperature)
            watch(layer, values, step + 1, may_collapse=guide is None and enough_to_tell(layer, mine.batch))
            journal.step(step + 1, mine.batch, values, show=("reconstruction", "confidence"))
            if top and step + 1 in (per_epoch, steps // 2):
                fit_prior(model, codes[: 8 * PRIOR_IMAGES], components=1)
                if distributed.first():
                    write_grid(model, folder / "samples.png")
            if journal.save_due():
                journal.save(f"capsules-{depth}", step + 1, model.state_dict(), optimizer_tensors(optimizer))


def gate_temperature(done: float, start: float, anneal: float) -> float:
    """From `start` to 1, by equal factors over the first `anneal` of training."""
    return float(start ** max(0.0, 1 - done / anneal)) if anneal > 0 else 1.0


def capsule_values(
    layer: CapsuleLayer,
    gradient: contrastive.Gradients,
    info: contrastive.Info,
    spread: Tensor,
    temperature: float,
) -> dict[str, Any]:
    """What metrics.jsonl records of a step; `baseline` is the error of always guessing the mean code."""
    return {
        "reconstruction": info.reconstruction.item(),
        "baseline": spread.item(),
        "confidence": info.confidence.item(),
        "routing_entropy": info.routing_entropy.item(),
        "weight_norm": layer.w_JNMI.norm().item(),
        "gradient_norm": gradient.w_JNMI.norm().item(),
        "temperature": temperature,
        "use": info.use.tolist(),
    }


def watch(layer: CapsuleLayer, values: dict[str, Any], step: int, may_collapse: bool) -> None:
    """Stop a run that has left the range of sensible numbers, before it spoils a checkpoint."""
    units = float(np.sqrt(layer.w_JNMI.numel()))
    if values["weight_norm"] > 100 * units:
        raise DivergedError(
            f"training diverged at step {step}: the weights have grown to {values['weight_norm'] / units:.0f} on "
            "average; lower lr and run again (the last good checkpoint is kept)"
        )
    if may_collapse and layer.gated and layer.upper[0] > 1 and max(values["use"]) > 0.995:
        raise DivergedError(
            f"training collapsed at step {step}: capsule {int(np.argmax(values['use']))} takes all images; raise "
            "balance or temperature, or lower lr, and run again (the last good checkpoint is kept)"
        )


def enough_to_tell(layer: CapsuleLayer, images: int) -> bool:
    """Whether so many images would hardly all belong to one capsule by chance, as the last few of an epoch may."""
    return images * float(np.log(layer.upper[0])) > 20


def mean_input(model: CapsulePoE, depth: int, codes: np.ndarray) -> Tensor:
    """The mean of what the layer will see, over an even choice of the images."""
    index = np.linspace(0, len(codes) - 1, min(len(codes), 10_000)).astype(int)
    total = torch.zeros(model.stack[depth].lower, dtype=torch.float64, device=model.device)
    with torch.no_grad():
        for start in range(0, len(index), 256):
            chunk = code_batch(codes, index[start : start + 256], model.device)
            total += model.lift(chunk, depth).double().sum(0)
    return (total / len(index)).float()


@torch.no_grad()
def fit_prior(model: CapsulePoE, codes: np.ndarray, components: int | None = None) -> None:
    """Give every capsule the distribution of the images for which it is on (all images without the gate).

    And find how much contrast painting bears.
    """
    seed = model.config.training.seed
    use, kept = seen_by_capsules(model, codes)
    if distributed.first():
        total = use.sum()  # 0 where all z are: images that are all alike, without the gate and without biases
        model.prior.use.copy_(use / total if total > 0 else torch.full_like(use, 1 / len(use)))
        for j, z in enumerate(kept):
            model.prior.fit(j, z, seed, components)
        model.prior.contrast.fill_(contrast_for(model, codes))
    distributed.same(*model.prior.state_dict().values())


def contrast_for(model: CapsulePoE, codes: np.ndarray) -> float:
    """The largest factor at which images painted from their capsules are, on average, as bright as before.

    More contrast is sharper and more varied, but where it takes codes far from those of images it bleaches or
    darkens everything: at 5 the mean image moves by .01 on MNIST, .06 on Fashion-MNIST and .29 on CIFAR-10.
    """
    some = even_choice(len(codes), BRIGHTNESS_IMAGES)
    parts = [code_batch(codes, index, model.device) for index in np.array_split(some, -(-len(some) // 32))]

    def painted(x: Tensor, factor: float) -> Tensor:
        z = model.top(model.lift(x)).z
        h = model.top.hidden_given_visible(z)
        if model.top.gated:
            h = contrastive.switched_on(h, model.top.on_given_visible(z).argmax(-1))
        return model.paint(h, model.reverse_weights(h), factor)

    before = torch.stack([model.autoencoder.decode(x).sum(0) for x in parts]).sum(0)
    for factor in CONTRASTS:
        moved = torch.stack([painted(x, factor).sum(0) for x in parts]).sum(0) - before
        if float(moved.abs().mean()) <= BRIGHTNESS * len(some):
            return factor
    return 1.0


def seen_by_capsules(model: CapsulePoE, codes: np.ndarray) -> tuple[Tensor, list[np.ndarray]]:
    """How often each capsule is on (J,), and z (n, N) of its first images; each process goes through its part."""
    layer = model.top
    J, N = layer.upper
    use = torch.zeros(J)
    kept: list[list[np.ndarray]] = [[np.empty((0, N), np.float32)] for _ in range(J)]
    for start in distributed.part(np.arange(0, len(codes), 512)):
        index = np.arange(start, min(start + 512, len(codes)))
        z = layer(model.lift(code_batch(codes, index, model.device))).z
        probability = layer.on_given_visible(z).cpu()
        use += probability.sum(0)
        winner = probability.argmax(-1).numpy()
        for j in range(J):
            if sum(map(len, kept[j])) < PRIOR_IMAGES:
                rows = winner == j if layer.gated else slice(None)
                kept[j].append(z[:, j].cpu().numpy()[rows])
    distributed.all_sum(use)
    everybody = distributed.gathered([np.concatenate(parts)[:PRIOR_IMAGES] for parts in kept])
    return use, [np.concatenate(parts)[:PRIOR_IMAGES] for parts in zip(*everybody, strict=True)]
