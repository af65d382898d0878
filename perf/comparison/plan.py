# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Which commands a comparison runs, in which order.

Repetition by repetition, in each all links and numbers of hosts, and there one system after the other: so
all systems meet the same weather, and a comparison that is cut short has something of everything.

The first repetition is cut finer than the others: the smallest sizes are checked where that is cheap, and
on the lab the largest size runs alone, so that what passed the links can be divided by its calls. Rows
that take seconds are not repeated: there the wire decides, and it is always the same.
"""

from __future__ import annotations

import dataclasses

from comparison import cost
from comparison.links import Cell
from comparison.sizes import sweeps
from comparison.systems import SYSTEMS, System

MAX_CHECKED_SIZE = 1 << 20
SLOW_ROW_SECONDS = 4.0


@dataclasses.dataclass(frozen=True)
class Row:
    """What one result of the comparison is about."""

    cell: Cell
    system: str
    size: int


@dataclasses.dataclass(frozen=True)
class Run:
    """One command."""

    cell: Cell
    system: System
    repetition: int
    sizes: tuple[int, ...]  # a sweep
    is_checked: bool

    @property
    def key(self) -> list:
        """What it is known by in the file of a comparison."""
        return [self.cell.link.name, self.cell.hosts, self.system.name, self.repetition, list(self.sizes)]

    def rows(self) -> list[Row]:
        """The results it contributes to."""
        return [Row(self.cell, self.system.name, size) for size in self.sizes]

    def seconds(self) -> float:
        """Expected."""
        return cost.run_seconds(self.system, self.cell, list(self.sizes))


@dataclasses.dataclass(frozen=True)
class Plan:
    """Commands in order, and what there is no time for."""

    runs: list[Run]
    repetitions: int
    left_out: list[Row]

    def seconds(self) -> float:
        """Expected."""
        return sum(run.seconds() for run in self.runs)


def make_plan(cells: list[Cell], systems: list[str], sizes: list[int], repetitions: int,
              budget_seconds: float) -> Plan:
    """As many repetitions as fit in the time, at most those asked for; where one is too much, it is
    without its slowest rows."""
    for count in range(repetitions, 0, -1):
        runs = _runs(cells, systems, sizes, count, set())
        if count == 1 or sum(run.seconds() for run in runs) <= budget_seconds:
            break
    left_out: set[Row] = set()
    slowest = sorted((Row(cell, system, size) for cell in cells for system in systems for size in sizes),
                     key=_row_seconds)
    while slowest and sum(run.seconds() for run in runs) > budget_seconds:
        left_out.add(slowest.pop())
        runs = _runs(cells, systems, sizes, count, left_out)
    return Plan(runs, count, sorted(left_out, key=_row_seconds))


def _row_seconds(row: Row) -> float:
    return cost.row_seconds(SYSTEMS[row.system], row.cell, row.size)


def _runs(cells: list[Cell], systems: list[str], sizes: list[int], repetitions: int,
          left_out: set[Row]) -> list[Run]:
    return [Run(cell, SYSTEMS[system], repetition, tuple(sweep), _is_checked(cell, cells, sweep, repetition))
            for repetition in range(1, repetitions + 1)
            for cell in cells
            for system in systems
            for part in _parts(cell, cells, system, sizes, repetition, left_out)
            for sweep in sweeps(part)]


def _parts(cell: Cell, cells: list[Cell], system: str, sizes: list[int], repetition: int,
           left_out: set[Row]) -> list[list[int]]:
    """The sizes of a repetition, by command."""
    wanted = [size for size in sizes if Row(cell, system, size) not in left_out]
    if repetition > 1:
        return [[size for size in wanted
                 if _row_seconds(Row(cell, system, size)) <= SLOW_ROW_SECONDS]]
    alone = wanted[-1:] if cell.link.rate is not None and len(wanted) > 1 else []
    rest = wanted[:len(wanted) - len(alone)]
    if not _is_cheap(cell, cells):
        return [rest, alone]
    small = [size for size in rest if size <= MAX_CHECKED_SIZE]
    return [small, rest[len(small):], alone]


def _is_cheap(cell: Cell, cells: list[Cell]) -> bool:
    """Shared memory, and the fastest link of the lab."""
    rates = [other.link.rate_bits_per_second or 0 for other in cells]
    return cell.link.rate is None or cell.link.rate_bits_per_second == max(rates)


def _is_checked(cell: Cell, cells: list[Cell], sweep: list[int], repetition: int) -> bool:
    return repetition == 1 and _is_cheap(cell, cells) and sweep[-1] <= MAX_CHECKED_SIZE
