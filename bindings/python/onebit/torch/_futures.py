# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Futures of averages, for which the backward pass waits."""

from __future__ import annotations

import concurrent.futures
from typing import Callable, Optional

import torch


def in_thread(
    thread: concurrent.futures.Executor,
    run: Callable[[], None],
    result: Callable[[], torch.Tensor],
) -> torch.futures.Future[torch.Tensor]:
    """Runs an average on the thread; the future has its result, or its error."""
    done: torch.futures.Future[Optional[BaseException]] = torch.futures.Future()

    def caught() -> None:
        try:
            run()
        except BaseException as error:  # pylint: disable=broad-exception-caught; raised below
            done.set_result(error)
        else:
            done.set_result(None)

    def checked(done: torch.futures.Future[Optional[BaseException]]) -> torch.Tensor:
        error = done.value()
        if error is not None:
            raise error
        return result()

    # DDP takes a future that was given an exception for one with a wrong result: only what a
    # callback raises is an error to it.
    future = done.then(checked)
    thread.submit(caught)
    return future


def on_stream(
    stream: torch.cuda.Stream,
    run: Callable[[], None],
    result: Callable[[], torch.Tensor],
    buffer: torch.Tensor,
) -> torch.futures.Future[torch.Tensor]:
    """Enqueues an average on a stream of its own, behind the work that fills the buffer. The host
    waits for nothing."""
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=[buffer.device])
    stream.wait_stream(torch.cuda.current_stream(buffer.device))
    with torch.cuda.stream(stream):
        run()
        buffer.record_stream(stream)
        future.set_result(result())  # its waiters wait for the stream
    return future
