# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""How long things take, roughly: to plan a sweep that fits its time, and to notice what hangs.

The figures are of a machine with two cores. Where they are wrong the plan is, not the measurement.
"""

from __future__ import annotations

from comparison.links import Cell
from comparison.compared_systems import Route, System
from reporting.limits import ELEMENT_BITS, FRAME_BYTES, SEGMENT_BYTES, flat_on_link, ring_on_link, two_levels_on_link

ROW_SECONDS = 0.1  # of timed calls in a row, if that is at least MIN_CALLS
ALONE_SECONDS = 0.6  # the same of a row that has a command for itself
MIN_CALLS = 2
MAX_CALLS = 200

FRAMING = FRAME_BYTES / SEGMENT_BYTES  # bytes on an Ethernet per byte of TCP, both as the lab counts
COPY_SECONDS_PER_BYTE = 1e-9   # of a rank: through sockets or shared memory, and the sum
LATENCY_SECONDS = {"onebit": 2e-4, "openmpi": 2e-4, "mpich": 5e-3, "gloo": 2e-3}
# Duration of a dense call on a link as a multiple of the time of its bytes.
WIRE_FACTOR = {"openmpi": 1.6, "openmpi-ring": 1.1, "mpich": 1.3, "gloo": 1.1, "onebit-dense": 1.1}
START_SECONDS = {"onebit": 0.3, "openmpi": 0.4, "mpich": 0.3, "gloo": 0.3}
LAB_SECONDS = 0.5      # to build and remove it
LAB_MPI_SECONDS = 0.7  # to reach the hosts from there
FINISH_SECONDS = 1.5   # for a command to end when it has said everything
HANG_SECONDS = 4.0     # the same of one that hangs then, until it has been ended


def tensors_on_link(system: System, cell: Cell) -> float:
    """Tensors that each host sends over its link in a call, in the codec of the system."""
    if system.route is Route.RING:
        return ring_on_link(cell.ranks)
    if system.route is Route.FLAT:
        return flat_on_link(cell.hosts, cell.ranks_per_host)
    return two_levels_on_link(cell.hosts)


def call_seconds(system: System, cell: Cell, size: int) -> float:
    """Seconds of one call. All ranks, on whatever host, share the cores of this machine."""
    work = COPY_SECONDS_PER_BYTE * size * max(1.0, cell.ranks / 2)
    latency = LATENCY_SECONDS[system.launcher] * cell.ranks
    if cell.link.rate_bits_per_second is None:
        return latency + work
    sent = size * tensors_on_link(system, cell) * system.element_bits / ELEMENT_BITS
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
        if system.may_hang and cell.ranks_per_host > 1:
            seconds += HANG_SECONDS  # see runner.py
    return seconds


def run_seconds(system: System, cell: Cell, sizes: tuple[int, ...], timed_seconds: float) -> float:
    """Seconds of a whole command."""
    return start_seconds(system, cell) + sum(row_seconds(system, cell, size, timed_seconds)
                                             for size in sizes)
