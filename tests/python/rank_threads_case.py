# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks as threads of a test's process."""

import concurrent.futures
from typing import Any, Callable, List

import onebit


def run_ranks(size: int, function: Callable[[onebit.Communicator], Any]) -> List[Any]:
    """Returns the results of `function` on each rank. An exception of a rank is raised here, and ends the
    calls of the others."""
    comms = onebit.Communicator.init_all(size)

    def run(comm: onebit.Communicator) -> Any:
        try:
            return function(comm)
        except BaseException:
            comm.abort()
            raise

    with concurrent.futures.ThreadPoolExecutor(size) as pool:
        runs = [pool.submit(run, comm) for comm in comms]
    errors = [error for error in (each.exception() for each in runs) if error is not None]
    if errors:  # of the library are those of ranks that could not go on
        raise min(errors, key=lambda error: isinstance(error, onebit.Error))
    for comm in comms:
        comm.close()
    return [each.result() for each in runs]


def errors_of_ranks(size: int, function: Callable[[onebit.Communicator], Any]) -> List[Any]:
    """The exception that `function` raises on each rank, None where there is none."""

    def caught(comm: onebit.Communicator) -> Any:
        try:
            function(comm)
        except Exception as error:  # pylint: disable=broad-exception-caught
            return error
        return None

    return run_ranks(size, caught)
