"""The likelihood of test codes under the top capsule layer, beside that of independent units."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from capspoe.evaluate.data import EvaluationData, Split
from capspoe.infer.chains import PoseDensity
from capspoe.infer.likelihood import log_partition, log_weight
from capspoe.model.layer import MARGIN


@torch.no_grad()
def likelihood(data: EvaluationData) -> dict[str, Any] | None:
    """Nats per code of a test image, its units drawn as 0 or 1 once.

    None without the gate and gaussian neurons: log Z is estimated only for those.
    """
    network = data.network
    rng = torch.Generator().manual_seed(data.seed)
    if not PoseDensity.exists(network.top):
        return None

    def binary(split: Split) -> Float[Tensor, "n I M"]:
        codes = torch.from_numpy(split.codes).float().to(network.device)
        x = network.layer_input(codes, len(network.layers) - 1).cpu()
        return (torch.rand(x.shape, generator=rng) < x).float()

    train = binary(data.train.spread(5000))
    test = binary(data.test.spread(2000))
    z = log_partition(network.top, network.prior, data.seed)
    parts = [log_weight(network.top, x.to(network.device)) for x in test.split(256)]
    unnormalised = float(torch.cat(parts).double().mean())
    # Independent units, with the margin that the capsules' own biases start with.
    logits = torch.logit(train.double().mean(0), eps=MARGIN)
    return {
        "log_z_lower": z.lower,
        "log_z_upper": z.upper,
        "log_p_lower": unnormalised - z.upper,
        "log_p_upper": unnormalised - z.lower,
        "log_p_independent": float((test * logits).sum((1, 2)).mean() - F.softplus(logits).sum()),
        "units": logits.numel(),
    }
