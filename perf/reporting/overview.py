# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The parts of the page that sum up: a table of speed-ups, break-evens, and what it comes to in words."""

from reporting.break_even import Outcome
from reporting.figures import Figures, GroupFigures
from reporting.markup import Markup, joined, tag
from reporting.systems import GLOO, ONEBIT_EF
from reporting.units import (NO_FIGURE, break_even_text, group_text, hosts_text, link_text, share_text,
                             size_text, speedup_text, time_text)

# Upper ends of the classes of speed-up, and the style of each: losses orange, wins blue.
TINTS = ((0.5, "loss-2"), (0.95, "loss-1"), (1.05, "even"), (2.0, "win-1"), (8.0, "win-2"))
LARGEST_TINT = "win-3"


def tint(speedup: float) -> str:
    return next((name for end, name in TINTS if speedup < end), LARGEST_TINT)


def speedup_cell(group: GroupFigures, size: int) -> Markup:
    dense = group.best_dense(size)
    speedup = group.speedup(size, dense)
    if speedup is None:
        row = group.row(ONEBIT_EF, size)
        reason = row.problem if row and row.problem else "not measured"
        return tag("td", NO_FIGURE, title=reason, class_="gap")
    mark = "" if group.is_clear(size) else "≈"
    title = (f"{time_text(group.time_us(ONEBIT_EF, size))} against {time_text(dense.times.median)} of "
             f"{dense.system.label}")
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
    hosts = sorted({group.group.hosts for group in figures.groups})
    rows = [tag("tr", tag("th", "link", scope="col"),
                *(tag("th", f"{count} hosts", scope="col") for count in hosts))]
    for link in figures.links():
        of_hosts = {group.group.hosts: break_even_text(group.break_even())
                    for group in figures.groups_on(link)}
        rows.append(tag("tr", tag("th", link_text(link), scope="row"),
                        *(tag("td", of_hosts.get(count, NO_FIGURE)) for count in hosts)))
    return tag("table", tag("thead", rows[0]), tag("tbody", *rows[1:]), class_="figures")


def largest_sentence(group: GroupFigures) -> str | None:
    """What one bit does at the largest size that it and a dense system have a time for."""
    sizes = [size for size in group.sizes if group.speedup(size, group.best_dense(size)) is not None]
    if not sizes:
        return None
    size = sizes[-1]
    dense = group.best_dense(size)
    speedup, over_gloo = group.speedup(size, dense), group.speedup(size, group.row(GLOO, size))
    times = (f"{group_text(group.group)}, {size_text(size)}: one bit takes "
             f"{time_text(group.time_us(ONEBIT_EF, size))}, the best dense system ({dense.system.label}) "
             f"{time_text(dense.times.median)}")
    verdict = (f"{speedup_text(speedup)} as fast" if speedup > 1 else
               f"{speedup_text(1 / speedup)} as slow" if speedup < 1 else "the same")
    text = f"{times}: {verdict}"
    if over_gloo is not None and dense.system is not GLOO:
        text += f", {speedup_text(over_gloo)} Gloo's speed"
    share = group.share(ONEBIT_EF, size)
    if share is not None:
        text += f", {share_text(share)} of the limit ({group.limit(ONEBIT_EF, size).cause})"
    return text + "."


def verdicts(figures: Figures) -> Markup:
    """Wins and losses, with the same weight."""
    hosts = figures.main_hosts()
    sentences = [largest_sentence(group) for group in figures.groups if group.group.hosts == hosts]
    results = [(group, group.break_even()) for group in figures.groups]
    lost = [group_text(group.group) for group, result in results if result.outcome is Outcome.NEVER]
    items = [tag("li", sentence) for sentence in sentences if sentence]
    if lost:
        items.append(tag("li", "One bit is slower at the largest size measured: ", "; ".join(lost), "."))
    small = [group for group, result in results if result.outcome is Outcome.FROM]
    if small:
        items.append(tag("li", "It is slower below the break-even, too: in ", str(len(small)), " of ",
                         str(len(results)), " combinations of link and hosts the smallest tensors are "
                         "faster in full precision."))
    return tag("ul", *items) if items else joined()
