# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Communicators of the ranks of a process group of PyTorch, and how they are left."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import sys
import weakref
from typing import Any, Callable, List, Optional, Union

import torch.distributed as dist

from .._communicator import Communicator, unique_id
from .._errors import Error, InvalidUsage, RemoteError


class Membership:
    """A communicator of the ranks of a process group, which `owner` keeps.

    It is left by close(), and by a program that ends without an exception. Ranks collect garbage at
    different times, so a collected owner leaves without the others, whose next call fails.

    Args:
        stop: ends what uses the communicator; with wait=False without waiting for it.
    """

    def __init__(
        self,
        owner: Any,
        process_group: Optional[dist.ProcessGroup],
        stop: Callable[..., None] = lambda wait=True: None,
    ) -> None:
        self.communicator = _join(process_group)
        self._stop = stop
        self.number = next(_numbers)
        self._process = os.getpid()
        self._dropped = weakref.finalize(owner, _drop, self.communicator, stop, os.getpid())
        self._dropped.atexit = False
        _open_memberships.add(self)
        # Again for each, to run before what handles do at the end, which they register when the
        # first of them is made.
        atexit.unregister(_close_all)
        atexit.register(_close_all)

    def close(self) -> None:
        """Waits until all ranks are done with the communicator, unless it has failed, and leaves. A
        forked child has nothing to leave, and none of the threads."""
        if not self._dropped.detach() or self._process != os.getpid():
            return
        _open_memberships.discard(self)
        self._stop()
        try:
            if self.communicator.failure is None:
                self.communicator.finalize()
        finally:
            self.communicator.close()


_numbers = itertools.count()
_open_memberships: weakref.WeakSet[Membership] = weakref.WeakSet()


def _join(process_group: Optional[dist.ProcessGroup]) -> Communicator:
    """Joins a communicator of the ranks of a process group. Collective."""
    if not dist.is_initialized():
        raise InvalidUsage("torch.distributed is not initialized: call init_process_group first")
    rank, size = dist.get_rank(process_group), dist.get_world_size(process_group)
    if rank < 0:
        raise InvalidUsage("this process is no rank of the process group")
    # Whatever rank 0 has to say, the others wait for it.
    box: List[Union[bytes, str, None]] = [None]
    if rank == 0:
        try:
            box[0] = unique_id()
        except Error as error:
            box[0] = str(error)
    source = 0 if process_group is None else dist.distributed_c10d.get_global_rank(process_group, 0)
    try:
        dist.broadcast_object_list(box, src=source, group=process_group)
    except RuntimeError as error:
        raise RemoteError(
            f"the process group did not pass on where its rank 0 waits (this is rank {rank}): a onebit "
            f"State or optimizer is constructed on all {size} ranks, at the same point of the program: "
            f"{error}"
        ) from error
    if not isinstance(box[0], bytes):
        raise RemoteError(f"rank 0 of the process group cannot open a port: {box[0]}")
    return Communicator.from_unique_id(box[0], size, rank)


def _drop(communicator: Communicator, stop: Callable[..., None], process: int) -> None:
    if process != os.getpid():
        return
    stop(wait=False)
    with contextlib.suppress(Error):
        communicator.close()


def _close_all() -> None:
    """Closes what the program has left open, unless an exception ends it: other ranks may then be in
    the middle of a step, and learn of it sooner if this one just goes."""
    if getattr(sys, "last_type", None) is None:
        # Joining is collective, so this order is that of all ranks.
        for membership in sorted(_open_memberships, key=lambda each: each.number):
            with contextlib.suppress(Error):
                membership.close()
