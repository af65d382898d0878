# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Communicators of the ranks of a process group of PyTorch, and how they are left."""

from __future__ import annotations

import concurrent.futures.thread  # registers what joins its threads before _end_waiting here
import contextlib
import os
import re
import threading
import warnings
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Union

import torch.distributed as dist

from .._communicator import Communicator, Config, unique_id
from .._errors import Error, InvalidUsage, PeerLost, RemoteError
from . import _siblings
from ._replica import ranks_of


# A thread that has nothing left to do says so at once.
_IDLE_SECONDS = 0.25
# The others are at the same point of the program, and only late if one starts late.
_PATIENCE_SECONDS = 5.0


class Membership:
    """A communicator, which `owner` keeps.

    It is left by close(), which waits for the other ranks, and, when its owner is collected or the
    program ends, without them: exit is never a collective. Ranks that then still wait for this one
    learn that it has left.

    Args:
        process_group: its ranks are those of the communicator, unless they have joined one otherwise.
        thread: makes calls on the communicator; None: only the owner's callers do.
        communicator: one that the ranks have joined, as by join_through_store.
        ranks: numbers of its ranks in the job; none: those of the process group.
        is_lent: the program leaves the communicator by itself, and only the thread ends here.
    """

    def __init__(
        self,
        owner: Any,
        process_group: Optional[dist.ProcessGroup],
        thread: Optional[concurrent.futures.Executor] = None,
        *,
        communicator: Optional[Communicator] = None,
        ranks: Sequence[int] = (),
        is_lent: bool = False,
    ) -> None:
        self._ranks = list(ranks) or ranks_of(process_group)
        self.communicator = join(process_group) if communicator is None else communicator
        self._is_lent = is_lent
        self._siblings: Dict[int, int] = {}
        # Another rank may be further, and have failed: the next call raises that, where it is awaited.
        with contextlib.suppress(Error):
            self._siblings = _siblings.find(self.communicator)
        self._thread = thread
        self._process = os.getpid()
        left = None if is_lent else self.communicator
        self._dropped = weakref.finalize(owner, _drop, left, thread, os.getpid())
        self._dropped.atexit = False  # the handle's own finalizer leaves, as late as possible
        _open_memberships.add(self)

    def close(self, at_last: Callable[[], None] = lambda: None) -> None:
        """Waits until all ranks are done with the communicator, unless it has failed, and leaves. A
        forked child has nothing to leave, and none of the threads.

        Args:
            at_last: runs after the thread's last call, while the communicator is still there.
        """
        if not self._dropped.detach() or self._process != os.getpid():
            return
        _open_memberships.discard(self)
        if self._thread is not None:
            self._thread.shutdown()
        at_last()
        if self._is_lent:
            return
        try:
            if self.communicator.failure is None:
                self.communicator.finalize()
        finally:
            self.communicator.close()

    def name_ranks(self, error: Error) -> Error:
        """Adds to the text of an error the global numbers of ranks, if they have others here."""
        if self._ranks != list(range(len(self._ranks))):
            for rank, number in enumerate(self._ranks):
                said = rf"(?<!global )\brank {rank}\b(?! \(global)"
                error.text = re.sub(said, rf"\g<0> (global rank {number})", error.text)
            error.args = (error.text,)
        return error

    @property
    def owner(self) -> Optional[Any]:
        """None once it has been collected, and the communicator left."""
        alive = self._dropped.peek()
        return None if alive is None else alive[0]

    @property
    def is_here(self) -> bool:
        """It is open, and this process is no forked child."""
        return self._process == os.getpid() and not self.communicator.is_closed

    def end_waiting(self) -> None:
        """Ends a call in which the thread waits for other ranks. Python waits for threads before it
        ends, and those ranks may be waiting for this one."""
        if self._thread is None:
            return
        try:
            self._thread.submit(int).result(_IDLE_SECONDS)
        except concurrent.futures.TimeoutError:
            self.communicator.abort()

    @property
    def others_failed(self) -> bool:
        """The communicator has failed because of another rank."""
        return isinstance(self.communicator.failure, (PeerLost, RemoteError))

    @property
    def failed_siblings(self) -> List[int]:
        """The processes of the same launcher of which one has failed, as far as it is known which."""
        lost = self.communicator.lost
        return [pid for rank, pid in self._siblings.items() if rank in lost or not lost]


_open_memberships: weakref.WeakSet[Membership] = weakref.WeakSet()


