# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Streams: calls that run while the caller computes."""

from __future__ import annotations

import collections
import ctypes
from typing import Any, Callable, Deque, List, Optional

from . import _native
from ._errors import Error, InvalidArgument
from ._handles import Handle
from ._library import lib
from ._native import Result

#: A Stream, or a CUDA stream: see `stream_handle`.
StreamLike = Any

# More calls than these are never pending: onebitStreamCreate has room for 1024. One may be running, and
# others may have ended whose memory nobody has missed yet.
_MOST_PENDING = 2048


class Stream(Handle):
    """A thread of the library that makes the calls queued on it, one after the other.

    Arrays, compressors and communicators of its calls are kept alive until they are done. An array
    must not be read or written before that. All calls of a communicator that are pending are on one
    stream, and in the same order on all ranks.

        with onebit.Stream() as stream:
            comm.all_reduce(gradients, op="avg", compressor=compressor, stream=stream)
            ...                                           # computes something else
            stream.synchronize()                          # raises what the calls raised

    For arrays on CUDA devices calls take CUDA's streams instead: see `stream_handle`.
    """

    _destroy = "onebitStreamDestroy"

    def __init__(self) -> None:
        handle = _native.Stream()
        lib.onebitStreamCreate(handle)
        self._pending: Deque[Any] = collections.deque(maxlen=_MOST_PENDING)
        self._errors: List[BaseException] = []  # of functions; the stream's thread appends
        super().__init__(handle, self._pending)

    def synchronize(self) -> None:
        """Waits until all calls are done.

        Raises the first error since the last time. If it is that of a function of `call`, its
        exception is the cause.
        """
        try:
            lib.onebitStreamSynchronize(self.handle)
        except Error as error:
            self._pending.clear()
            raise error from self._take_error()
        self._pending.clear()

    def query(self) -> bool:
        """Tells if all calls are done, without waiting; raises what `synchronize` would raise."""
        if lib.onebitStreamQuery(self.handle) == Result.IN_PROGRESS:
            return False
        self._pending.clear()
        return True

    def call(self, function: Callable[[], object]) -> None:
        """Queues a function after the calls so far. It runs on the stream's thread, unless a call
        before it has failed since the last `synchronize`."""
        errors = self._errors

        def run(_argument: Optional[int]) -> int:
            try:
                function()
            except (
                BaseException
            ) as error:  # pylint: disable=broad-exception-caught; C cannot pass it on
                errors.append(error)
                return Result.INTERNAL_ERROR
            return Result.SUCCESS

        callback = _native.HostFunc(run)
        lib.onebitStreamLaunchHostFunc(self.handle, callback, None)
        self._pending.append(callback)

    def close(self) -> None:
        """Waits for all calls and frees the stream; raises what `synchronize` raises."""
        if self.is_closed:
            return
        try:
            self.synchronize()
        finally:
            super().close()

    def keep(self, objects: Any) -> None:
        """Keeps what a call uses until the call is done."""
        self._pending.append(objects)

    def _take_error(self) -> Optional[BaseException]:
        error = self._errors[0] if self._errors else None
        self._errors.clear()
        return error


def stream_handle(stream: StreamLike) -> Optional[ctypes.c_void_p]:
    """The C handle of a Stream; of a CUDA stream given as its address, as an object of PyTorch or
    CuPy, or as any object with __cuda_stream__; or of None, with which a call blocks."""
    if stream is None:
        return None
    if isinstance(stream, Stream):
        return stream.handle
    if isinstance(stream, int):
        return _native.Stream(stream)
    if hasattr(stream, "__cuda_stream__"):
        _version, address = stream.__cuda_stream__()
        return _native.Stream(address)
    for attribute in ("cuda_stream", "ptr"):  # of PyTorch, of CuPy
        if hasattr(stream, attribute):
            return _native.Stream(getattr(stream, attribute))
    raise TypeError(
        f"stream is of type {type(stream).__qualname__}: pass a onebit.Stream for arrays in host "
        "memory, or a CUDA stream for those on a device"
    )


def host_stream_refused(stream: StreamLike, what: str) -> None:
    """Raises for a Stream, where a call gives its result when it returns."""
    if isinstance(stream, Stream):
        raise InvalidArgument(f"{what} blocks: call it from a function of Stream.call instead")
