# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while a call of the library waits for other ranks.

Python runs handlers of signals between two instructions of the main thread, which may be inside a
call for minutes. Its own handler in C, though, writes the signal's number to a file at once. A thread
that reads it aborts the communicators if the main thread is not released; then KeyboardInterrupt
follows. Calls cost nothing for it. While ranks join there is nothing to abort yet, so the main thread
leaves the call to another one.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import sys
import threading
import time
import weakref
from types import FrameType
from typing import Any, Callable, Optional, Tuple

from ._errors import Error

_PACKAGE = str(pathlib.Path(__file__).parent)
# The main thread gets this long to see the signal by itself.
_GRACE_SECONDS = 0.3
_JOIN = "onebit-join"  # threads that join, whose calls hold up nobody who could not be interrupted

_lock = threading.Lock()  # of _watched; held while a communicator is aborted
_watched: weakref.WeakSet[Any] = weakref.WeakSet()
_written: Optional[int] = None  # the end of the pipe that Python writes to


def watch(communicator: Any) -> None:
    """Has Ctrl-C abort a communicator whose calls hold up the main thread.

    Programs that handle SIGINT or read signals from a file themselves are left alone.
    """
    with _lock:
        _watched.add(communicator)
    is_main = threading.current_thread() is threading.main_thread()
    if _written is None and is_main and _is_default():
        _start()


def forget(communicator: Any) -> None:
    """Must precede the end of a communicator, which cannot be aborted afterwards."""
    with _lock:
        _watched.discard(communicator)


def run(join: Callable[[], None], leave: Callable[[], None]) -> None:
    """Calls `join`. If Ctrl-C ends the wait for it, it goes on until it ends by itself or with the
    program; if it has succeeded, `leave` then takes it back."""
    if threading.current_thread() is not threading.main_thread() or not _is_default():
        join()
        return
    ended = threading.Event()
    lock = threading.Lock()  # between the end of the call and that of the wait
    is_abandoned = False
    error: Optional[BaseException] = None

    def call() -> None:
        nonlocal error
        try:
            join()
        except BaseException as raised:  # pylint: disable=broad-exception-caught; raised below
            error = raised
        with lock:
            ended.set()
            if is_abandoned and error is None:
                leave()

    thread = threading.Thread(target=call, name=_JOIN, daemon=True)
    try:
        try:
            thread.start()
        except RuntimeError:  # the interpreter ends, and starts no thread any more
            join()
            return
        ended.wait()
    except BaseException:
        with lock:
            is_abandoned = True
            if ended.is_set() and error is None:
                leave()
        raise
    if error is not None:
        raise error


def _is_default() -> bool:
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _start() -> None:
    global _written  # pylint: disable=global-statement
    read, written = os.pipe()
    os.set_blocking(written, False)
    others = signal.set_wakeup_fd(written, warn_on_full_buffer=False)
    if others != -1:
        signal.set_wakeup_fd(others)
        os.close(read)
        os.close(written)
        return
    _written = written
    threading.Thread(target=_serve, args=(read,), name="onebit-interrupts", daemon=True).start()


def _serve(read: int) -> None:
    while signals := os.read(read, 64):
        if signal.SIGINT in signals and _is_default():
            _free_main_thread()


def _free_main_thread() -> None:
    before = _place_of_main_thread()
    time.sleep(_GRACE_SECONDS)
    # Otherwise it has run its handler, or is about to.
    if before is None or _place_of_main_thread() != before or not _is_in_call():
        return
    for communicator in list(_watched):
        with _lock, contextlib.suppress(Error):
            if communicator in _watched:
                communicator.abort()


def _place_of_main_thread() -> Optional[Tuple[int, int]]:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return None if frame is None else (id(frame), frame.f_lasti)


def _is_in_call() -> bool:
    """Tells if some thread is inside a function of the library, which this package has called."""
    others = {thread.ident for thread in threading.enumerate() if thread.name == _JOIN}
    others.add(threading.get_ident())

    def is_ours(frame: FrameType) -> bool:
        return frame.f_code.co_filename.startswith(_PACKAGE)

    return any(
        ident not in others and is_ours(frame) for ident, frame in sys._current_frames().items()
    )


def _leave_to_parent() -> None:
    """A forked child has no thread that reads, and what it writes would be taken for the parent's."""
    global _written  # pylint: disable=global-statement
    if _written is None:
        return
    with contextlib.suppress(ValueError):  # forked from another thread than the main one
        others = signal.set_wakeup_fd(-1)
        if others not in (-1, _written):
            signal.set_wakeup_fd(others)
    _written = None


os.register_at_fork(after_in_child=_leave_to_parent)
