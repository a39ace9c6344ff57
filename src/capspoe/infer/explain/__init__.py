r"""Explain an image by several capsules at once: which objects are in it, and which object each pixel belongs to.

A capsule with whitened pose v decodes to an image d_j(v). Objects are composed, strokes by the maximum. The best
explanation of an image I by k capsules maximises

.. math:: -\lambda \, |\max_m d_{j_m}(v_m) - I| - \tfrac{1}{4} \sum_m |v_m|^2 + \beta \log P(j_1, \dots, j_k \mid I)

where a recognition network, if there is one, gives the probability of a set of capsules. No labels are
needed. The search has three steps.

1. Proposals: fit every capsule alone. Ink where the image has none is penalised; missing ink is not, because another
   object may explain it.
2. Selection: compose the proposals of every k capsules, and fit the best sets together.
3. Refinement: fit the best of these with the network's own decoder; the best objective wins.

The first two use a linear decoder: the logits of the pixels regressed on the pose, in each capsule.

    settings.py       all weights and efforts
    compose.py        how objects make up an image
    objective.py      what the search maximises
    decoders.py       from poses to images
    search.py         the three steps
    explanation.py    what comes out
"""

from capspoe.infer.explain.compose import COMPOSITIONS, MAXIMUM, Composition, Maximum, Occlusion, Sum
from capspoe.infer.explain.decoders import (
    Decoders,
    LinearDecoder,
    capsule_decoder,
    decoders_of,
    enlarge,
    linear_decoder,
    linear_decoder_of,
    move,
    shifted,
)
from capspoe.infer.explain.explanation import Explanation, explain, explain_steps, recognised_counts
from capspoe.infer.explain.objective import Objective, misfit, part_of
from capspoe.infer.explain.search import Sets, best_draws, fit, last, propose, search_steps, select
from capspoe.infer.explain.settings import FITTED, Ascent, Decode, Search

__all__ = [
    "COMPOSITIONS",
    "FITTED",
    "MAXIMUM",
    "Ascent",
    "Composition",
    "Decode",
    "Decoders",
    "Explanation",
    "LinearDecoder",
    "Maximum",
    "Objective",
    "Occlusion",
    "Search",
    "Sets",
    "Sum",
    "best_draws",
    "capsule_decoder",
    "decoders_of",
    "enlarge",
    "explain",
    "explain_steps",
    "fit",
    "last",
    "linear_decoder",
    "linear_decoder_of",
    "misfit",
    "move",
    "part_of",
    "propose",
    "recognised_counts",
    "search_steps",
    "select",
    "shifted",
]
