# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The charts over all groups: where one bit breaks even, and what it puts on the wire."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reporting.break_even import Outcome
from reporting.comparison import ELEMENT_BYTES, Row
from reporting.drawing import COLOURS, SURFACE, decimals, inline, logarithmic, settings, sizes
from reporting.figures import Figures
from reporting.group_charts import LIMITS
from reporting.limits import BITS_PER_ELEMENT, two_levels_on_link
from reporting.markup import Markup
from reporting.rank_layout import Layout
from reporting.systems import ONEBIT_EF, Kind
from reporting.units import rate_text, short

STYLES = (("blue", "o"), ("red", "s"), ("green", "^"), ("orange", "D"), ("pink", "x"))
SIZE = (6.2, 4.0)


def break_even_chart(figures: Figures) -> Markup | None:
    """Over the rates of the lab. None where no rate has a break-even."""
    lines = {}
    for layout in figures.layouts():
        groups = [group for group in figures.groups if group.group.layout == layout and group.group.bits_per_second]
        results = [(group.group.bits_per_second, group.break_even()) for group in groups]
        points = [(rate, result.size or result.smallest) for rate, result in results
                  if result.outcome in (Outcome.ALWAYS, Outcome.FROM)]
        if points:
            lines[layout] = points
    if not lines:
        return None
    rates = sorted({group.group.bits_per_second for group in figures.groups} - {None})
    with settings():
        figure = Figure(figsize=SIZE, layout="constrained")
        panel = figure.subplots()
        for layout, points in lines.items():
            panel.plot(*zip(*points), **_style(figures, layout), label=layout.text)
        logarithmic(panel, "x", rates, rates, rate_text)
        sizes(panel, "y", [size for points in lines.values() for _, size in points])
        panel.set(xlabel="rate of the network", ylabel="break-even size")
        panel.legend()
        return inline(figure, "break-even", "Break-even",
                      "Size of the tensor from which on one bit with error feedback is faster than the best dense "
                      "system, against the rate of the network, one line for each layout of ranks. The table beside "
                      "it has the same figures.")


def bits_of(row: Row, sent_bytes: float) -> float:
    """Per element and exchange of hosts: the same for any number of them."""
    return 8 * sent_bytes / (row.size / ELEMENT_BYTES) / two_levels_on_link(row.group.layout.hosts)


def bits_on_wire(figures: Figures, layout: Layout, of_link: bool) -> dict[int, float]:
    """By size, of one bit, as the library counted or as the link did. Of all rates the one with the most: what a
    library sends does not depend on the rate. What it counts is no figure of links where it includes what ranks of a
    host send to each other."""
    bits: dict[int, float] = {}
    for group in figures.groups:
        if group.group.layout != layout or (layout.ranks_per_host > 1 and not of_link):
            continue
        for row in group.timed_rows(ONEBIT_EF):
            sent = row.link_bytes if of_link else row.wire_bytes
            if sent:
                bits[row.size] = max(bits.get(row.size, 0), bits_of(row, sent))
    return dict(sorted(bits.items()))


def wire_lines(figures: Figures) -> dict[tuple[Layout, bool], dict[int, float]]:
    """Bits by size for each layout, as the library counted and (True) as the link did, where somebody counted."""
    lines = {(layout, of_link): bits_on_wire(figures, layout, of_link)
             for layout in figures.layouts() for of_link in (False, True)}
    return {key: bits for key, bits in lines.items() if bits}


def wire_name(layout: Layout, of_link: bool) -> str:
    ranks = layout.text if layout.ranks_per_host > 1 else f"{layout.ranks} ranks"
    return f"{ranks}, on the link" if of_link else ranks


def wire_chart(figures: Figures) -> Markup | None:
    """None where nobody counted bytes."""
    lines = wire_lines(figures)
    if not lines:
        return None
    ideal = BITS_PER_ELEMENT[Kind.ONE_BIT]
    with settings():
        figure = Figure(figsize=SIZE, layout="constrained")
        panel = figure.subplots()
        _formula(panel, ideal)
        for (layout, of_link), bits in lines.items():
            faint = {"linestyle": ":", "markerfacecolor": SURFACE} if of_link else {}
            panel.plot(list(bits), list(bits.values()), **_style(figures, layout) | faint,
                       label=wire_name(layout, of_link))
        sizes(panel, "x", [float(size) for bits in lines.values() for size in bits])
        decimals(panel, "y", [ideal, *(value for bits in lines.values() for value in bits.values())], short)
        panel.set(xlabel="size of the tensor", ylabel="bits per element and exchange")
        panel.legend()
        return inline(figure, "wire", "Bits on the wire",
                      "Bits that a host sends per element and exchange with one bit and error feedback, against the "
                      f"size of the tensor. The formula is {ideal:.4f}: one bit, and a scale in every block. The "
                      "table below has the same figures.")


def _formula(panel: Axes, ideal: float) -> None:
    colour, dashes = LIMITS[Kind.ONE_BIT]
    panel.axhline(ideal, color=COLOURS[colour], linestyle=dashes, linewidth=1.1, label=f"formula: {ideal:.4f}")


def _style(figures: Figures, layout: Layout) -> dict:
    colour, marker = STYLES[figures.layouts().index(layout) % len(STYLES)]
    return {"color": COLOURS[colour], "marker": marker}
