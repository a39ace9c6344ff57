"""A short run of the fuzzers: the kept corpus, and mutations of real files. Only documented errors come out."""

import random
from pathlib import Path

import pytest

from fuzz.targets import TARGETS, client, seeds

CORPUS = Path(__file__).parent / "corpus"
MUTATIONS = {"api": 100, "web": 30, "weights": 60, "image": 300}


@pytest.fixture(scope="module", autouse=True)
def _server_ends():
    yield
    if client.cache_info().currsize:
        client().__exit__(None, None, None)


def mutated(content: bytes, rng: random.Random) -> bytes:
    """A few changes of the kinds that files suffer: flips, cuts, repeats, zeros, large numbers."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        place, length = rng.randrange(len(data) + 1), rng.choice((1, 1, 2, 4, 8, 16))
        kind = rng.randrange(6)
        if kind == 0 and place < len(data):
            data[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[place : place + length] = rng.randbytes(length)
        elif kind == 2:
            del data[place : place + length]
        elif kind == 3:
            data[place:place] = data[max(0, place - length) : place]
        elif kind == 4:
            data[place : place + length] = rng.choice((b"\x00", b"\xff", b"9")) * length
        else:
            del data[place:]
    return bytes(data)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.filterwarnings("ignore")
def test_only_documented_errors_come_out(name):
    rng, real = random.Random(name), seeds(name)
    kept = [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]
    for content in [b"", *real, *kept]:
        TARGETS[name](content)
    for _ in range(MUTATIONS.get(name, 200)):
        TARGETS[name](mutated(rng.choice([*real, *kept]), rng))
