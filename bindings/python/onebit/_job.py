# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs that a program starts on its own, for the demo and the doctor."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
from typing import Any, Callable, List

from ._communicator import Communicator, unique_id


def run_processes(size: int, function: Callable[..., Any], *arguments: Any) -> List[Any]:
    """Calls `function(comm, *arguments)` on each rank of a communicator of `size` new processes on
    this host, and returns what each rank returns. An exception of a rank is raised here."""
    identity = unique_id()
    context = multiprocessing.get_context("spawn")  # a forked process could not use the library
    with concurrent.futures.ProcessPoolExecutor(size, mp_context=context) as pool:
        ranks = [
            pool.submit(_run_rank, identity, size, rank, function, arguments)
            for rank in range(size)
        ]
        return [rank.result() for rank in ranks]


def _run_rank(identity: bytes, size: int, rank: int, function: Any, arguments: Any) -> Any:
    with Communicator.from_unique_id(identity, size, rank) as comm:
        return function(comm, *arguments)
