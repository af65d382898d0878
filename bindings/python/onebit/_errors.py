# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""An exception for each result of the C API that is an error."""

from __future__ import annotations

from typing import Dict, Type

from ._native import Result


class Error(Exception):
    """A call has failed.

    Attributes:
        result: what the C API returned.
        text: rank, peer, cause, and what to do.
    """

    result: Result

    def __init__(self, text: str):
        super().__init__(text)
        self.text = text


class UnhandledCudaError(Error):
    """A CUDA call failed."""

    result = Result.UNHANDLED_CUDA_ERROR


class SystemError(Error, OSError):  # pylint: disable=redefined-builtin
    """The operating system refused something; the text has errno."""

    result = Result.SYSTEM_ERROR


class InternalError(Error):
    """A bug in onebit, or memory corruption."""

    result = Result.INTERNAL_ERROR


class InvalidArgument(Error, ValueError):
    """An argument is wrong in any state."""

    result = Result.INVALID_ARGUMENT


class InvalidUsage(Error):
    """The call is wrong in this state, or from this thread."""

    result = Result.INVALID_USAGE


class RemoteError(Error):
    """Another rank failed; the text names it and its cause."""

    result = Result.REMOTE_ERROR


class Timeout(Error, TimeoutError):
    """A deadline passed; the text names who was late."""

    result = Result.TIMEOUT


class Mismatch(Error):
    """Ranks made different calls, or a saved state belongs to something else; the text shows both
    sides."""

    result = Result.MISMATCH


class Corrupt(Error):
    """A packet or a saved state is damaged."""

    result = Result.CORRUPT


class PeerLost(Error):
    """A peer's process or host is gone; the text names the rank."""

    result = Result.PEER_LOST


class NotAuthenticated(Error):
    """This side or the other does not know the job's secret."""

    result = Result.NOT_AUTHENTICATED


class Detached(Error):
    """The compressor's communicator was destroyed: rebind it."""

    result = Result.DETACHED


class Aborted(Error):
    """The communicator was aborted (Communicator.abort)."""

    result = Result.ABORTED


class OutOfMemory(Error, MemoryError):
    """An allocation failed."""

    result = Result.OUT_OF_MEMORY


_CLASSES: Dict[int, Type[Error]] = {each.result: each for each in Error.__subclasses__()}


def error_of(result: int, text: str) -> Error:
    """The exception for a result of the C API other than success and in progress."""
    error_class = _CLASSES.get(result)
    if error_class is None:
        return InternalError(f"the library returned the unknown result {result}: {text}")
    return error_class(text)