def join(process_group: Optional[dist.ProcessGroup]) -> Communicator:
    """Joins a communicator of the ranks of a process group. Collective."""
    if not dist.is_initialized():
        raise InvalidUsage("torch.distributed is not initialized: call init_process_group first")
    rank, size = dist.get_rank(process_group), dist.get_world_size(process_group)
    if rank < 0:
        raise InvalidUsage("this process is not a rank of the process group")
    default_store = dist.distributed_c10d._get_default_store()  # pylint: disable=protected-access
    box = [_invitation(default_store) if rank == 0 else None]
    source = 0 if process_group is None else dist.distributed_c10d.get_global_rank(process_group, 0)
    try:
        others = "other ranks" if rank == 0 else "rank 0, or others,"
        with _said_if_long(f"rank {rank} has waited {_PATIENCE_SECONDS:g} s for {others} of the process group"):
            dist.broadcast_object_list(box, src=source, group=process_group)
    except RuntimeError as error:
        raise RemoteError(
            f"the process group did not pass on where its rank 0 waits (this is rank {rank}): "
            f"construct a onebit State or optimizer on all {size} ranks, at the same point of the program: "
            f"{error}"
        ) from error
    return _accept(box[0], size, rank)


@contextlib.contextmanager
def _said_if_long(text: str) -> Iterator[None]:
    """Warns in a while, because a process group waits for half an hour before it fails."""
    advice = "a onebit State or optimizer is constructed on all ranks, at the same point of the program"
    timer = threading.Timer(_PATIENCE_SECONDS, warnings.warn, (f"{text}: {advice}",))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def join_through_store(
    store: dist.Store, rank: int, size: int, config: Optional[Config] = None
) -> Communicator:
    """Joins a communicator of `size` ranks that share a store of PyTorch, and no process group yet.
    Collective.

    Args:
        store: nobody else uses its key "onebit", which is not there afterwards.
    """
    if rank == 0:
        invitation = _invitation(store)
        store.set(_KEY, b"=" + invitation if isinstance(invitation, bytes) else "!" + invitation)
        try:
            return _accept(invitation, size, rank, config)
        finally:
            store.delete_key(_KEY)  # all have read it; a later group may have the same store and name
    try:
        message = bytes(store.get(_KEY))
    except RuntimeError as error:
        raise RemoteError(
            f"rank 0 of the process group did not say in its store where it waits (this is rank {rank} "
            f"of {size}): all ranks must make the same groups in the same order: {error}"
        ) from error
    is_id = message[:1] == b"="
    return _accept(message[1:] if is_id else message[1:].decode(), size, rank, config)


_KEY = "onebit"


def _invitation(store: dist.Store) -> Union[bytes, str]:
    """An id for the others, or why there is none: whatever rank 0 has to say, they wait for it."""
    try:
        with _known_network(store):
            return unique_id()
    except Error as error:
        return str(error)


def _accept(
    invitation: Union[bytes, str, None], size: int, rank: int, config: Optional[Config] = None
) -> Communicator:
    if not isinstance(invitation, bytes):
        raise RemoteError(f"rank 0 of the process group cannot open a port: {invitation}")
    return Communicator.from_unique_id(invitation, size, rank, config)


@contextlib.contextmanager
def _known_network(store: dist.Store) -> Iterator[None]:
    """Has the library wait where the store can be reached, as its variable MASTER_ADDR says in most
    jobs; init_process_group may have been given another place."""
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    before = os.environ.get("MASTER_ADDR")
    if isinstance(store, dist.TCPStore):
        os.environ["MASTER_ADDR"] = store.host
    try:
        yield
    finally:
        if before is not None:
            os.environ["MASTER_ADDR"] = before
        else:
            os.environ.pop("MASTER_ADDR", None)


def _drop(
    communicator: Optional[Communicator], thread: Optional[concurrent.futures.Executor], process: int
) -> None:
    if process != os.getpid():
        return
    if thread is not None:
        thread.shutdown(wait=False)
    if communicator is not None:
        with contextlib.suppress(Error):
            communicator.close()


def _end_waiting() -> None:
    # An owner that is collected in the midst of this would close its communicator.
    owners = [(each, each.owner) for each in _open_memberships]
    here = [each for each, owner in owners if owner is not None and each.is_here]
    for membership in here:
        membership.end_waiting()
    failed = [each for each in here if each.others_failed]
    if failed:
        with contextlib.suppress(KeyboardInterrupt):  # again; the program ends in any case
            _siblings.end_after(pid for each in failed for pid in each.failed_siblings)


# It runs before the threads of executors are joined, the last that was registered first; what atexit
# has comes after them. No public function does that.
threading._register_atexit(_end_waiting)  # type: ignore[attr-defined] # pylint: disable=protected-access
