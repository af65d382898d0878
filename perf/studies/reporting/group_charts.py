# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The charts of a group, side by side: time, bus bandwidth and share of the limit, against size."""

import math
import typing

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from reporting.break_even import Outcome
from reporting.drawing import COLOURS, INK, SURFACE, decimals, inline, settings, sizes
from reporting.figures import GroupFigures
from reporting.markup import Markup
from reporting.systems import ONEBIT_EF, Kind, System
from reporting.units import break_even_text, group_text, short, tick_time_text

LIMIT_REACH = 4.0  # how far from what was measured a limit is still drawn
# Colour and marker of each system; nobody needs to tell colours apart.
STYLES = {"openmpi": ("blue", "o"), "openmpi-ring": ("sky", "o"), "mpich": ("green", "^"), "gloo": ("orange", "s"),
          "multipass": ("pink", "x"), "onebit-dense": ("grey", "D"), "onebit-ef": ("red", "D"),
          "onebit-fp4": ("violet", "v")}
HOLLOW = ("openmpi-ring", "onebit-dense", "onebit-fp4")
LIMITS = {Kind.DENSE: ("ink", (0, (6, 3))), Kind.ONE_BIT: ("red", (0, (1.5, 2.5))),
          Kind.FOUR_BITS: ("violet", (0, (6, 3, 1.5, 3)))}

Value = typing.Callable[[int, float], float]  # what a chart shows of a size and a time in microseconds


def group_chart(group: GroupFigures, identity: str) -> Markup | None:
    """None where no system has a time."""
    systems = [system for system in group.systems if group.timed_rows(system)]
    if not systems:
        return None
    shares = {system: [(size, group.share(system, size)) for size in group.sizes if group.share(system, size)]
              for system in systems}
    names = ["time of one call", "bus bandwidth in GB/s", *(["share of the limit"] if any(shares.values()) else [])]
    with settings():
        figure = Figure(figsize=(4.4 * len(names), 3.9))
        panels = figure.subplots(1, len(names))
        figure.subplots_adjust(left=0.17 / len(names), right=1 - 0.04 / len(names), top=0.92, bottom=0.27, wspace=0.19)
        decimals(panels[0], "y", _measured(panels[0], group, systems, lambda size, us: us), tick_time_text)
        decimals(panels[1], "y", _measured(panels[1], group, systems, group.bus_gbps), short)
        if any(shares.values()):
            _shares(panels[2], shares)
        for panel, name in zip(panels, names, strict=True):
            panel.set(xlabel="size of the tensor")
            panel.set_title(name, loc="left")
            sizes(panel, "x", map(float, group.sizes))
        _break_even(panels[:2], group)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="lower center", ncol=math.ceil(len(labels) / 2))
        return inline(figure, identity, f"Charts of {group_text(group.group)}", _description(group, systems, names))


def _measured(panel: Axes, group: GroupFigures, systems: list[System], value: Value) -> list[float]:
    """Medians with the range of the repetitions, and the limit of each kind of system near them. A row that failed
    is a gap in its line; a size that nobody asked for is none. Returns the heights that the panel shows."""
    heights = []
    for system in systems:
        rows = [row for row in (group.row(system, size) for size in group.sizes) if row]
        panel.plot([row.size for row in rows],
                   [value(row.size, row.times.median) if row.times else math.nan for row in rows], **_style(system))
        timed = group.timed_rows(system)
        least, most = ([value(row.size, getattr(row.times, end)) for row in timed] for end in ("least", "most"))
        panel.vlines([row.size for row in timed], least, most, color=COLOURS[STYLES[system.name][0]], linewidth=3,
                     alpha=0.35)
        heights += least + most
    low, high = min(heights) / LIMIT_REACH, max(heights) * LIMIT_REACH
    for kind, (colour, dashes) in LIMITS.items():
        system = next((system for system in systems if system.kind is kind), None)
        limits = [(size, group.limit(system, size).us) for size in group.sizes] if system else []
        points = [(size, value(size, us)) for size, us in limits if us is not None]
        if points:
            panel.plot(*zip(*points), color=COLOURS[colour], linestyle=dashes, linewidth=1.1,
                       label=f"limit, {kind.value}")
        heights += [y for _, y in points if low <= y <= high]
    return heights


def _shares(panel: Axes, shares: dict[System, list[tuple[int, float]]]) -> None:
    for system, points in shares.items():
        if points:
            panel.plot(*zip(*points), **_style(system))
    panel.axhline(1.0, color=INK, linestyle=LIMITS[Kind.DENSE][1], linewidth=1.1)
    panel.set_ylim(0, 1.06 * max([1.0, *(share for points in shares.values() for _, share in points)]))
    panel.yaxis.set_major_formatter(PercentFormatter(1.0, 0, " %"))


def _style(system: System) -> dict:
    colour, marker = STYLES[system.name]
    return {"color": COLOURS[colour], "marker": marker, "label": system.label,
            "markerfacecolor": SURFACE if system.name in HOLLOW else COLOURS[colour],
            "linewidth": 2.4 if system is ONEBIT_EF else 1.3}


def _break_even(panels: list[Axes], group: GroupFigures) -> None:
    """A vertical line where one bit breaks even, and the words above."""
    result = group.break_even()
    for panel in panels if result.outcome is not Outcome.UNKNOWN else []:
        panel.set_title(f"1-bit faster {break_even_text(result)}", loc="right")
        if result.outcome is Outcome.FROM:
            panel.axvline(result.size, color=INK, linestyle=":", linewidth=0.8)


def _description(group: GroupFigures, systems: list[System], names: list[str]) -> str:
    text = (f"{', '.join(names).capitalize()}, each against the size of the tensor, for {group_text(group.group)}. "
            f"Systems: {', '.join(system.label for system in systems)}.")
    result = group.break_even()
    if result.outcome is not Outcome.UNKNOWN:
        text += f" One bit with error feedback is faster than the best dense system {break_even_text(result)}."
    return text + " All figures are in the table below the charts."
