# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Communicators: how ranks join, and how they end."""

from __future__ import annotations

import ctypes
import dataclasses
import os
from typing import Any, List, Optional, Sequence

from . import _native
from ._collectives import Collectives
from ._errors import Error, InvalidArgument, error_of
from ._interrupts import forget, run, watch
from ._library import lib
from ._structures import configured, new


@dataclasses.dataclass(frozen=True)
class Config:
    """Parameters of a communicator of processes; None takes the default. As in NCCL the environment
    wins: a parameter is ignored where the variable named next to it is set.

    Attributes:
        transport: "socket" (default), "ucx", "mpi" or "nccl" (ONEBIT_TRANSPORT). Equal on all ranks.
        connect_timeout_ms: time for all ranks to join; 60000 (ONEBIT_CONNECT_TIMEOUT_MS).
        heartbeat_ms: time between heartbeats; 1000 (ONEBIT_HEARTBEAT_MS). Equal on all ranks.
        loss_timeout_ms: a rank silent for this long, or for twice this while packets to it get lost,
            counts as lost; 15000 (ONEBIT_LOSS_TIMEOUT_MS). Equal on all ranks.
        collective_timeout_ms: a collective without progress for this long fails; 600000
            (ONEBIT_COLLECTIVE_TIMEOUT_MS).
        shrink_grace_ms: shrink without a list waits this long for ranks that do not answer; 5000
            (ONEBIT_SHRINK_GRACE_MS).
        quorum: which ranks may go on after that. 0 (default): any, so both halves of a network that
            was cut in two may. 1: more than half, or half including the lowest (ONEBIT_QUORUM).
            Equal on all ranks.
        host_ranks: this many successive ranks form a host, unless ONEBIT_HOST is set. 0 (default):
            machines are hosts (ONEBIT_HOST_RANKS). Equal on all ranks.
    """

    transport: Optional[str] = None
    connect_timeout_ms: Optional[int] = None
    heartbeat_ms: Optional[int] = None
    loss_timeout_ms: Optional[int] = None
    collective_timeout_ms: Optional[int] = None
    shrink_grace_ms: Optional[int] = None
    quorum: Optional[int] = None
    host_ranks: Optional[int] = None

    @staticmethod
    def native(config: Optional[Config]) -> Optional[_native.Config]:
        return None if config is None else configured(_native.Config, dataclasses.asdict(config))


