# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The collectives of a communicator."""

from __future__ import annotations

import ctypes
import functools
from typing import Any, Callable, List, Optional, Sequence, Union

from . import _native
from ._buffers import Array, Buffer, buffer_of
from ._compressor import Compressor
from ._errors import InvalidArgument
from ._groups import keep
from ._handles import Handle
from ._layout import arrange
from ._library import lib
from ._native import Collective, RedOp
from ._streams import StreamLike, stream_handle

Op = Union[RedOp, str]


class Collectives(Handle):
    """The part of a Communicator that moves arrays; its documentation says what all calls share."""

    def __init__(self, handle: _native.Comm):
        super().__init__(handle)
        number = ctypes.c_int()
        lib.onebitCommUserRank(handle, number)
        self.rank = number.value
        lib.onebitCommCount(handle, number)
        self.size = number.value

    def all_reduce(
        self,
        array: Array,
        *,
        out: Optional[Array] = None,
        op: Op = RedOp.SUM,
        compressor: Optional[Compressor] = None,
        stream: StreamLike = None,
    ) -> None:
        """Reduces `array` over all ranks, with equal bytes on all of them.

        Args:
            array: count elements.
            out: count elements; None: `array` itself.
        """
        self._move(
            lib.onebitAllReduce, Collective.ALL_REDUCE, array, out, compressor, stream, RedOp.of(op)
        )

    def reduce_scatter(
        self,
        array: Array,
        *,
        out: Optional[Array] = None,
        op: Op = RedOp.SUM,
        compressor: Optional[Compressor] = None,
        stream: StreamLike = None,
    ) -> None:
        """Reduces n parts over all ranks; rank r gets part r.

        Args:
            array: n * count elements.
            out: count elements; None: part `rank` of `array`, whose other parts stay as they are.
        """
        self._move(
            lib.onebitReduceScatter,
            Collective.REDUCE_SCATTER,
            array,
            out,
            compressor,
            stream,
            RedOp.of(op),
        )

    def all_gather(
        self,
        array: Array,
        *,
        out: Optional[Array] = None,
        compressor: Optional[Compressor] = None,
        stream: StreamLike = None,
    ) -> None:
        """Gathers a part of each rank on all ranks, in their order.

        Args:
            array: count elements, with `out`. Otherwise n * count elements, of which part `rank` is
                this rank's, and the others are written.
            out: n * count elements.
        """
        self._move(lib.onebitAllGather, Collective.ALL_GATHER, array, out, compressor, stream)

    def all_to_all(
        self,
        array: Array,
        out: Array,
        *,
        compressor: Optional[Compressor] = None,
        stream: StreamLike = None,
    ) -> None:
        """Sends part j to rank j, for every j; what rank r sends becomes part r of `out`.

        Args:
            array: n * count elements.
            out: n * count elements, which do not overlap `array`.
        """
        self._move(lib.onebitAllToAll, Collective.ALL_TO_ALL, array, out, compressor, stream)

    def all_to_all_v(
        self,
        array: Array,
        send_counts: Sequence[int],
        out: Array,
        receive_counts: Sequence[int],
        *,
        send_offsets: Optional[Sequence[int]] = None,
        receive_offsets: Optional[Sequence[int]] = None,
        compressor: Optional[Compressor] = None,
        stream: StreamLike = None,
    ) -> None:
        """Sends `send_counts[j]` elements to rank j, for every j, and receives `receive_counts[r]` from
        rank r.

        Args:
            array: what is sent, at `send_offsets`, in elements; None: one after the other.
            out: what is received, at `receive_offsets`; None: one after the other.
        """
        sent = buffer_of(array, "all_to_all_v: array")
        received = buffer_of(out, "all_to_all_v: out").written().typed(sent)
        self._call(
            lib.onebitAllToAllv,
            stream,
            compressor,
            (sent, received),
            sent.address,
            *self._ranges(sent, send_counts, send_offsets),
            received.address,
            *self._ranges(received, receive_counts, receive_offsets),
            sent.dtype,
            _handle_of(compressor),
        )

    def broadcast(
        self,
        array: Array,
        root: int = 0,
        *,
        out: Optional[Array] = None,
        compressor: Optional[Compressor] = None,
        stream: StreamLike = None,
    ) -> None:
        """Copies the array of rank `root` to all ranks.

        Args:
            array: count elements, read on the root. On other ranks the result, unless there is `out`.
            out: count elements; None: `array` itself.
            compressor: of collective "broadcast", with codec "lossless": sends what has changed since its
                last call. If the call fails, the result is not written.
        """
        given = buffer_of(array, "broadcast: array")
        target = given
        if out is not None:
            target = (
                buffer_of(out, "broadcast: out")
                .written()
                .typed(given)
                .sized(given.count, "as many as array")
            )
        elif self.rank != root:
            given.written()
        where = (given.address, target.address, given.count, given.dtype, root)
        if compressor is None:
            self._call(lib.onebitBroadcast, stream, None, (given, target), *where)
        else:
            self._call(
                lib.onebitBroadcastCompressed,
                stream,
                compressor,
                (given, target),
                *where,
                compressor.handle,
            )

    def send(
        self,
        array: Array,
        peer: int,
        *,
        compressor: Optional[Compressor] = None,
        stream: StreamLike = None,
    ) -> None:
        """Sends `array` to rank `peer`, which receives it with `recv`. Ranks that exchange arrays do
        so in a group, because a long message waits for its receiver."""
        given = buffer_of(array, "send: array")
        self._call(
            lib.onebitSend,
            stream,
            compressor,
            (given,),
            given.address,
            given.count,
            given.dtype,
            peer,
            _handle_of(compressor),
        )

    def recv(
        self,
        array: Array,
        peer: int,
        *,
        compressor: Optional[Compressor] = None,
        stream: StreamLike = None,
    ) -> None:
        """Receives what rank `peer` sends with `send` into `array`, which must have as many
        elements."""
        given = buffer_of(array, "recv: array").written()
        self._call(
            lib.onebitRecv,
            stream,
            compressor,
            (given,),
            given.address,
            given.count,
            given.dtype,
            peer,
            _handle_of(compressor),
        )

    def barrier(self, *, stream: StreamLike = None) -> None:
        """Returns when all ranks have called it."""
        self._call(lib.onebitBarrier, stream, None, ())

    def _call(
        self,
        function: Any,
        stream: StreamLike,
        compressor: Optional[Compressor],
        buffers: Any,
        *arguments: Any,
    ) -> None:
        function(*arguments, self.handle, stream_handle(stream))
        keep(stream, self, compressor, buffers)

    def _move(
        self,
        function: Any,
        collective: Collective,
        array: Array,
        out: Optional[Array],
        compressor: Optional[Compressor],
        stream: StreamLike,
        *op: RedOp,
    ) -> None:
        """Makes a call whose arrays have parts; `op` is there if the collective reduces."""
        call = arrange(collective, self, array, out, collective)
        where = (call.send, call.receive, call.count, call.dtype)
        self._call(function, stream, compressor, call, *where, *op, _handle_of(compressor))

    def _ranges(
        self, buffer: Buffer, counts: Sequence[int], offsets: Optional[Sequence[int]]
    ) -> List[Any]:
        """Counts and displacements for C, which cannot know where an array ends."""
        if offsets is None:
            offsets = [sum(counts[:rank]) for rank in range(len(counts))]
        for name, numbers in (("counts", counts), ("offsets", offsets)):
            if len(numbers) != self.size or any(number < 0 for number in numbers):
                raise InvalidArgument(
                    f"{buffer.where} has the {name} {list(numbers)}, but they must be {self.size} "
                    "numbers that are not negative, one for each rank"
                )
        end = max(offset + count for offset, count in zip(offsets, counts))
        if end > buffer.count:
            raise InvalidArgument(
                f"{buffer.where} has {buffer.count} elements, but its counts and offsets reach to {end}"
            )
        return [(ctypes.c_size_t * self.size)(*numbers) for numbers in (counts, offsets)]


def _handle_of(compressor: Optional[Compressor]) -> Optional[ctypes.c_void_p]:
    return None if compressor is None else compressor.handle


def prepared_all_reduce(
    communicator: Collectives,
    array: Array,
    *,
    op: Op = RedOp.SUM,
    compressor: Optional[Compressor] = None,
    stream: StreamLike = None,
) -> Callable[[], Any]:
    """A function that makes this call of all_reduce, for callers who make it often: it checks its
    arguments only once. The callers keep the array and the compressor alive."""
    call = arrange(Collective.ALL_REDUCE, communicator, array, None, Collective.ALL_REDUCE)
    return functools.partial(
        lib.onebitAllReduce,
        call.send,
        call.receive,
        call.count,
        call.dtype,
        RedOp.of(op),
        _handle_of(compressor),
        communicator.handle,
        stream_handle(stream),
    )
