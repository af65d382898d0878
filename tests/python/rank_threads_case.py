# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks as threads of a test's process."""

import concurrent.futures
from typing import Any, Callable, List

import onebit


def run_ranks(size: int, function: Callable[[onebit.Communicator], Any]) -> List[Any]:
    """Returns the results of `function` on each rank. An exception of a rank is raised here."""
    comms = onebit.Communicator.init_all(size)
    with concurrent.futures.ThreadPoolExecutor(size) as pool:
        results = list(pool.map(function, comms))
    for comm in comms:
        comm.close()
    return results


def errors_of_ranks(size: int, function: Callable[[onebit.Communicator], Any]) -> List[Any]:
    """The exception that `function` raises on each rank, None where there is none."""

    def caught(comm: onebit.Communicator) -> Any:
        try:
            function(comm)
        except Exception as error:  # pylint: disable=broad-exception-caught
            return error
        return None

    return run_ranks(size, caught)