class Communicator(Collectives):
    """The ranks of a job. All make the same collectives in the same order.

    Collectives take arrays of NumPy, PyTorch or CuPy, and any object with the buffer protocol, in
    host memory or on a CUDA device. An array must be contiguous; its shape does not matter otherwise.
    Counts below are elements, n is the number of ranks. Results are written to `out`, or in place
    without one; calls return nothing, because with a stream there is no result yet.

    Arguments of many collectives:
        op: "sum", "avg", "max" or "min"; with a compressor "sum" or "avg".
        compressor: a Compressor made for this communicator, collective, count and element type;
            None sends full precision.
        stream: None blocks until the result is there. A Stream makes the call while the caller
            computes. Arrays on a CUDA device: a CUDA stream, given as its address or an object of
            PyTorch or CuPy; None is the legacy default stream. The call is then enqueued, and the
            caller keeps the arrays until it has run.

    Every collective raises
        TypeError: an argument is not an array, or has elements of a type that onebit does not know.
        InvalidArgument: an array is not contiguous, read-only, or of the wrong size; or the
            compressor is for something else. Nothing was sent.
        InvalidUsage: the call is wrong in this state. Nothing was sent.
        PeerLost, RemoteError, Timeout, Mismatch, Aborted and others: the communicator is out of
            use, on every rank: shrink or close it.

    The end of a `with` block is collective: it waits until all ranks are done (`finalize`) and
    closes. After an exception it only closes. One thread at a time may use a communicator, except for
    `abort`. Ctrl-C aborts the communicators of the process if a call holds up the main thread, ends
    the wait for ranks that have not joined, and raises KeyboardInterrupt there, unless the program
    handles SIGINT itself.

    Attributes:
        rank: this rank, 0 to size - 1.
        size: the number of ranks.
    """

    _destroy = "onebitCommDestroy"

    def __init__(self, handle: _native.Comm):
        """Takes over a C handle; the class methods make communicators."""
        super().__init__(handle)
        self._is_finalized = False
        watch(self)

    @classmethod
    def from_environment(cls, config: Optional[Config] = None) -> Communicator:
        """Joins all processes of this job, as the launcher's environment describes it: onebit_run,
        torchrun, mpirun or srun. Collective.

        Raises:
            InvalidUsage: variables are missing or contradict each other; the text names them.
            Timeout: not all ranks came; the text says who is missing.
        """
        return cls(_joined(config, lib.onebitCommInitEnv))

    @classmethod
    def from_unique_id(
        cls, unique_id: bytes, size: int, rank: int, config: Optional[Config] = None
    ) -> Communicator:
        """Joins a communicator of `size` processes as `rank`, with the same bytes of onebit.unique_id
        on all. Collective."""
        if len(unique_id) != ctypes.sizeof(_native.UniqueId):
            raise InvalidArgument(
                f"unique_id has {len(unique_id)} bytes, but those of onebit.unique_id have "
                f"{ctypes.sizeof(_native.UniqueId)}"
            )
        identity = _native.UniqueId.from_buffer_copy(unique_id)
        return cls(_joined(config, lib.onebitCommInitRankConfig, size, identity, rank))

    @classmethod
    def init_all(cls, size: int, devices: Optional[Sequence[int]] = None) -> List[Communicator]:
        """The ranks of one communicator inside this process, each to be driven by a thread of its own.

        Args:
            size: ranks, 1 to 1024.
            devices: for each rank the number of its CUDA device.
        """
        if devices is not None and len(devices) != size:
            raise InvalidArgument(f"init_all: there are {len(devices)} devices for {size} ranks")
        handles = (_native.Comm * max(size, 1))()
        lib.onebitCommInitAll(
            handles, size, None if devices is None else (ctypes.c_int * size)(*devices)
        )
        return [cls(_native.Comm(handle.value)) for handle in handles]

    def split(
        self, color: Optional[int], key: int = 0, config: Optional[Config] = None
    ) -> Optional[Communicator]:
        """Makes a communicator of the ranks that give the same color, ordered by key and rank; None
        for a rank whose color is None. Collective; this communicator stays as it is."""
        handle = _native.Comm()
        color = _native.ONEBIT_SPLIT_NOCOLOR if color is None else color
        lib.onebitCommSplit(self.handle, color, key, handle, Config.native(config))
        return type(self)(handle) if handle else None

    def shrink(
        self, exclude: Sequence[int] = (), *, abort: bool = False, config: Optional[Config] = None
    ) -> Communicator:
        """Makes a communicator of the ranks that remain, even if this one has failed. Collective over
        them. Close this one afterwards.

            except onebit.PeerLost:
                smaller = comm.shrink(abort=True)
                source = compressor.rebind(smaller)
                smaller.broadcast(parameters, source)

        Args:
            exclude: ranks that do not take part, equal on all that do. Empty: whoever comes is in. A
                rank that lives is waited for up to `connect_timeout_ms`, one that does not answer for
                `shrink_grace_ms`, a lost one not at all; `lost` then has those that did not come.
            abort: end a call of another thread first.

        Raises:
            InvalidUsage: this rank may not go on: the others did without it, or too few have met for
                the `quorum`.
        """
        handle = _native.Comm()
        lib.onebitCommShrink(
            self.handle,
            (ctypes.c_int * len(exclude))(*exclude),
            len(exclude),
            handle,
            Config.native(config),
            _native.ONEBIT_SHRINK_ABORT if abort else _native.ONEBIT_SHRINK_DEFAULT,
        )
        return type(self)(handle)

    def finalize(self) -> None:
        """Waits until all ranks are done with the communicator, which can then only be closed.
        Collective, and optional: see onebitCommFinalize."""
        lib.onebitCommFinalize(self.handle)
        self._is_finalized = True

    def close(self) -> None:
        forget(self)
        super().close()

    def abort(self) -> None:
        """Ends calls that are blocked in the communicator, on any rank. From any thread."""
        lib.onebitCommAbort(self.handle)

    @property
    def failure(self) -> Optional[Error]:
        """The error that put the communicator out of use; None if it is healthy."""
        result = ctypes.c_int()
        lib.onebitCommGetAsyncError(self.handle, result)
        if result.value == _native.Result.SUCCESS:
            return None
        return error_of(result.value, lib.onebitGetLastError(self.handle).decode(errors="replace"))

    @property
    def lost(self) -> List[int]:
        """The ranks whose loss is known, or, after `shrink` without a list, those that did not come."""
        ranks = (ctypes.c_int * self.size)()
        count = ctypes.c_int(self.size)
        lib.onebitCommGetLost(self.handle, ranks, count)
        return ranks[: count.value]

    def stats(self) -> _native.CommStats:
        """Counters since the creation, with the members of onebitCommStats_t: `bytes_sent`,
        `logical_bytes`, `codec_ns`, and so on. `hosts` is the number of hosts, `host` the index of
        this rank's, and `host_ranks` how many ranks are on it."""
        stats = new(_native.CommStats)
        lib.onebitCommGetStats(self.handle, stats)
        return stats

    def __exit__(self, exception_type: Any, *_: Any) -> None:
        try:
            if (
                exception_type is None
                and not self.is_closed
                and not self._is_finalized
                and self.failure is None
            ):
                self.finalize()
        finally:
            self.close()

    def __repr__(self) -> str:
        state = ", closed" if self.is_closed else ""
        return f"<onebit.Communicator rank {self.rank} of {self.size}{state}>"


def _joined(config: Optional[Config], init: Any, *arguments: Any) -> _native.Comm:
    """The communicator that a C function joins. Ctrl-C ends the wait for the other ranks."""
    handle = _native.Comm()

    def join() -> None:
        init(handle, *arguments, Config.native(config))

    configured_transport = None if config is None else config.transport
    if os.environ.get("ONEBIT_TRANSPORT", configured_transport) in ("mpi", "nccl"):
        join()  # these belong to the calling thread: MPI, or the current device
    else:
        run(join, lambda: lib.onebitCommDestroy(handle))
    return handle


def unique_id() -> bytes:
    """An id for one communicator of processes: make it on one rank, hand it to the others over a
    channel that nobody else can read, and call Communicator.from_unique_id on all.

    This process opens a port and must stay until all are done.
    """
    made = _native.UniqueId()
    lib.onebitGetUniqueId(made)
    return bytes(made)
