# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Lets a signal end the program through its clean-up."""

import contextlib
import os
import signal
import types
import typing

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """A signal came. Unwinds everything up to the block that waits for it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def stop(number: int, _frame: types.FrameType | None) -> typing.NoReturn:
    raise Stopped(number)


@contextlib.contextmanager
def cleaned_up() -> typing.Iterator[None]:
    """Within the block a signal runs its clean-up before it ends the program as it would have. Outside
    of it there is nothing to clean, and signals end the program at once, even while it waits for input.
    Those that are ignored, as under nohup, stay so."""
    before = {number: signal.signal(number, stop) for number in SIGNALS
              if signal.getsignal(number) is signal.SIG_DFL}
    stopped_by = None
    try:
        yield
    except Stopped as stopped:
        stopped_by = stopped.number
    finally:
        for number, action in before.items():
            signal.signal(number, action)
    if stopped_by is not None:
        os.kill(os.getpid(), stopped_by)
