# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What the charts and the tables show: the rows of each group, beside limits and break-even."""

import dataclasses

from reporting import limits
from reporting.break_even import BreakEven, Point, break_even
from reporting.comparison import Comparison, Group, Row, State
from reporting.rank_layout import Layout
from reporting.systems import DENSE, ONEBIT_EF, SYSTEMS, System
from reporting.units import size_text


@dataclasses.dataclass(frozen=True)
class Remark:
    """Why these systems have no time, or not of each repetition, at these sizes."""

    what: str
    systems: tuple[System, ...]
    sizes: tuple[int, ...]
    reason: str

    @property
    def systems_text(self) -> str:
        return ", ".join(system.label for system in self.systems)

    @property
    def sizes_text(self) -> str:
        return ", ".join(size_text(size) for size in self.sizes)


class GroupFigures:
    """All systems on one link with one layout of ranks."""

    def __init__(self, group: Group, rows: list[Row], limit_of_machine: dict) -> None:
        self.group = group
        self._rows = {(row.system, row.size): row for row in rows}
        self._limit_of_machine = limit_of_machine
        self.sizes = sorted({row.size for row in rows})
        self.systems = [system for system in SYSTEMS if any(row.system is system for row in rows)]

    def row(self, system: System, size: int) -> Row | None:
        return self._rows.get((system, size))

    def time_us(self, system: System, size: int) -> float | None:
        row = self.row(system, size)
        return row.times.median if row and row.times else None

    def timed_rows(self, system: System) -> list[Row]:
        """Those with a time, by size."""
        rows = [self.row(system, size) for size in self.sizes]
        return [row for row in rows if row and row.times]

    def problems(self) -> list[Row]:
        """Rows without a time, by system and size."""
        return [row for row in self._in_order() if not row.times]

    def doubtful(self) -> list[Row]:
        """Rows that have a time though some repetition failed, by system and size."""
        return [row for row in self._in_order() if row.times and row.failed_repetitions]

    def remarks(self) -> list[Remark]:
        """What rows lack, once for all systems that lack it at the same sizes for the same reason."""
        sizes: dict[tuple[str, System, str], list[int]] = {}
        for row in self.problems():
            what = "No time of" if row.state is State.FAILED else "Not measured:"
            sizes.setdefault((what, row.system, row.problem), []).append(row.size)
        for row in self.doubtful():
            reason = row.failure or "it gave no reason"
            sizes.setdefault(("A repetition failed of", row.system, reason), []).append(row.size)
        systems: dict[tuple[str, str, tuple[int, ...]], list[System]] = {}
        for (what, system, reason), of_system in sizes.items():
            systems.setdefault((what, reason, tuple(of_system)), []).append(system)
        return [Remark(what, tuple(alike), of_all, reason)
                for (what, reason, of_all), alike in systems.items()]

    def _in_order(self) -> list[Row]:
        rows = [self.row(system, size) for system in self.systems for size in self.sizes]
        return [row for row in rows if row]

    def best_dense(self, size: int) -> Row | None:
        """The fastest of the systems in full precision, our own included."""
        rows = [self.row(system, size) for system in DENSE]
        return min((row for row in rows if row and row.times),
                   key=lambda row: row.times.median, default=None)

    def speedup(self, size: int, over: Row | None) -> float | None:
        """Of one bit with error feedback over another row of this size."""
        one_bit = self.time_us(ONEBIT_EF, size)
        if one_bit is None or over is None or over.times is None:
            return None
        return over.times.median / one_bit

    def is_clear(self, size: int) -> bool:
        """Whether all repetitions of one bit lie on one side of all those of the best dense system. Of
        one that was measured once nobody knows how far its repetitions would spread."""
        one_bit, dense = self.row(ONEBIT_EF, size), self.best_dense(size)
        if one_bit is None or one_bit.times is None or dense is None:
            return False
        if min(one_bit.repetitions, dense.repetitions) < 2:
            return False
        return (one_bit.times.most < dense.times.least or one_bit.times.least > dense.times.most)

    def limit(self, system: System, size: int) -> limits.Limit:
        return limits.limit(system.kind, size, self.group.layout,
                            bits_per_second=self.group.bits_per_second, **self._limit_of_machine)

    def share(self, system: System, size: int) -> float | None:
        """Limit over time: 1 cannot be beaten, if the limit is one."""
        time_us, limit_us = self.time_us(system, size), self.limit(system, size).us
        return None if time_us is None or limit_us is None else limit_us / time_us

    def bus_gbps(self, size: int, time_us: float) -> float:
        """nccl-tests' bus bandwidth. Of compressed calls, too, over the bytes they stand for."""
        return limits.exchange_factor(self.group.layout.ranks) * size / time_us / 1e3

    def break_even(self) -> BreakEven:
        points = []
        for size in self.sizes:
            one_bit, dense = self.time_us(ONEBIT_EF, size), self.best_dense(size)
            if one_bit is not None and dense is not None:
                points.append(Point(size, one_bit, dense.times.median))
        return break_even(points)


class Figures:
    """A whole comparison: networks from the slowest to the fastest, then shared memory."""

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison
        machines = comparison.machines
        caches = [machine.cache_bytes for machine in machines]
        self.limit_of_machine = {
            "cores": machines[0].cores,
            # The fastest copy seen: a limit from a copy that was disturbed would be none.
            "copy_gbps": max(machine.copy_gbps for machine in machines),
            "cache_bytes": None if None in caches else max(caches)}
        self.groups = [
            GroupFigures(group, [row for row in comparison.rows if row.group == group],
                         self.limit_of_machine)
            for group in sorted({row.group for row in comparison.rows}, key=order)]
        self.systems = [system for system in SYSTEMS
                        if any(system in group.systems for group in self.groups)]

    def links(self) -> list[tuple[str, int | None]]:
        """Link and rate of the groups, each once."""
        return list(dict.fromkeys((group.group.link, group.group.bits_per_second)
                                  for group in self.groups))

    def groups_on(self, link: tuple[str, int | None]) -> list[GroupFigures]:
        return [group for group in self.groups
                if (group.group.link, group.group.bits_per_second) == link]

    def layouts(self) -> list[Layout]:
        """Hosts with one rank each come first."""
        return sorted({group.group.layout for group in self.groups})

    def main_layouts(self) -> list[Layout]:
        """Those that short tables show, one for each number of ranks per host: with 4 hosts, or else the most."""
        by_ranks: dict[int, list[Layout]] = {}
        for layout in self.layouts():
            by_ranks.setdefault(layout.ranks_per_host, []).append(layout)
        return [next((layout for layout in alike if layout.hosts == 4), alike[-1]) for alike in by_ranks.values()]


def order(group: Group) -> tuple:
    return (group.link == "shm", group.bits_per_second is None, group.bits_per_second or 0, group.layout)
