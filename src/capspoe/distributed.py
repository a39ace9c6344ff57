"""Several processes started by torchrun: thin wrappers around torch.distributed that do nothing with one process.

All processes run the same steps with the same weights, each on its shard of every batch. Only
process 0 writes files and prints.
"""

import gc
import hashlib
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from capspoe.errors import PeerError, RunError

Value = TypeVar("Value")
RENDEZVOUS_TIMEOUT = timedelta(minutes=5)
EXCHANGE_TIMEOUT = timedelta(days=1)  # process 0 may work alone for hours; a dead process is noticed at once


class _Here:
    store: dist.Store | None = None


def world_size() -> int:
    if _Here.store is None:
        return 1
    return dist.get_world_size()


def rank() -> int:
    if world_size() == 1:
        return 0
    return dist.get_rank()


def is_main() -> bool:
    """Whether this is process 0, which writes and prints."""
    return rank() == 0


def local_world_size() -> int:
    """Number of processes on this machine."""
    if _Here.store is None:
        return 1
    return int(os.environ.get("LOCAL_WORLD_SIZE", 1))


@contextmanager
def process_group() -> Iterator[None]:
    """Join the process group that torchrun started, if any."""
    alone = int(os.environ.get("WORLD_SIZE", 1)) == 1 or "RANK" not in os.environ
    if _Here.store is not None or alone:
        yield
        return
    try:
        store, number, count = next(dist.rendezvous("env://", timeout=RENDEZVOUS_TIMEOUT))
        store = dist.PrefixStore(rendezvous_name(store, number, count), store)
        dist.init_process_group("gloo", store=store, rank=number, world_size=count, timeout=EXCHANGE_TIMEOUT)
    except (RuntimeError, ValueError) as error:
        raise RunError(f"the processes of this run cannot reach one another: {error}") from error
    _Here.store = store
    try:
        yield
    finally:
        _Here.store = None
        # gloo's threads abort if they outlive the interpreter. This drops torch's references to the group,
        # and the garbage collector any other in a cycle.
        dist.destroy_process_group()
        gc.collect()


def rendezvous_name(store: dist.Store, number: int, count: int) -> str:
    """A key prefix that all processes of this start agree on.

    The store outlives its processes: after a restart it still holds the addresses of dead ones. So each process
    publishes a fresh random token; the name is a hash of all tokens, and valid once all processes have seen it.
    """
    store.set(f"token-{number}", uuid.uuid4().hex)
    deadline = time.monotonic() + RENDEZVOUS_TIMEOUT.total_seconds()
    last_name = ""
    while time.monotonic() < deadline:
        tokens = [store.get(f"token-{other}") for other in range(count)]
        name = hashlib.sha256(b"".join(tokens)).hexdigest()
        # Each process counts itself once for every name that it sees.
        if store.add(name, int(name != last_name)) == count:
            return name
        last_name = name
        time.sleep(0.02)
    raise RuntimeError("some processes did not start")


@contextmanager
def fail_together() -> Iterator[None]:
    """If one process fails in this block, all stop, and the first that failed reports why.

    The block itself must not communicate.
    """
    failure: Exception | None = None
    try:
        yield
    except Exception as error:
        failure = error
    # The maximum of (processes - rank) belongs to the lowest rank that failed.
    report = 0
    if failure:
        report = world_size() - rank()
    failed = world_size() - all_reduce_max(report)
    if failure and failed == rank():
        raise failure
    if failed < world_size():
        raise PeerError(f"process {rank()} stopped because process {failed} failed")


# Sharing out work.


class Shard(NamedTuple):
    """The part of a batch that one process handles."""

    images: np.ndarray  # indices
    weight: float  # of its mean in the mean over the batch
    batch: int  # size of the whole batch


def shard(index: np.ndarray) -> Shard:
    """An even part of the batch, in order.

    With more processes than images, the last ones repeat an image with weight 0.
    """
    mine = split(index)
    batch = len(index)
    if not len(mine):
        return Shard(index[:1], 0.0, batch)
    return Shard(mine, len(mine) / batch, batch)


def split(index: np.ndarray) -> np.ndarray:
    """This process's contiguous part of an array."""
    if world_size() == 1:
        return index
    return np.array_split(index, world_size())[rank()]


# Collectives: all processes call them in the same order.


def all_reduce_mean(weight: float, *tensors: Tensor) -> None:
    """Turn means over shards into means over the whole batch, in place."""
    if world_size() > 1:
        for tensor in tensors:
            tensor.mul_(weight)
        all_reduce(*tensors)


def all_reduce(*tensors: Tensor) -> None:
    """Replace tensors by their sums over the processes, in one exchange."""
    _in_one_exchange(dist.all_reduce, tensors)


def broadcast(*tensors: Tensor) -> None:
    """Copy the tensors of process 0 to all."""
    _in_one_exchange(lambda flat: dist.broadcast(flat, 0), tensors)


def all_reduce_max(value: int) -> int:
    """The maximum over the processes."""
    if world_size() == 1:
        return value
    tensor = torch.tensor(value)
    with _peers():
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return int(tensor)


def broadcast_object(make: Callable[[], Value]) -> Value:
    """Make an object on process 0 and send it to all."""
    if world_size() == 1:
        return make()
    values: list[Any] = [None]
    if is_main():
        values[0] = make()
    with _peers():
        dist.broadcast_object_list(values, 0)
    return values[0]


def gather(value: Value) -> list[Value]:
    """The values of all processes, by rank."""
    if world_size() == 1:
        return [value]
    values: list[Any] = [None] * world_size()
    with _peers():
        dist.all_gather_object(values, value)
    return values


def _in_one_exchange(exchange: Callable[[Tensor], Any], tensors: tuple[Tensor, ...]) -> None:
    if world_size() == 1:
        return
    # gloo exchanges the memory of the CPU.
    flat = torch.cat([tensor.flatten() for tensor in tensors]).cpu()
    with _peers():
        exchange(flat)
    parts = flat.split([tensor.numel() for tensor in tensors])
    for tensor, values in zip(tensors, parts, strict=True):
        tensor.copy_(values.view_as(tensor))


@contextmanager
def _peers() -> Iterator[None]:
    """Explain an exchange that fails because another process has ended."""
    try:
        yield
    except RuntimeError as error:
        cause = "another process of this run has ended; run the same command again to resume"
        raise PeerError(f"process {rank()} stopped because {cause}") from error
