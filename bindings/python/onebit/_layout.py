# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Divides the arrays of a collective into parts of the ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional, Tuple

from ._buffers import ELEMENT_BYTES, Array, Buffer, buffer_of
from ._errors import InvalidArgument
from ._native import Collective, DataType

if TYPE_CHECKING:
    from ._collectives import Collectives


@dataclass(frozen=True)
class Arrangement:
    """The buffers of a call, as C takes them: `count` is that of a part."""

    send: int
    receive: int
    count: int
    dtype: DataType
    buffers: Tuple[Buffer, ...]  # what must stay alive


def parts_of(collective: Collective, ranks: int) -> Tuple[int, int]:
    """Parts that a rank sends and receives."""
    if collective in (Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL):
        return ranks, ranks if collective == Collective.ALL_TO_ALL else 1
    return 1, ranks if collective == Collective.ALL_GATHER else 1


def arrange(
    collective: Collective,
    communicator: Collectives,
    array: Array,
    out: Optional[Array],
    what: object,
) -> Arrangement:
    """Checks the arrays of a collective and finds its parts; `what` names the call in errors.

    Without `out` the call works in place: `array` is then the larger one, and the smaller one is the
    part of this rank in it.
    """
    sent, received = parts_of(collective, communicator.size)
    given = buffer_of(array, f"{what}: array")
    if out is not None:
        count = _part(given, sent)
        target = buffer_of(out, f"{what}: out").written().typed(given)
        target.sized(
            count * received, f"array has {given.count}, and there are {communicator.size} ranks"
        )
        return Arrangement(given.address, target.address, count, given.dtype, (given, target))
    if collective == Collective.ALL_TO_ALL:
        raise InvalidArgument(f"{what}: out is missing: an all-to-all cannot work in place")
    given.written()
    count = _part(given, max(sent, received))
    mine = given.address + communicator.rank * count * ELEMENT_BYTES[given.dtype]
    return Arrangement(
        mine if received > sent else given.address,
        mine if sent > received else given.address,
        count,
        given.dtype,
        (given,),
    )


def _part(buffer: Buffer, parts: int) -> int:
    if buffer.count % parts != 0:
        raise InvalidArgument(
            f"{buffer.where} has {buffer.count} elements, which is not a multiple of the {parts} "
            "parts, one for each rank: pad it"
        )
    return buffer.count // parts
