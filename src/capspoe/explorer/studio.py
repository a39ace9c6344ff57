"""The run as the page sees it: what each capsule paints, what its numbers do, what it says of an image.

Numbers of a capsule are in units of its prior: 0 is the mean of its images, 1 a standard deviation along one of
its principal axes. Methods that take long are generators: they yield every few milliseconds and return their
result, so that others get their turn (turns.py).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from capspoe.contrastive import switched_on
from capspoe.errors import InputError
from capspoe.explorer.loaded import PIECE, Loaded, Steps
from capspoe.noise import Noise
from capspoe.routing import route
from capspoe.sampling import sample_at

On = Mapping[int, Sequence[float]]  # the numbers of each capsule that is on

STRIP = (-3, -2, -1, 0, 1, 2, 3)
SAMPLES = 6  # of each capsule in the gallery


class State(NamedTuple):
    """A top-layer state and the routing weights with which it is painted."""

    h: Tensor  # (1, J, N)
    c: Tensor | None  # (1, J, I)


class Studio(Loaded):
    # From numbers to images.

    def hidden(self, on: On) -> Tensor:
        """(1, J, N) from numbers in units of the prior."""
        model = self.model
        J, N = model.top.upper
        h = torch.zeros(1, J, N)
        if not on:
            raise InputError("no capsule is on: name at least one")
        if self.gated and len(on) != 1:
            raise InputError("exactly one capsule is on in this run: it was trained with the gate")
        for j, values in on.items():
            if not 0 <= j < J:
                raise InputError(f"there is no capsule {j}: they are numbered 0 to {J - 1}")
            if len(values) != N:
                raise InputError(f"capsule {j} has {N} numbers, not {len(values)}")
            z = model.prior.from_white(torch.tensor([j]), torch.tensor([values], dtype=torch.float32))
            h[0, j] = model.top.hidden_given_visible(z)[0]
        return h

    def painted(self, h: Tensor) -> np.ndarray:
        return self.model.array(self.model.paint(h, self.model.reverse_weights(h)))

    @torch.no_grad()
    def paint(self, on: On) -> np.ndarray:
        return self.painted(self.hidden(on))[0]

    @torch.no_grad()
    def strips(self, on: On, capsule: int) -> Steps[np.ndarray]:
        """What each number of the capsule does, the others as they are: (N, len(STRIP), H, W, C)."""
        if capsule not in on:
            raise InputError(f"capsule {capsule} is not among those that are on")
        rows = []
        for n in range(len(on[capsule])):
            states = []
            for value in STRIP:
                values = [*on[capsule]]
                values[n] = value
                states.append(self.hidden({**on, capsule: values}))
            rows.append(self.painted(torch.cat(states)))
            yield
        return np.stack(rows)

    def about(self, capsule: int) -> Steps[tuple[np.ndarray, np.ndarray]]:
        """The strips around the capsule's mean, and the effect of each number: mean change of a pixel."""
        if ("about", capsule) not in self.kept:
            revision = self.revision
            strips = yield from self.strips({capsule: [0.0] * self.model.top.upper[1]}, capsule)
            effect = np.abs(strips[:, STRIP.index(2)] - strips[:, STRIP.index(-2)]).mean((1, 2, 3))
            if revision != self.revision:
                return strips, effect
            self.kept["about", capsule] = (strips, effect)
        return self.kept["about", capsule]

    def gallery(self) -> Steps[np.ndarray]:
        """Each capsule's mean and a few of its images: (J, 1 + SAMPLES, H, W, C)."""
        if "gallery" not in self.kept:
            J, N = self.model.top.upper
            revision, rows = self.revision, []
            for j in range(J):
                index = J * np.arange(SAMPLES) + j  # the images that `capspoe sample` draws for it
                drawn = sample_at(self.model, index, np.full(SAMPLES, j), "fitted").images
                rows.append(np.concatenate([self.paint({j: [0.0] * N})[None], drawn]))
                yield
            if revision != self.revision:
                return np.stack(rows)
            self.kept["gallery"] = np.stack(rows)
        return self.kept["gallery"]

    def grid(self, rows: int, seed: int) -> Steps[np.ndarray]:
        """The paper's figure: a column a capsule, (rows, J, H, W, C)."""
        J = self.model.top.upper[0]
        found = []
        for row in range(rows):
            parts = []
            for first in range(0, J, PIECE):
                capsules = np.arange(first, min(first + PIECE, J))
                parts.append(sample_at(self.model, J * row + capsules, capsules, "fitted", seed=seed).images)
                yield
            found.append(np.concatenate(parts))
        return np.stack(found)

    @torch.no_grad()
    def random(self, capsule: int, seed: int) -> list[float]:
        """Numbers of one capsule, drawn from its prior."""
        J = self.model.top.upper[0]
        if not 0 <= capsule < J:
            raise InputError(f"there is no capsule {capsule}: they are numbered 0 to {J - 1}")
        j, prior, spread = torch.tensor([capsule]), self.model.prior, self.model.config.capsules.spread
        return rounded(
            prior.to_white(j, prior.sample(j, Noise(seed, 0, torch.zeros(1, dtype=torch.int64)), spread))[0]
        )

    # From images to numbers.

    @torch.no_grad()
    def recognise(self, image: np.ndarray) -> dict[str, Any]:
        """What the capsules say of an image (H, W, C) in [0, 1]."""
        model = self.model
        state, z, probability = self._up(image)
        J = model.top.upper[0]
        white = model.prior.to_white(torch.arange(J), z[0])
        return {
            "on": rounded(probability[0], 6),
            "winner": int(probability[0].argmax()),
            "hidden": [rounded(row) for row in model.top.hidden_given_visible(z)[0]],
            "values": [rounded(row) for row in white],
            "reconstruction": model.array(model.paint(*state))[0],
        }

    def _up(self, image: np.ndarray) -> tuple[State, Tensor, Tensor]:
        model = self.model
        c, z = model.top(model.lift(model.autoencoder.encode(model.tensor(image[None]))))
        probability, h = model.top.on_given_visible(z), model.top.hidden_given_visible(z)
        if self.gated:
            h = switched_on(h, probability.argmax(-1))
        return State(h, None if model.top.iterations == 1 else c), z, probability

    @torch.no_grad()
    def routing(self, image: np.ndarray) -> dict[str, Any]:
        """After each iteration: the relative weights r_ij = c_ij / mean, (J, I), and what is on by then."""
        model, top = self.model, self.model.top
        x = model.lift(model.autoencoder.encode(model.tensor(image[None])))
        steps = []
        for iterations in range(1, top.iterations + 1):
            c, z = route(x - top.mu, top.W, iterations, top.normalize, top.agreement, top.sharpness)
            on = top.on_given_visible(z + top.b)[0]
            relative = c[0] * top.fan
            steps.append({"weights": [rounded(row, 3) for row in relative], "on": rounded(on, 6)})
        return {"iterations": steps, "lower": self.lower(), "strength": rounded(x[0].norm(dim=-1), 3)}

    def lower(self) -> list[list[float]]:
        """Where in the image each lower capsule looks: x, y of the middle of its field and the field's width,
        as shares of the image's sides. Between two layers of capsules nothing has a place: an empty list."""
        net = self.model.autoencoder
        if len(self.model.layers) > 1:
            return []
        channels, rows, columns = net.code_shape
        height, width, _ = self.image
        field = 2 * net.kernel - 1  # pixels that two convolutions see, the second with stride 2
        places = [
            [
                round((2 * c + field / 2) / width, 4),
                round((2 * r + field / 2) / height, 4),
                round(field / width, 4),
            ]
            for r in range(rows)
            for c in range(columns)
        ]
        return [place for place in places for _ in range(channels // 8)]

    def state_of(self, spec: np.ndarray | On) -> State:
        """The two ends of a blend: an image, or capsules with their numbers."""
        if isinstance(spec, np.ndarray):
            return self._up(spec)[0]
        h = self.hidden(spec)
        return State(h, self.model.reverse_weights(h))

    @torch.no_grad()
    def blend(self, first: np.ndarray | On, last: np.ndarray | On, steps: int) -> Steps[np.ndarray]:
        """From one to the other in capsule space, (steps, H, W, C).

        Inside one capsule its numbers move on a line; between two, one fades out as the other fades in, which
        is a line as well, because the energy is linear in the states. The ends are the reconstructions.
        """
        a, b = self.state_of(first), self.state_of(last)
        I = self.model.top.lower[0]
        uniform = torch.full((1, self.model.top.upper[0], I), 1 / self.model.top.fan)
        c_a, c_b = (uniform if s.c is None else s.c for s in (a, b))
        frames = []
        for start in range(0, steps, PIECE):
            t = torch.arange(start, min(start + PIECE, steps)).view(-1, 1, 1) / max(1, steps - 1)
            frames.append(
                self.model.array(self.model.paint(torch.lerp(a.h, b.h, t), torch.lerp(c_a, c_b, t)))
            )
            yield
        return np.concatenate(frames)


def rounded(values: Tensor, digits: int = 4) -> list[float]:
    return [round(float(v), digits) for v in values]
