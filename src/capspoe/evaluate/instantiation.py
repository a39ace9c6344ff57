"""Whether a capsule's numbers are instantiation parameters: does one of them control thickness, slant, size?"""

from typing import Any, Literal

import numpy as np
import torch
from scipy.stats import rankdata

from capspoe.measure import MEASURES
from capspoe.model import CapsulePoE

REACH = 2.0  # standard deviations to either side that a traversal goes
STEPS = 9
CONTROLS = 0.9  # rank correlation from which a dimension counts as controlling a measure ...
EFFECT = 0.5  # ... if the traversal changes it by this many standard deviations of the test images

Basis = Literal["axes", "neurons"]


def traversals(
    model: CapsulePoE, capsule: int, basis: Basis = "axes", bases: int = 3, seed: int = 0
) -> np.ndarray:
    """Images (N, bases, STEPS, H, W, C): each dimension of a capsule moved alone, from several starting points.

    The dimensions are the principal axes of the capsule's own numbers ("axes", as the sliders have them), or
    its single neurons, each by its standard deviation. The starts are the capsule's mean and draws about it.
    """
    J, N = model.top.upper
    rng = np.random.default_rng([seed % 2**64, capsule])
    start_SN = np.concatenate([np.zeros((1, N)), 0.7 * rng.standard_normal((bases - 1, N))])
    centre, axes = (t[capsule].cpu().double().numpy() for t in (model.prior.centre, model.prior.axes))
    deviation_N = np.sqrt((axes**2).sum(1))
    move_NN = axes.T if basis == "axes" else np.diag(deviation_N)  # row k: dimension k by one deviation
    reach_T = np.linspace(-REACH, REACH, STEPS)
    own = np.eye(N) if basis == "axes" else np.zeros((N, N))  # the coordinate that the traversal replaces
    start_NSN = start_SN[None] * (1 - own)[:, None]
    z = centre + (start_NSN @ axes.T)[:, :, None] + reach_T[:, None] * move_NN[:, None, None]
    flat = torch.from_numpy(z.reshape(-1, 1, N)).float().to(model.device)
    hidden = np.zeros((len(flat), J, N), np.float32)
    hidden[:, capsule] = model.top.hidden_given_visible(flat)[:, 0].cpu().numpy()
    images = model.decode(hidden, np.full(len(flat), capsule))
    return images.reshape(N, bases, STEPS, *images.shape[1:])


def spearman(values: np.ndarray) -> np.ndarray:
    """Rank correlation of the last axis with its order; 0 where nothing changes."""
    ranks = rankdata(values, axis=-1) - (values.shape[-1] + 1) / 2
    order = np.arange(values.shape[-1]) - (values.shape[-1] - 1) / 2
    norm = np.sqrt((ranks**2).sum(-1) * (order**2).sum())
    return np.divide(ranks @ order, norm, out=np.zeros(norm.shape), where=norm > 0)


def instantiation(
    model: CapsulePoE, test: np.ndarray, basis: Basis = "axes", bases: int = 3, seed: int = 0
) -> dict[str, Any]:
    """For each measure: every capsule's best dimension, its rank correlation and its effect.

    The correlation is averaged over the starting points with its sign, so that a dimension has to push the
    same way from all of them; the effect is the mean change over the traversal, in standard deviations of
    the test images.
    """
    J = model.top.upper[0]
    spread = {name: max(float(measure(test).std()), 1e-6) for name, measure in MEASURES.items()}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in MEASURES}
    for capsule in range(J):
        images = traversals(model, capsule, basis, bases, seed)
        N, S, T = images.shape[:3]
        for name, measure in MEASURES.items():
            values_NST = measure(images.reshape(-1, *images.shape[3:])).reshape(N, S, T)
            correlation_N = spearman(values_NST).mean(1)
            effect_N = np.abs((values_NST[..., -1] - values_NST[..., 0]).mean(1)) / spread[name]
            best = int(np.argmax(np.abs(correlation_N) * (effect_N >= EFFECT) + 1e-3 * np.abs(correlation_N)))
            found[name].append(
                {
                    "dimension": best,
                    "correlation": float(correlation_N[best]),
                    "effect": float(effect_N[best]),
                }
            )
    summary: dict[str, Any] = {}
    for name, rows in found.items():
        controlled = [abs(r["correlation"]) >= CONTROLS and r["effect"] >= EFFECT for r in rows]
        summary[name] = {
            "share_of_capsules": float(np.mean(controlled)),
            "mean_correlation": float(np.mean([abs(r["correlation"]) for r in rows])),
            "mean_effect": float(np.mean([r["effect"] for r in rows])),
            "capsules": rows,
        }
    return {"basis": basis, "starts": bases, "measures": summary}
