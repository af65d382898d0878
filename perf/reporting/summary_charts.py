# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The charts over all groups: where one bit breaks even, and what it puts on the wire."""

from reporting.axes import LogAxis, plain_ticks, size_ticks, values_as_ticks
from reporting.break_even import Outcome
from reporting.comparison import ELEMENT_BYTES, Row
from reporting.figures import Figures
from reporting.group_charts import SIZE_LABEL, heights
from reporting.limits import BITS_PER_ELEMENT, two_levels_on_link
from reporting.line_chart import Line, LineChart, Mark
from reporting.markup import Markup
from reporting.rank_layout import Layout
from reporting.systems import ONEBIT_EF, Kind
from reporting.units import break_even_text, digits, group_text, rate_text, size_text

HOSTS_MARKERS = ("circle", "square", "triangle", "diamond", "cross")


def layout_styles(figures: Figures) -> dict[Layout, tuple[str, str]]:
    """Class and marker for each layout of ranks."""
    return {layout: (f"h-{index % len(HOSTS_MARKERS)}", HOSTS_MARKERS[index % len(HOSTS_MARKERS)])
            for index, layout in enumerate(figures.layouts())}


def break_even_chart(figures: Figures) -> Markup | None:
    """Over the rates of the lab. None where no rate has a break-even."""
    lines = []
    for layout, (css_class, marker) in layout_styles(figures).items():
        run = []
        for group in figures.groups:
            if group.group.layout != layout or group.group.bits_per_second is None:
                continue
            result = group.break_even()
            if result.outcome in (Outcome.ALWAYS, Outcome.FROM):
                run.append(Mark(float(group.group.bits_per_second), float(result.size or result.smallest),
                                f"{group_text(group.group)}: faster {break_even_text(result)}"))
        if run:
            lines.append(Line(css_class, marker, [run]))
    if not lines:
        return None
    rates = sorted({group.group.bits_per_second for group in figures.groups} - {None})
    return LineChart(
        "break-even", "Break-even",
        "Size of the tensor from which on one bit with error feedback is faster than the best dense "
        "system, against the rate of the network, one line for each layout of ranks. The table beside it "
        "has the same figures.",
        LogAxis("rate of the network", [float(rate) for rate in rates],
                values_as_ticks([float(rate) for rate in rates], rate_text)),
        LogAxis("break-even size", heights(lines), size_ticks), lines).svg()


def bits_of(row: Row, sent_bytes: float) -> float:
    """Per element and exchange of hosts: the same for any number of them."""
    return 8 * sent_bytes / (row.size / ELEMENT_BYTES) / two_levels_on_link(row.group.layout.hosts)


def most_sent(figures: Figures, layout: Layout, of_link: bool) -> dict[int, tuple[Row, int]]:
    """By size, the row of one bit that sent most: what a library sends does not depend on the rate. What it
    counts is no figure of links where it includes what ranks of a host send to each other."""
    rows: dict[int, tuple[Row, int]] = {}
    if not of_link and layout.ranks_per_host > 1:
        return rows
    for group in figures.groups:
        if group.group.layout != layout:
            continue
        for row in group.timed_rows(ONEBIT_EF):
            sent = row.link_bytes if of_link else row.wire_bytes
            if sent and (row.size not in rows or sent > rows[row.size][1]):
                rows[row.size] = (row, sent)
    return dict(sorted(rows.items()))


def wire_line(figures: Figures, layout: Layout, of_link: bool, css_class: str, marker: str) -> Line:
    """Bits that the library counted, or those that the interface did."""
    where = "on the link" if of_link else "sent"
    ranks = layout.text if layout.ranks_per_host > 1 else f"{layout.ranks} ranks"
    run = [Mark(size, bits_of(row, sent),
                f"{ranks}, {size_text(size)}: {size_text(sent)} {where}, "
                f"{digits(bits_of(row, sent), 4)} bits per element and exchange")
           for size, (row, sent) in most_sent(figures, layout, of_link).items()]
    return Line(css_class, marker, [run] if run else [])


def wire_chart(figures: Figures) -> Markup | None:
    """None where nobody counted bytes."""
    lines = []
    for layout, (css_class, marker) in layout_styles(figures).items():
        lines += [wire_line(figures, layout, False, css_class, marker),
                  wire_line(figures, layout, True, f"{css_class} faint", f"hollow-{marker}")]
    lines = [line for line in lines if line.runs]
    if not lines:
        return None
    sizes = [mark.x for line in lines for run in line.runs for mark in run]
    ideal = BITS_PER_ELEMENT[Kind.ONE_BIT]
    formula = Line("limit-one-bit", "", [[Mark(size, ideal, "") for size in (min(sizes), max(sizes))]])
    return LineChart(
        "wire", "Bits on the wire",
        "Bits that a host sends per element and exchange with one bit and error feedback, against the "
        f"size of the tensor. The formula is {ideal:.4f}: one bit, and a scale in every block.",
        LogAxis(SIZE_LABEL, sizes, size_ticks),
        LogAxis("bits per element and exchange", heights([*lines, formula]), plain_ticks),
        [formula, *lines]).svg()
