"""Which capsule is on for each training image while the gate learns: found once, kept in the run folder."""

import hashlib
import io
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from capspoe import distributed
from capspoe.durable import remove_files, write_atomically, writing
from capspoe.journal import Journal
from capspoe.model import CapsulePoE
from capspoe.neighbours import neighbour_groups


class Guide(NamedTuple):
    """The winner of each training image, and the share of the images that each capsule has."""

    winner: Int[np.ndarray, " n"]
    share: Float[Tensor, " J"]

    def winners(self, index: np.ndarray, device: torch.device) -> Int[Tensor, " B"]:
        return torch.from_numpy(self.winner[index]).to(device)


def guide_for(model: CapsulePoE, codes: np.ndarray, folder: Path, journal: Journal) -> Guide | None:
    """The guide of a run, or None where the gate is to find its way alone (or has nothing to choose)."""
    neighbours, capsules = model.config.training.neighbours, model.top.upper[0]
    if not model.top.gated or neighbours == 0 or capsules == 1:
        return None

    def make() -> np.ndarray | None:
        winner = read(folder, len(codes), capsules)
        if winner is None:
            journal.say("grouping the images by their nearest neighbours")
            winner = neighbour_groups(codes, capsules, neighbours, model.config.training.seed)
            if winner is not None:
                write(folder, winner)
        return winner

    winner = distributed.of_first(make)
    if winner is None:
        journal.say("too few different images for groups: the gate finds its own, by annealing")
        return None
    share = np.bincount(winner, minlength=capsules) / len(winner)
    return Guide(winner, torch.from_numpy(share).float().to(model.device))


def write(folder: Path, winner: np.ndarray) -> None:
    """Keep the groups; they count only once their description stands beside them."""
    file = io.BytesIO()
    np.save(file, winner)
    with writing(folder):
        write_atomically(folder / "groups.npy", file.getvalue())
        description = {"sha256": hashlib.sha256(file.getvalue()).hexdigest()}
        write_atomically(folder / "groups.json", json.dumps(description).encode())


def read(folder: Path, count: int, capsules: int) -> np.ndarray | None:
    """The groups, or None when they are not there or not whole."""
    try:
        stored = (folder / "groups.npy").read_bytes()
        if json.loads((folder / "groups.json").read_text())["sha256"] != hashlib.sha256(stored).hexdigest():
            return None
        winner = np.load(io.BytesIO(stored), allow_pickle=False)
        fits = (
            winner.shape == (count,)
            and winner.dtype.kind == "i"
            and 0 <= winner.min() <= winner.max() < capsules
        )
    except Exception:  # damaged in whatever way: they are found again
        return None
    return winner if fits else None


def remove(folder: Path) -> None:
    remove_files(folder, "groups.json", "groups.npy")
