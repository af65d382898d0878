# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The queue of calls that run beside the program, and what PyTorch gets for each of them."""

from __future__ import annotations

import concurrent.futures
import datetime
import functools
import threading
from typing import Any, Callable, Optional, Sequence

import torch
from torch._C._distributed_c10d import Work

from .._communicator import Communicator
from .._errors import Error, InvalidUsage, Timeout
from ._futures import of_call, on_stream
from ._membership import Membership


class Calls:
    """Makes the calls of a group in the order in which they come: on host memory in a thread, on a
    device on a stream of their own, which the program's thread fills while that thread rests.

    Args:
        ranks: the numbers of the communicator's ranks in the job.
        is_lent: the program leaves the communicator by itself.

    Attributes:
        count: how many there were.
    """

    def __init__(
        self, communicator: Communicator, ranks: Sequence[int], is_lent: bool = False
    ) -> None:
        self.communicator = communicator
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "onebit")
        self._membership = Membership(
            self, None, self._thread, communicator=communicator, ranks=ranks, is_lent=is_lent
        )
        self._stream: Optional[torch.cuda.Stream] = None
        self._last: Optional[concurrent.futures.Future[None]] = None  # in the thread
        self.count = 0
        self._lock = threading.Lock()  # a backward pass makes calls in threads of its own
        self._is_closed = False

    def add(
        self,
        what: str,
        tensors: Sequence[torch.Tensor],
        call: Callable[[Communicator, Any], None],
        result: Any,
    ) -> Work:
        """Adds a call on tensors of one device, which must not be changed until it is done.

        Args:
            what: its name, for errors.
            tensors: those in use; none: a call of the host.
            call: makes it, with the communicator and the stream, of which host memory has none.
            result: that of the work's future.
        """
        device = tensors[0].device if tensors else torch.device("cpu")
        with self._lock:
            if self._is_closed:
                raise InvalidUsage(f"{what}: the process group was destroyed before")
            self.count += 1
            if device.type == "cpu":
                try:
                    self._last = self._thread.submit(self._run, call, None)
                except RuntimeError as error:
                    raise InvalidUsage(f"{what}: the program is about to end: {error}") from error
                return _ThreadWork(what, self._last, result)
            if self._last is not None:
                concurrent.futures.wait([self._last])
            if self._stream is None:
                self._stream = torch.cuda.Stream(device)
            run = functools.partial(self._run, call, self._stream)
            future = on_stream(self._stream, run, lambda: result, tensors[0])
            for tensor in tensors[1:]:
                tensor.record_stream(self._stream)
            return _StreamWork(future, self._membership)

    @torch.no_grad()
    def _run(self, call: Callable[[Communicator, Any], None], stream: Any) -> None:
        try:
            if stream is None and self._stream is not None:
                self._stream.synchronize()  # calls on the device came before
            call(self.communicator, stream)
        except Exception as error:
            if isinstance(error, Error):
                self._membership.name_ranks(error)
            # Other ranks may wait for the call that this one could not make.
            if self.communicator.failure is None:
                self.communicator.abort()
            raise

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        if self._stream is not None:
            self._stream.synchronize()
        self._membership.close()

    def abort(self) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self.communicator.abort()
        self._membership.close()


class _ThreadWork(Work):
    """A call in the thread."""

    def __init__(self, what: str, call: concurrent.futures.Future[None], result: Any) -> None:
        super().__init__()
        self._what = what
        self._call = call
        self._result = result

    def wait(self, timeout: datetime.timedelta = datetime.timedelta(0)) -> bool:
        seconds = timeout.total_seconds()
        try:
            self._call.result(seconds if seconds > 0 else None)
        except concurrent.futures.TimeoutError as error:
            if self._call.done():  # with that error itself, or just now
                self._call.result()
                return True
            raise Timeout(
                f"{self._what} has not finished within {seconds:g} s; it is still running and using its tensors"
            ) from error
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        return of_call(self._call, lambda: self._result)


class _StreamWork(Work):
    """A call on a stream."""

    def __init__(self, future: torch.futures.Future[Any], membership: Membership) -> None:
        super().__init__()
        self._future = future
        self._membership = membership

    def wait(
        self, timeout: datetime.timedelta = datetime.timedelta(0)  # pylint: disable=unused-argument
    ) -> bool:
        self._future.wait()
        communicator = self._membership.communicator
        failure = None if communicator.is_closed else communicator.failure
        if failure is not None:
            raise self._membership.name_ranks(failure)
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        return self._future
