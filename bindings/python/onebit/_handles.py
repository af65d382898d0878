# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Owners of the C API's handles."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any, ClassVar, Optional

from ._errors import InvalidUsage
from ._library import lib


class Handle:
    """Owns a handle, and destroys it when it is closed or collected, at the latest when the program
    ends. A `with` block closes it at its end."""

    #: Name of the C function that frees the handle.
    _destroy: ClassVar[str]

    def __init__(self, handle: ctypes.c_void_p, *kept: Any):
        """`kept` is what must live as long as the handle."""
        self._handle: Optional[ctypes.c_void_p] = handle
        self._finalizer = weakref.finalize(self, _destroy, self._destroy, handle, kept)

    @property
    def handle(self) -> ctypes.c_void_p:
        """The C handle, for calls of onebit.lib."""
        if self._handle is None:
            raise InvalidUsage(f"the {type(self).__name__} was closed")
        return self._handle

    @property
    def is_closed(self) -> bool:
        return self._handle is None

    def close(self) -> None:
        """Frees the handle. Closing again does nothing. After an error it is still open, and can be
        closed later: the error says what uses it."""
        if self._handle is not None:
            _destroy(self._destroy, self._handle, ())
            self._forget()

    def _forget(self) -> None:
        self._finalizer.detach()
        self._handle = None

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _destroy(function: str, handle: ctypes.c_void_p, _kept: Any) -> None:
    getattr(lib, function)(handle)
