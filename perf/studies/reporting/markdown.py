# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The tables of a report in Markdown, short enough for a page of the documentation."""

import textwrap

from reporting.figures import Figures, GroupFigures
from reporting.link_load import link_load_rows, link_load_text
from reporting.rank_layout import Layout
from reporting.systems import GLOO, ONEBIT_EF, System
from reporting.units import (NO_FIGURE, break_even_text, group_text, link_text, ms_text, share_text, size_text,
                             speedup_text)

SIZE_STEP = 16  # between the sizes shown, so that small ones, where one bit loses, are among them
MOST_SIZES = 4

NOTES = (
    '"over": how many times faster onebit 1-bit is; below 1x it is slower. "best dense": the fastest of',
    'those in full precision, onebit included. "of limit": the least time that wire and memory take, over',
    'the time it took.')


ONCE = "¹"
ONCE_NOTE = f"{ONCE}: measured in one repetition only."
MORE_SIZES_NOTE = "Sizes in between were measured, too: the page of --html shows them."


def escaped(text: str) -> str:
    """In a cell of a table, or as a line of text, on one line."""
    text = " ".join(text.split())
    for character in "\\`*_<>|[]":
        text = text.replace(character, "\\" + character)
    return text


def table(rows: list[list[str]], text_columns: int) -> list[str]:
    """Lines with columns of equal width. The first row is the head; columns of figures go right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) if column < text_columns else cell.rjust(width)
                 for column, (cell, width) in enumerate(zip(row, widths, strict=True))]
        lines.append(f"| {' | '.join(cells)} |")
    rules = ["-" * width if column < text_columns else "-" * (width - 1) + ":"
             for column, width in enumerate(widths)]
    lines.insert(1, f"| {' | '.join(rules)} |")
    return lines


def shown_sizes(sizes: list[int]) -> list[int]:
    """All if there are few; else from the largest downwards in steps, smallest first."""
    if len(sizes) <= MOST_SIZES:
        return sizes
    shown: list[int] = []
    for size in reversed(sizes):
        if not shown or size * SIZE_STEP <= shown[-1]:
            shown.append(size)
    return shown[:MOST_SIZES][::-1]


def time_text(group: GroupFigures, system: System, size: int) -> str:
    """In milliseconds, with a mark if nobody measured it again."""
    row = group.row(system, size)
    is_single = row is not None and row.times is not None and row.repetitions == 1
    return ms_text(group.time_us(system, size)) + (ONCE if is_single else "")


def time_rows(group: GroupFigures, systems: list[System]) -> list[list[str]]:
    rows = []
    for size in shown_sizes(group.sizes):
        rows.append(
            [link_text((group.group.link, group.group.bits_per_second)), size_text(size)]
            + [time_text(group, system, size) for system in systems]
            + [speedup_text(group.speedup(size, group.row(GLOO, size))),
               speedup_text(group.speedup(size, group.best_dense(size))),
               share_text(group.share(ONEBIT_EF, size))])
    return rows


def time_table(figures: Figures, layout: Layout) -> list[str]:
    rows = [["link", "size"] + [system.label for system in figures.systems]
            + ["over Gloo", "over best dense", "of limit"]]
    for group in figures.groups:
        if group.group.layout == layout:
            rows += time_rows(group, figures.systems)
    return table(rows, text_columns=2)


def break_even_table(figures: Figures) -> list[str]:
    layouts = figures.layouts()
    rows = [["link"] + [layout.text for layout in layouts]]
    for link in figures.links():
        texts = {group.group.layout: break_even_text(group.break_even()) for group in figures.groups_on(link)}
        rows.append([link_text(link)] + [texts.get(layout, NO_FIGURE) for layout in layouts])
    return table(rows, text_columns=1)


def problem_lines(figures: Figures) -> list[str]:
    """What failed or was not measured."""
    return [f"* {remark.what} {remark.systems_text}, {group_text(group.group)}, {remark.sizes_text}: "
            f"{escaped(remark.reason)}" for group in figures.groups for remark in group.remarks()]


def machine_line(figures: Figures) -> str:
    machines = figures.comparison.machines
    first = machines[0]
    together = lambda values: ", ".join(dict.fromkeys(values))
    return escaped(
        f"{first.cpu}, {first.cores} core{'s' if first.cores > 1 else ''}, "
        f"Linux {together(machine.kernel for machine in machines)}, "
        f"{together(machine.compiler for machine in machines)}, "
        f"{together(machine.date for machine in machines)}, "
        f"commit {together(machine.commit for machine in machines)}")


def markdown(figures: Figures) -> str:
    """All of it, without the markers."""
    lines = [machine_line(figures), ""]
    for layout in figures.main_layouts():
        where = layout.text if layout.ranks_per_host > 1 else f"{layout.text} (shared memory: processes)"
        lines += [f"Milliseconds for one allreduce of fp32 on {where}, median of the repetitions:", "",
                  *time_table(figures, layout), ""]
    is_any_once = any(ONCE in line for line in lines)
    lines += NOTES
    if is_any_once:
        lines.append(ONCE_NOTE)
    if any(shown_sizes(group.sizes) != group.sizes for group in figures.groups):
        lines.append(MORE_SIZES_NOTE)
    for layout in figures.main_layouts():
        rows = link_load_rows(figures, layout)
        if rows:
            lines += ["", *textwrap.wrap(f"{link_load_text(layout)}:", 100), "", *table(rows, text_columns=2)]
    lines += ["", "Size of the tensor from which on one bit beats the best system in full precision:", ""]
    lines += break_even_table(figures)
    problems = problem_lines(figures)
    if problems:
        lines += ["", *problems]
    return "\n".join(lines) + "\n"
