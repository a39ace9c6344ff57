"""Values that are computed once for a network and kept with it."""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar

from torch import nn

Value = TypeVar("Value")
ATTRIBUTE = "_cached_values"


class Entry(NamedTuple):
    versions: list[tuple[int, int]]
    value: Any


class Cache(dict[Hashable, Entry]):
    """The entries of one network; copies of the network and pickles of it start with none."""

    def __reduce__(self) -> tuple[type["Cache"], tuple[()]]:
        return Cache, ()


def cached_on(network: nn.Module, key: Hashable, make: Callable[[], Value]) -> Value:
    """Return the result of `make` for this network, which is called again only after a weight has changed.

    The value lives in a plain attribute of the network, so it goes when the network goes.
    """
    # Where a tensor lies, and how often it was written to.
    versions = [(tensor.data_ptr(), tensor._version) for tensor in network.state_dict(keep_vars=True).values()]
    cache: Cache = network.__dict__.setdefault(ATTRIBUTE, Cache())
    if key not in cache or cache[key].versions != versions:
        cache[key] = Entry(versions, make())
    return cache[key].value
