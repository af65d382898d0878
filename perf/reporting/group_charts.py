# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The three charts of a group: time, bus bandwidth and share of the limit, against size."""

import typing

from reporting.axes import LogAxis, ShareAxis, plain_ticks, size_ticks, time_ticks
from reporting.break_even import BreakEven, Outcome
from reporting.clipping import clipped
from reporting.comparison import Row
from reporting.figures import GroupFigures
from reporting.line_chart import Line, LineChart, Mark, Note
from reporting.markup import Markup
from reporting.systems import Kind, System
from reporting.units import break_even_text, digits, group_text, share_text, size_text, time_text

SIZE_LABEL = "size of the tensor"
LIMIT_REACH = 4.0  # how far from what was measured a limit is still drawn


def row_text(group: GroupFigures, row: Row) -> str:
    """Everything that is known of a point."""
    times = row.times
    text = f"{row.system.label}, {size_text(row.size)}: {time_text(times.median)}"
    if row.repetitions > 1:
        text += (f" ({time_text(times.least)} to {time_text(times.most)} in {row.repetitions} repetitions"
                 f" of {row.calls} calls)")
    else:
        text += f" (measured once, {row.calls} calls)"
    if row.failed_repetitions:
        text += f", {row.failed_repetitions} more repetitions failed"
    text += f", bus bandwidth {digits(group.bus_gbps(row))} GB/s"
    limit = group.limit(row.system, row.size)
    if limit.us is not None:
        text += (f", {share_text(group.share(row.system, row.size))} of the limit of "
                 f"{time_text(limit.us)} ({limit.cause})")
    if row.wire_bytes is not None:
        text += f", {size_text(row.wire_bytes)} sent per rank"
    if row.link_bytes is not None and group.group.layout.ranks_per_host > 1:
        text += f", {size_text(row.link_bytes)} on the link of the busiest host"
    if row.levels is not None and group.group.layout.ranks_per_host > 1:
        text += f", in {'two levels' if row.levels > 1 else 'one level'}"
    return text


def runs_of(group: GroupFigures, system: System, mark: typing.Callable[[Row], Mark | None]
            ) -> list[list[Mark]]:
    """The points of a system. A row that failed ends a run; a size that nobody asked for does not."""
    runs: list[list[Mark]] = [[]]
    for size in group.sizes:
        row = group.row(system, size)
        if row is None:
            continue
        point = mark(row) if row.times else None
        if point:
            runs[-1].append(point)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def system_lines(group: GroupFigures, mark: typing.Callable[[Row], Mark | None]) -> list[Line]:
    return [Line(f"s-{system.name}", system.marker, runs_of(group, system, mark))
            for system in group.systems]


def limit_lines(group: GroupFigures, measured: list[Line], value: typing.Callable[[int, float], float]
                ) -> list[Line]:
    """One for each kind of system. `value(size, limit_us)` is what the chart shows."""
    low, high = min(heights(measured)) / LIMIT_REACH, max(heights(measured)) * LIMIT_REACH
    lines = []
    for kind in Kind:
        system = next((system for system in group.systems if system.kind is kind), None)
        if system is None:
            continue
        limits = [(size, group.limit(system, size).us) for size in group.sizes]
        points = [(float(size), value(size, us)) for size, us in limits if us is not None]
        lines.append(Line(kind.limit_class, "",
                          [[Mark(x, y, "") for x, y in run] for run in clipped(points, low, high)]))
    return lines


def heights(lines: list[Line]) -> list[float]:
    """All values that the axis must reach."""
    marks = [mark for line in lines for run in line.runs for mark in run]
    return [value for mark in marks for value in (mark.y, mark.least, mark.most) if value is not None]


def break_even_note(result: BreakEven) -> Note | None:
    if result.outcome is Outcome.UNKNOWN:
        return None
    text = f"1-bit faster {break_even_text(result)}"
    return Note(text, result.size if result.outcome is Outcome.FROM else None)


def size_axis(group: GroupFigures) -> LogAxis:
    return LogAxis(SIZE_LABEL, [float(size) for size in group.sizes], size_ticks)


def description(group: GroupFigures, what: str) -> str:
    text = (f"{what} against the size of the tensor for {group_text(group.group)}. Systems: "
            f"{', '.join(system.label for system in group.systems)}.")
    result = group.break_even()
    if result.outcome is not Outcome.UNKNOWN:
        text += (" One bit with error feedback is faster than the best dense system "
                 f"{break_even_text(result)}.")
    return text + " All figures are in the table below the charts."


def time_chart(group: GroupFigures, identity: str) -> Markup | None:
    """None where no system has a time."""
    mark = lambda row: Mark(row.size, row.times.median, row_text(group, row), row.times.least,
                            row.times.most)
    lines = system_lines(group, mark)
    if not heights(lines):
        return None
    lines = limit_lines(group, lines, lambda size, us: us) + lines
    return LineChart(
        f"{identity}-time", f"Time, {group_text(group.group)}", description(group, "Time of one call"),
        size_axis(group), LogAxis("time of one call", heights(lines), time_ticks), lines,
        break_even_note(group.break_even())).svg()


def bandwidth_chart(group: GroupFigures, identity: str) -> Markup | None:
    """None where no system has a time."""
    bandwidth = group.bus_gbps_of
    mark = lambda row: Mark(row.size, bandwidth(row.size, row.times.median), row_text(group, row),
                            bandwidth(row.size, row.times.most), bandwidth(row.size, row.times.least))
    lines = system_lines(group, mark)
    if not heights(lines):
        return None
    lines = limit_lines(group, lines, bandwidth) + lines
    return LineChart(
        f"{identity}-busbw", f"Bus bandwidth, {group_text(group.group)}",
        description(group, "Bus bandwidth"), size_axis(group),
        LogAxis("bus bandwidth in GB/s", heights(lines), plain_ticks), lines,
        break_even_note(group.break_even())).svg()


def share_chart(group: GroupFigures, identity: str) -> Markup | None:
    """None where no limit is known."""

    def mark(row: Row) -> Mark | None:
        share = group.share(row.system, row.size)
        return None if share is None else Mark(row.size, share, row_text(group, row))

    lines = system_lines(group, mark)
    shares = heights(lines)
    if not shares:
        return None
    full = Line("limit-dense", "", [[Mark(size, 1.0, "") for size in group.sizes]])
    return LineChart(
        f"{identity}-share", f"Share of the limit, {group_text(group.group)}",
        description(group, "Share of the limit that each system reaches"), size_axis(group),
        ShareAxis("limit over time", shares), [full] + lines).svg()
