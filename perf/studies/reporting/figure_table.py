# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The figures of one group as a table, for those who want numbers or cannot see the charts."""

from reporting import explanations
from reporting.comparison import Row, State
from reporting.figures import GroupFigures
from reporting.markup import Markup, joined, tag
from reporting.systems import ONEBIT_EF, System
from reporting.units import NO_FIGURE, digits, ms_text, share_text, size_text, speedup_text


def failure_text(row: Row) -> str | None:
    """What the mark of a time means; None without a mark."""
    if not row.failed_repetitions:
        return None
    return f"{row.failed_repetitions} more repetitions failed: {row.failure or 'it gave no reason'}"


def time_cell(group: GroupFigures, system: System, size: int) -> Markup:
    row = group.row(system, size)
    if row is None:
        return tag("td", NO_FIGURE, title="not measured", class_="gap")
    if row.times is None:
        text = "failed" if row.state is State.FAILED else "not measured"
        return tag("td", text, title=row.problem, class_="gap")
    span = joined()
    if row.repetitions == 1:
        span = tag("small", "measured once")
    elif row.times.least < row.times.most:
        span = tag("small", f"{ms_text(row.times.least)}–{ms_text(row.times.most)}")
    mark = "†" if row.failed_repetitions else ""
    best = group.best_dense(size)
    return tag("td", f"{ms_text(row.times.median)}{mark}", span, title=failure_text(row),
               class_="best" if row is best else None)


def bytes_text(count: int | None) -> str:
    return NO_FIGURE if count is None else size_text(count)


def figure_row(group: GroupFigures, size: int) -> Markup:
    one_bit = group.row(ONEBIT_EF, size)
    limit = group.limit(ONEBIT_EF, size)
    cells = [speedup_text(group.speedup(size, group.best_dense(size))),
             f"{ms_text(limit.us)} {limit.cause}".strip(), share_text(group.share(ONEBIT_EF, size)),
             bytes_text(one_bit.wire_bytes if one_bit else None),
             bytes_text(one_bit.link_bytes if one_bit else None),
             NO_FIGURE if one_bit is None or one_bit.rel_error is None else digits(one_bit.rel_error)]
    if group.group.layout.ranks_per_host > 1:
        cells.append(NO_FIGURE if one_bit is None or one_bit.levels is None else str(one_bit.levels))
    return tag("tr", tag("th", size_text(size), scope="row"),
               *(time_cell(group, system, size) for system in group.systems),
               *(tag("td", cell) for cell in cells))


NO_BREAK = "\u2011"  # a hyphen that does not end a line


def figure_table(group: GroupFigures) -> Markup:
    names = (["size"] + [f"{system.label}, ms" for system in group.systems]
             + ["1-bit over best dense", "limit, ms", "of limit", "sent per rank", "on the link", "error"]
             + (["levels"] if group.group.layout.ranks_per_host > 1 else []))
    head = tag("tr", *(tag("th", name.replace("-", NO_BREAK), scope="col") for name in names))
    table = tag("table", tag("caption", explanations.FIGURES), tag("thead", head),
                tag("tbody", *(figure_row(group, size) for size in group.sizes)))
    return tag("div", table, class_="wide")


def problem_list(group: GroupFigures) -> Markup:
    """Why lines have gaps, and which points have fewer repetitions than they should."""
    items = [tag("li", f"{remark.what} {remark.systems_text} at {remark.sizes_text}: ",
                 tag("code", remark.reason)) for remark in group.remarks()]
    return tag("ul", *items, class_="problems") if items else joined()
