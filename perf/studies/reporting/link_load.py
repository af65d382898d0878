# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""How much of a tensor passes a host's link where its ranks share it, as text."""

from reporting.figures import Figures
from reporting.limits import BITS_PER_ELEMENT, ELEMENT_BITS, flat_on_link, ring_on_link, two_levels_on_link
from reporting.rank_layout import Layout
from reporting.systems import Kind
from reporting.units import NO_FIGURE, digits, link_text, short, size_text


def link_load_text(layout: Layout) -> str:
    """What the rows are, and what they would be by formula."""
    least = two_levels_on_link(layout.hosts)
    codes = " and ".join(f"{digits(least * BITS_PER_ELEMENT[kind] / ELEMENT_BITS)} with {kind.value}"
                         for kind in (Kind.ONE_BIT, Kind.FOUR_BITS))
    return (f"Sent by the busiest host for one call on {layout.text}, in tensors. Without headers, two levels "
            f"are {short(least)} in full precision, {codes}; a ring of all ranks is "
            f"{short(ring_on_link(layout.ranks))}, and if every rank sends for itself it is "
            f"{short(flat_on_link(layout.hosts, layout.ranks_per_host))}")


def link_load_rows(figures: Figures, layout: Layout) -> list[list[str]]:
    """A table of sizes whose bytes were counted on links, with its head; empty if hosts have one rank each, or
    nothing was counted."""
    if layout.ranks_per_host == 1:
        return []
    rows = []
    for group in figures.groups:
        if group.group.layout != layout:
            continue
        for size in group.sizes:
            counts = [row.link_bytes if row and row.times else None
                      for row in (group.row(system, size) for system in figures.systems)]
            if any(counts):
                rows.append([link_text((group.group.link, group.group.bits_per_second)), size_text(size)]
                            + [digits(count / size) if count else NO_FIGURE for count in counts])
    return [["link", "size"] + [system.label for system in figures.systems], *rows] if rows else []
