# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The parts of the page that sum up: a table of speed-ups, break-evens, and a summary in words."""

from reporting.break_even import Outcome
from reporting.comparison import Group, Row
from reporting.figures import Figures, GroupFigures
from reporting.markup import Markup, joined, tag
from reporting.rank_layout import Layout
from reporting.systems import GLOO, ONEBIT_EF
from reporting.units import (NO_FIGURE, break_even_text, hosts_text, link_text, share_text,
                             size_text, speedup_text, time_text)

# Upper ends of the classes of speed-up, and the style of each: losses orange, wins blue.
TINTS = ((0.5, "loss-2"), (0.95, "loss-1"), (1.05, "even"), (2.0, "win-1"), (8.0, "win-2"))
LARGEST_TINT = "win-3"


def tint(speedup: float) -> str:
    return next((name for end, name in TINTS if speedup < end), LARGEST_TINT)


def once_text(row: Row) -> str:
    """What to keep in mind of its time."""
    return " (measured once)" if row.repetitions == 1 else ""


def speedup_cell(group: GroupFigures, size: int) -> Markup:
    dense = group.best_dense(size)
    speedup = group.speedup(size, dense)
    if speedup is None:
        row = group.row(ONEBIT_EF, size)
        reason = row.problem if row and row.problem else "not measured"
        return tag("td", NO_FIGURE, title=reason, class_="gap")
    mark = "" if group.is_clear(size) else "≈"
    one_bit = group.row(ONEBIT_EF, size)
    title = (f"{time_text(one_bit.times.median)}{once_text(one_bit)} against "
             f"{time_text(dense.times.median)}{once_text(dense)} of {dense.system.label}")
    return tag("td", f"{mark}{speedup_text(speedup)}", class_=tint(speedup), title=title)


def speedup_table(figures: Figures) -> Markup:
    """One bit over the best dense system, for every group and size."""
    sizes = sorted({size for group in figures.groups for size in group.sizes})
    head = tag("tr", tag("th", "link", scope="col"), tag("th", "ranks", scope="col"),
               *(tag("th", size_text(size), scope="col") for size in sizes))
    rows = []
    for link in figures.links():
        groups = figures.groups_on(link)
        for index, group in enumerate(groups):
            name = [tag("th", link_text(link), scope="rowgroup", rowspan=len(groups))] if index == 0 else []
            rows.append(tag("tr", *name, tag("th", hosts_text(group.group), scope="row"),
                            *(speedup_cell(group, size) for size in sizes)))
    return tag("div", tag("table", tag("thead", head), tag("tbody", *rows), class_="heat"), class_="wide")


def break_even_table(figures: Figures) -> Markup:
    layouts = figures.layouts()
    rows = [tag("tr", tag("th", "link", scope="col"),
                *(tag("th", layout.text, scope="col") for layout in layouts))]
    for link in figures.links():
        texts = {group.group.layout: break_even_text(group.break_even()) for group in figures.groups_on(link)}
        rows.append(tag("tr", tag("th", link_text(link), scope="row"),
                        *(tag("td", texts.get(layout, NO_FIGURE)) for layout in layouts)))
    return tag("table", tag("thead", rows[0]), tag("tbody", *rows[1:]))


def largest_compared(group: GroupFigures) -> int | None:
    """The largest size that one bit and a system in full precision have a time for."""
    return max((size for size in group.sizes
                if group.speedup(size, group.best_dense(size)) is not None), default=None)


SUMMARY_HEAD = ("link", "size", "one bit", "best in full precision", "over the best", "over Gloo",
                "of the limit", "one bit is faster")


def summary_row(group: GroupFigures) -> Markup:
    """What one bit does at the largest size."""
    name = link_text((group.group.link, group.group.bits_per_second))
    size = largest_compared(group)
    if size is None:
        nothing = tag("td", "nothing to compare", colspan=len(SUMMARY_HEAD) - 1, class_="gap")
        return tag("tr", tag("th", name, scope="row"), nothing)
    dense = group.best_dense(size)
    limit = group.limit(ONEBIT_EF, size)
    share = share_text(group.share(ONEBIT_EF, size)) + (f" ({limit.cause})" if limit.us else "")
    return tag(
        "tr", tag("th", name, scope="row"), tag("td", size_text(size)),
        tag("td", time_text(group.time_us(ONEBIT_EF, size))),
        tag("td", f"{time_text(dense.times.median)} ({dense.system.label})"),
        speedup_cell(group, size), tag("td", speedup_text(group.speedup(size, group.row(GLOO, size)))),
        tag("td", share), tag("td", break_even_text(group.break_even())))


def summary_tables(figures: Figures) -> Markup:
    """One for each number of ranks per host."""
    return joined(*(summary_table(figures, layout) for layout in figures.main_layouts()))


def summary_table(figures: Figures, layout: Layout) -> Markup:
    """Each link at the largest size, wins and losses alike."""
    groups = [group for group in figures.groups if group.group.layout == layout]
    where = layout.text if layout.ranks_per_host > 1 else f"{layout.text}, or processes on shared memory"
    return tag("div", tag(
        "table", tag("caption", where),
        tag("thead", tag("tr", *(tag("th", name, scope="col") for name in SUMMARY_HEAD))),
        tag("tbody", *(summary_row(group) for group in groups))), class_="wide")


def listed(groups: list[GroupFigures]) -> str:
    """Their names, with all numbers of hosts of one link together."""
    alike: dict[tuple, list[Group]] = {}
    for group in (figures.group for figures in groups):
        alike.setdefault((group.link, group.bits_per_second, group.layout.ranks_per_host), []).append(group)
    return "; ".join(
        f"{link_text((last.link, last.bits_per_second))} with "
        + "".join(f"{group.layout.hosts}, " for group in others) + hosts_text(last)
        for *others, last in alike.values())


def losses(figures: Figures) -> Markup:
    """Where one bit does not pay, in words."""
    results = [(group, group.break_even()) for group in figures.groups]
    never = [group for group, result in results if result.outcome is Outcome.NEVER]
    below = [group for group, result in results if result.outcome is Outcome.FROM]
    if not any(result.outcome is not Outcome.UNKNOWN for _, result in results):
        return tag("p", "One bit could not be compared with full precision: one of them has no times.")
    items = []
    if never:
        items.append(tag("li", f"Slower at the largest size measured: {listed(never)}."))
    if below:
        items.append(tag("li", f"Slower below some size: {listed(below)}."))
    if not items:
        items.append(tag("li", "It was faster at every size that was compared."))
    return joined(tag("p", "Where one bit does not pay:"), tag("ul", *items))
