# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Futures of averages, for which the backward pass waits, and flags that nobody waits for yet."""

from __future__ import annotations

import concurrent.futures
from typing import Callable, List, Optional, TypeVar

import torch

_Result = TypeVar("_Result")


def in_thread(
    thread: concurrent.futures.Executor,
    run: Callable[[], None],
    result: Callable[[], _Result],
) -> torch.futures.Future[_Result]:
    """Runs an average on the thread; the future has its result, or its error."""
    return of_call(thread.submit(run), result)


def of_call(
    call: concurrent.futures.Future[None], result: Callable[[], _Result]
) -> torch.futures.Future[_Result]:
    """A future of PyTorch that has a result once the call is done, or its error."""
    done: torch.futures.Future[Optional[BaseException]] = torch.futures.Future()

    def checked(done: torch.futures.Future[Optional[BaseException]]) -> _Result:
        error = done.value()
        if error is not None:
            raise error
        return result()

    # DDP takes a future that was given an exception for one with a wrong result: only what a
    # callback raises is an error to it.
    future = done.then(checked)
    call.add_done_callback(lambda call: done.set_result(call.exception()))
    return future


def on_stream(
    stream: torch.cuda.Stream,
    run: Callable[[], None],
    result: Callable[[], _Result],
    buffer: torch.Tensor,
) -> torch.futures.Future[_Result]:
    """Enqueues an average on a stream of its own, behind the work that fills the buffer. The host
    waits for nothing of this step; its first bucket waits for the flags of the step before."""
    future: torch.futures.Future[_Result] = torch.futures.Future(devices=[buffer.device])
    stream.wait_stream(torch.cuda.current_stream(buffer.device))
    with torch.cuda.stream(stream):
        run()
        buffer.record_stream(stream)
        future.set_result(result())  # its waiters wait for the stream
    return future


class Flags:
    """Booleans of a tensor, on their way to the host. Those of a device are copied behind the work of
    the current stream, and whoever asks for them later waits for that copy alone."""

    def __init__(self, flags: torch.Tensor) -> None:
        self._flags = flags
        self._copied: Optional[torch.cuda.Event] = None
        if flags.is_cuda:
            self._flags = torch.empty(flags.shape, dtype=flags.dtype, pin_memory=True)
            self._flags.copy_(flags, non_blocking=True)
            self._copied = torch.cuda.Event()
            self._copied.record(torch.cuda.current_stream(flags.device))

    def values(self) -> List[bool]:
        if self._copied is not None:
            self._copied.synchronize()
        return self._flags.tolist()
