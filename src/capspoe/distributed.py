"""Several processes as one, when torchrun started several: each takes its share of every batch, and sums go over
all of them.

All processes go through the same steps with the same weights. Only process 0 writes and speaks. With one
process nothing here does anything.
"""

import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from capspoe.errors import PeerError, RunError

Value = TypeVar("Value")
MEETING = timedelta(minutes=5)  # for all to come
PATIENCE = timedelta(days=1)  # process 0 may work alone for hours; one that has ended is noticed at once


class _Here:
    """What this process knows of the others."""

    store: dist.Store | None = None  # where they leave each other notes
    alone = False  # inside `alone`
    shared = 0  # how often things were given out by `taken`


def world() -> int:
    """How many processes work together."""
    return 1 if _Here.alone else _started()


def _started() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """The number of this one among them."""
    return dist.get_rank() if world() > 1 else 0


def first() -> bool:
    """Whether this is process 0, the one that writes and speaks."""
    return rank() == 0


def on_this_machine() -> int:
    """How many of the processes share this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", 1)) if _started() > 1 else 1


@contextmanager
def joined() -> Iterator[None]:
    """Work together with the other processes that torchrun started, if it started any."""
    several = int(os.environ.get("WORLD_SIZE", 1)) > 1 and "RANK" in os.environ
    if not several or not dist.is_available() or dist.is_initialized():
        yield
        return
    try:
        store, number, count = next(dist.rendezvous("env://", timeout=MEETING))
        store = dist.PrefixStore(meeting_place(store, number, count), store)
        dist.init_process_group("gloo", store=store, rank=number, world_size=count, timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:
        raise RunError(f"the processes of this run cannot reach one another: {error}") from error
    _Here.store = store
    try:
        yield
    finally:
        _Here.store = None
        dist.destroy_process_group()


def meeting_place(store: dist.Store, number: int, count: int) -> str:
    """A name that the processes of this start have agreed on.

    A store outlives its processes: after a restart it still has the addresses of those that ended, and whoever
    comes first would call at these. So each says a number drawn just now, process 0 repeats all of them beside
    a name, and the name holds once everybody has found its own number there.
    """
    others = range(1, count)
    mine = uuid.uuid4().hex
    store.set(f"here-{number}", mine)
    end = time.monotonic() + MEETING.total_seconds()
    while time.monotonic() < end:
        if number == 0:
            seen = [store.get(f"here-{other}").decode() for other in others]
            name = uuid.uuid4().hex
            store.set("seen", " ".join([name, *seen]))
            wait_until = time.monotonic() + 1
            while time.monotonic() < wait_until:
                if all(store.check([f"{name}-{other}"]) for other in others):
                    store.set(f"{name}-go", "go")
                    return name
                time.sleep(0.02)
        else:
            name, *seen = store.get("seen").decode().split()
            if len(seen) == len(others) and seen[number - 1] == mine:
                store.set(f"{name}-{number}", "here")
                if store.check([f"{name}-go"]):
                    return name
            time.sleep(0.02)
    raise RuntimeError("not all of them came")


@contextmanager
def together() -> Iterator[None]:
    """A part that all must come through: when some fail, all stop, and the first of these says why.

    For what is done before the processes exchange anything; inside it they cannot.
    """
    failure: Exception | None = None
    try:
        yield
    except Exception as error:
        failure = error
    failed = world() - largest(world() - rank() if failure else 0)  # the first that did, or their number
    if failure and failed == rank():
        raise failure
    if failed < world():
        raise PeerError(f"process {rank()} stopped because process {failed} failed")


# Whole things, each done by one process.


def taken(things: Iterable[Value]) -> Iterator[Value]:
    """Those of the things that this process is to do: whoever is free takes the next one.

    Everybody calls it with the same things in the same order.
    """
    if world() == 1:
        yield from things
        return
    _Here.shared += 1
    assert _Here.store is not None
    queue, given = list(things), f"given-{_Here.shared}"
    while True:
        with _peers():
            place = _Here.store.add(given, 1) - 1
        if place >= len(queue):
            return
        yield queue[place]


@contextmanager
def alone() -> Iterator[None]:
    """Work that is this process's own: nothing in it is shared out or exchanged."""
    before, _Here.alone = _Here.alone, True
    try:
        yield
    finally:
        _Here.alone = before


# Shares of a batch.


class Share(NamedTuple):
    """What one process does of a batch."""

    images: np.ndarray  # which
    weight: float  # what its mean over them counts for in the mean over the batch
    batch: int  # how many images everybody has together


def share(index: np.ndarray) -> Share:
    """An even part of the batch, in order.

    Where there are more processes than images, the last ones repeat an image with weight 0: everybody has
    something to bring to every sum.
    """
    mine = part(index)
    batch = len(index)
    return Share(mine, len(mine) / batch, batch) if len(mine) else Share(index[:1], 0.0, batch)


def part(index: np.ndarray) -> np.ndarray:
    """This process's part of things in a row; the parts in the order of the processes are the whole."""
    return np.array_split(index, world())[rank()] if world() > 1 else index


# Exchanges. Everybody calls them, in the same order.


def average(weight: float, *tensors: Tensor) -> None:
    """Turn means over each process's share into means over the whole batch, in place."""
    if world() > 1:
        for tensor in tensors:
            tensor.mul_(weight)
        all_sum(*tensors)


def all_sum(*tensors: Tensor) -> None:
    """Replace tensors by their sums over the processes: one exchange for all of them."""
    _in_one_piece(dist.all_reduce, tensors)


def same(*tensors: Tensor) -> None:
    """Give everybody the tensors of process 0."""
    _in_one_piece(lambda flat: dist.broadcast(flat, 0), tensors)


def largest(value: int) -> int:
    """The largest number that any process says."""
    if world() == 1:
        return value
    tensor = torch.tensor(value)
    with _peers():
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return int(tensor)


def of_first(make: Callable[[], Value]) -> Value:
    """What process 0 makes, for everybody."""
    if world() == 1:
        return make()
    value = [make() if first() else None]
    with _peers():
        dist.broadcast_object_list(value, 0)
    return value[0]  # type: ignore[return-value]


def gathered(value: Value) -> list[Value]:
    """What everybody has, in the order of the processes."""
    if world() == 1:
        return [value]
    values: list[Any] = [None] * world()
    with _peers():
        dist.all_gather_object(values, value)
    return values


def wait() -> None:
    """Until everybody is here."""
    largest(0)


def _in_one_piece(exchange: Callable[[Tensor], Any], tensors: tuple[Tensor, ...]) -> None:
    if world() == 1:
        return
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    with _peers():
        exchange(flat)
    for tensor, values in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(values.view_as(tensor))


@contextmanager
def _peers() -> Iterator[None]:
    """An exchange fails when another process has ended: whoever ended first has said why."""
    try:
        yield
    except RuntimeError as error:
        raise PeerError(
            f"process {rank()} stopped because another process of this run has ended; "
            "run the same command again to carry on from what was saved"
        ) from error
