# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Collective calls that programs make on one rank only by mistake, such as those that save a state."""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
import weakref
from typing import TYPE_CHECKING, Any, Iterator, Union

from ._errors import Mismatch, Timeout
from ._native import StateKind

if TYPE_CHECKING:
    from ._communicator import Communicator

# A rank that has waited this long is warned.
_WARN_AFTER_SECONDS = 5.0

_PACKAGE = __name__.rpartition(".")[0]
_in_call: weakref.WeakSet[Communicator] = weakref.WeakSet()


@contextlib.contextmanager
def collective(call: str, communicator: Communicator) -> Iterator[None]:
    """Names the user's call in the error of a rank that was alone in it, and in a warning while it waits.
    The library compares calls of its own, but cannot see that other ranks wait in PyTorch's.
    Calls inside of another one are not the user's."""
    if communicator in _in_call:
        yield
        return
    text = (
        f"{call} has waited {_WARN_AFTER_SECONDS:g} s for other ranks, and is still waiting on "
        f"rank {communicator.rank} of {communicator.size}; it is collective: all ranks must call it"
    )
    # Without a registry: the next wait in the same place is worth a warning, too.
    warning = [text, UserWarning, *_place_of_caller()]
    watch = threading.Timer(_WARN_AFTER_SECONDS, warnings.warn_explicit, warning)
    watch.daemon = True
    with contextlib.suppress(RuntimeError):  # the interpreter ends, and starts no thread any more
        watch.start()
    _in_call.add(communicator)
    try:
        yield
    except (Mismatch, Timeout) as error:
        if "differs between ranks" in str(error):  # all of them have called it
            raise
        raise type(error)(f"{call} is collective: all ranks must call it: {error}") from error
    finally:
        _in_call.discard(communicator)
        watch.cancel()


def exporting(
    call: str, communicator: Communicator, kind: Union[StateKind, str]
) -> contextlib.AbstractContextManager[None]:
    """The same for the states of all ranks; that of one rank is local."""
    is_local = kind == StateKind.RANK or str(kind).lower() == "rank"
    return contextlib.nullcontext() if is_local else collective(call, communicator)


def _place_of_caller() -> Any:
    """File and line of the program that calls the package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def _is_ours(module: str) -> bool:
    return module == "contextlib" or module.split(".")[0] == _PACKAGE
