"""How much an evaluation looks at: its choices, in full and with --quick."""

from dataclasses import dataclass, replace

from capspoe.evaluate.realism import NEIGHBOURS
from capspoe.validate import check_count

LEAST_SAMPLES = 20  # images drawn, below which scores say nothing


@dataclass(frozen=True)
class Settings:
    """Finished parts are kept under a hash of these: a new name, or another default, computes them anew."""

    quick: bool = False
    samples: int = 2000
    neighbours: int = NEIGHBOURS
    gibbs: int = 100
    probe_images: int = 60_000
    traversal_starts: int = 3
    ais_steps: int = 5000
    ais_chains: int = 100
    seed: int = 0
    ablate: bool = False


FULL = Settings()
QUICK = Settings(True, samples=1000, probe_images=10_000, traversal_starts=2, ais_steps=1000, ais_chains=50)


def settings_for(quick: bool, samples: int | None, seed: int, ablate: bool = False) -> Settings:
    chosen = replace(QUICK if quick else FULL, seed=seed, ablate=ablate)
    if samples is not None:
        check_count("samples", samples, least=LEAST_SAMPLES)
        chosen = replace(chosen, samples=samples)
    return chosen
