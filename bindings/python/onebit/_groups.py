# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Groups: many collectives in few messages."""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Iterator, List, Tuple

from ._errors import Error
from ._library import lib
from ._streams import Stream, StreamLike


class _Open(threading.local):
    """This thread's open groups: how deep they nest, and what their calls use, with its stream."""

    depth = 0

    def __init__(self) -> None:
        self.kept: List[Tuple[StreamLike, Any]] = []


_open = _Open()


@contextlib.contextmanager
def group() -> Iterator[None]:
    """A block whose collectives are made together at its end, in few messages, with the results of
    single calls. All ranks have the same blocks, with the same calls in the same order.

        with onebit.group():
            for gradient, compressor in zip(gradients, compressors):
                comm.all_reduce(gradient, op="avg", compressor=compressor)

    Inside, results are not there yet, and no call may use what another one writes. A compressor has
    one call in a group. All calls have the same stream, or none. Groups nest; the outermost end makes
    the calls. If the block raises, no call of the group is made, and other ranks may wait for this
    one, as for any call that it does not make.

    The end raises the errors of the calls.
    """
    lib.onebitGroupStart()
    _open.depth += 1
    try:
        yield
    except BaseException:
        _drop()
        raise
    else:
        _end()


def keep(stream: StreamLike, *objects: Any) -> None:
    """Keeps alive what a call uses until the call is done: to the end of the group, then as long as
    its stream has it."""
    if _open.depth > 0:
        _open.kept.append((stream, objects))
    elif isinstance(stream, Stream):
        stream.keep(objects)


def _end() -> None:
    _open.depth -= 1
    try:
        lib.onebitGroupEnd()
        if _open.depth == 0 and _open.kept:
            # On a stream a group is one call, whatever the number of its calls.
            stream = _open.kept[0][0]
            keep(stream, [objects for _, objects in _open.kept])
    finally:
        if _open.depth == 0:
            _open.kept.clear()


def _drop() -> None:
    """Ends a group without its calls: after a call that fails its checks, the library makes none."""
    for cancel in (lambda: lib.onebitBarrier(None, None), _end):
        with contextlib.suppress(Error):
            cancel()
