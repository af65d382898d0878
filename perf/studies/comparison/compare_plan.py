# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Which commands a comparison runs, in which order.

Repetition by repetition, in each all links and numbers of hosts, and there one system after the other: so
all systems meet the same weather, and a comparison that is cut short has something of everything.

The first repetition is cut finer than the others: the smallest sizes are checked where that is cheap, and
on the lab the largest size runs alone, so that what passed the links can be divided by its calls. Rows
that take seconds are not repeated: there the wire decides, and it is always the same. Systems in full
precision are taken together in that, so that those that are compared are measured equally often.
"""

from __future__ import annotations

import dataclasses

from comparison import cost
from comparison.links import Cell
from comparison.sizes import sweeps
from comparison.compared_systems import SYSTEMS, System

MAX_CHECKED_SIZE = 1 << 20
SLOW_ROW_SECONDS = 5.0
MAX_LEFT_OUT = 0.03
EXAMPLE_HOSTS = 4


@dataclasses.dataclass(frozen=True)
class Row:
    """The subject of one result of the comparison."""

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
    row_seconds: float      # of timed calls

    @property
    def key(self) -> list:
        """The key of the run in the file of a comparison."""
        return [self.cell.link.name, self.cell.hosts, self.cell.ranks_per_host, self.system.name,
                self.repetition, list(self.sizes)]

    @property
    def kind(self) -> tuple[str, str]:
        """The kind of link and the system: one example of a command is shown for each."""
        return self.cell.link.kind, self.system.name

    def rows(self) -> list[Row]:
        """The rows that the run contributes to."""
        return [Row(self.cell, self.system.name, size) for size in self.sizes]

    def seconds(self) -> float:
        """The expected duration."""
        return cost.run_seconds(self.system, self.cell, self.sizes, self.row_seconds)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Commands in order, and the rows there is no time for."""

    runs: list[Run]
    repetitions: int
    left_out: list[Row]

    def seconds(self) -> float:
        """Expected."""
        return sum(run.seconds() for run in self.runs)


@dataclasses.dataclass(frozen=True)
class PlanRequest:
    """The request: what is to be compared."""

    cells: list[Cell]
    systems: list[str]
    sizes: list[int]  # ascending
    repetitions: int  # at most
    absent: frozenset[tuple[str, str]] = frozenset()  # unavailable pairs of link kind and system

    def rows(self) -> list[Row]:
        """All results, in order."""
        return [Row(cell, system, size) for cell in self.cells for system in self.systems
                for size in self.sizes if (cell.link.kind, system) not in self.absent]


def make_plan(request: PlanRequest, budget_seconds: float) -> Plan:
    """Returns the plan that fits in the time. To allow another repetition, at most MAX_LEFT_OUT of all
    rows are dropped: the slow ones of the slowest size first, those of the middle number of hosts
    last."""
    rows = request.rows()
    for repetitions in range(request.repetitions, 0, -1):
        most = len(rows) if repetitions == 1 else MAX_LEFT_OUT * len(rows)
        left_out: set[Row] = set()
        runs = _runs(request, repetitions, left_out)
        for bundle in _bundles(request):
            if sum(run.seconds() for run in runs) <= budget_seconds or len(left_out) + len(bundle) > most:
                break
            left_out |= bundle
            runs = _runs(request, repetitions, left_out)
        plan = Plan(runs, repetitions, [row for row in rows if row in left_out])
        if plan.seconds() <= budget_seconds:
            break
    return plan


def examples(runs: list[Run]) -> dict[tuple[str, str], Run]:
    """The command to show for each kind of link and system: with 4 hosts and the largest size if that
    is run."""
    chosen: dict[tuple[str, str], Run] = {}
    for run in runs:
        if run.kind not in chosen or _fitness(run) > _fitness(chosen[run.kind]):
            chosen[run.kind] = run
    return chosen


def _fitness(run: Run) -> tuple:
    return run.cell.hosts == EXAMPLE_HOSTS, run.sizes[-1], run.cell.hosts


def _bundles(request: PlanRequest) -> list[set[Row]]:
    """Groups rows that are left out together, so that systems remain comparable; the least important
    come first."""
    hosts = sorted({cell.hosts for cell in request.cells})
    middle = hosts[(len(hosts) - 1) // 2] if hosts else 0
    by_cell_and_size: dict[tuple[Cell, int], set[Row]] = {}
    for row in request.rows():
        by_cell_and_size.setdefault((row.cell, row.size), set()).add(row)
    bundles = [{row for row in rows if _is_slow(request, row)} or rows for rows in by_cell_and_size.values()]
    return sorted(bundles, reverse=True, key=lambda rows: (
        all(row.cell.hosts != middle for row in rows), sum(map(_row_seconds, rows))))


def _row_seconds(row: Row) -> float:
    return cost.row_seconds(SYSTEMS[row.system], row.cell, row.size)


def _is_slow(request: PlanRequest, row: Row) -> bool:
    """True if a row takes seconds; for systems in full precision, if the slowest of them does."""
    alike = [row.system]
    if SYSTEMS[row.system].is_dense:
        alike = [name for name in request.systems
                 if SYSTEMS[name].is_dense and (row.cell.link.kind, name) not in request.absent]
    return any(_row_seconds(Row(row.cell, name, row.size)) > SLOW_ROW_SECONDS for name in alike)


def _runs(request: PlanRequest, repetitions: int, left_out: set[Row]) -> list[Run]:
    return [Run(cell, SYSTEMS[system], repetition, tuple(sweep), part.is_checked, part.row_seconds)
            for repetition in range(1, repetitions + 1)
            for cell in request.cells
            for system in request.systems if (cell.link.kind, system) not in request.absent
            for part in _parts(request, cell, system, repetition, left_out)
            for sweep in sweeps(part.sizes)]


@dataclasses.dataclass(frozen=True)
class _Part:
    """Sizes of a repetition that are run alike."""

    sizes: list[int]
    is_checked: bool = False
    row_seconds: float = cost.ROW_SECONDS


def _parts(request: PlanRequest, cell: Cell, system: str, repetition: int, left_out: set[Row]) -> list[_Part]:
    wanted = [size for size in request.sizes if Row(cell, system, size) not in left_out]
    if repetition > 1:
        return [_Part([size for size in wanted if not _is_slow(request, Row(cell, system, size))])]
    alone = wanted[-1:] if cell.link.rate is not None else []
    rest = wanted[:len(wanted) - len(alone)]
    small = [size for size in rest if size <= MAX_CHECKED_SIZE and _is_cheap(request, cell)]
    return [_Part(small, is_checked=True), _Part(rest[len(small):]),
            _Part(alone, row_seconds=cost.ALONE_SECONDS)]


def _is_cheap(request: PlanRequest, cell: Cell) -> bool:
    """True for shared memory and for the fastest link of the lab."""
    rates = [other.link.rate_bits_per_second or 0 for other in request.cells]
    return cell.link.rate is None or cell.link.rate_bits_per_second == max(rates)
