# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""How long things take, roughly: to plan a sweep that fits its time, and to notice what hangs.

The figures are of a machine with two cores. Where they are wrong the plan is, not the measurement.
"""

from __future__ import annotations

from comparison.links import Cell
from comparison.compared_systems import System

ROW_SECONDS = 0.1  # of timed calls in a row, if that is at least MIN_CALLS
ALONE_SECONDS = 0.6  # the same of a row that has a command for itself
MIN_CALLS = 2
MAX_CALLS = 200

FRAMING = 1514 / 1448          # bytes on an Ethernet per byte of TCP, both as the lab counts
COMPRESSION = 31               # of one bit per element, with scales and headers
COPY_SECONDS_PER_BYTE = 1e-9   # of a rank: through sockets or shared memory, and the sum
LATENCY_SECONDS = {"onebit": 2e-4, "openmpi": 2e-4, "mpich": 5e-3, "gloo": 2e-3}
# Duration of a dense call on a link as a multiple of the time of its bytes.
WIRE_FACTOR = {"openmpi": 1.6, "openmpi-ring": 1.1, "mpich": 1.3, "gloo": 1.1, "onebit-dense": 1.1}
START_SECONDS = {"onebit": 0.3, "openmpi": 0.4, "mpich": 0.3, "gloo": 0.3}
LAB_SECONDS = 0.5      # to build and remove it
LAB_MPI_SECONDS = 0.7  # to reach the hosts from there
FINISH_SECONDS = 1.5   # for a command to end when it has said everything


def call_seconds(system: System, cell: Cell, size: int) -> float:
    """Seconds of one call."""
    ranks = cell.hosts
    moved = size * 2 * (ranks - 1) / ranks  # each rank sends so much
    work = COPY_SECONDS_PER_BYTE * size * max(1.0, ranks / 2)
    latency = LATENCY_SECONDS[system.launcher] * ranks
    if cell.link.rate_bits_per_second is None:
        return latency + work
    sent = moved if system.is_dense else moved / COMPRESSION
    wire = sent * 8 * FRAMING / cell.link.rate_bits_per_second * WIRE_FACTOR.get(system.name, 1.0)
    return latency + max(wire, work)


def row_seconds(system: System, cell: Cell, size: int, timed_seconds: float = ROW_SECONDS) -> float:
    """Seconds of a row: a first call, one that shows how long calls take, and the timed ones."""
    call = call_seconds(system, cell, size)
    timed = min(MAX_CALLS, max(MIN_CALLS, timed_seconds / call))
    return call * (1 + timed + (1 if timed > MIN_CALLS else 0))


def start_seconds(system: System, cell: Cell) -> float:
    """Seconds of a command besides its rows."""
    seconds = START_SECONDS[system.launcher]
    if cell.link.rate is not None:
        seconds += LAB_SECONDS
        if system.launcher in ("openmpi", "mpich"):
            seconds += LAB_MPI_SECONDS
    return seconds


def run_seconds(system: System, cell: Cell, sizes: tuple[int, ...], timed_seconds: float) -> float:
    """Seconds of a whole command."""
    return start_seconds(system, cell) + sum(row_seconds(system, cell, size, timed_seconds)
                                             for size in sizes)
