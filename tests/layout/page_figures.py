# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the figures that pages show: page_figures.py ROOT

docs/performance.md holds what the quickstart measured, and on which machine. The figures of the table in the
README, and of that in docs/trainers.md, are those of a table in docs/performance.md or perf/studies/ddp/README.md, so that
no measurement leaves an old one behind there. Figures differ from machine to machine, so nothing compares them with a
new measurement.
"""

import pathlib
import re
import sys

from markdown_files import table_rows

SUMMARIES, MEASURED = ["README.md", "docs/trainers.md"], ["docs/performance.md", "perf/studies/ddp/README.md"]
BEGIN, END = "<!-- quickstart begin -->", "<!-- quickstart end -->"
MACHINE = re.compile(r"\S.*, \d+ cores?, .+; \d+ ranks .*")  # as quickstart_report.py prints it
MIN_ROWS = 2
TIME = re.compile(r"([\d.]+) m?s")
ROUNDING = 0.005  # of a quotient of figures that are rounded themselves


def quickstart_problems(page: str) -> list[str]:
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        return [f"needs one line {BEGIN} and one line {END}"]
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    lines = page[begin:end].strip().splitlines()
    if not lines:
        return ["the quickstart's figures are missing: ./perf/quickstart --markdown prints them"]
    found = []
    if not MACHINE.fullmatch(lines[0]):
        found.append(f"this does not name the machine, its cores, compiler and ranks: {lines[0]}")
    rows = [line for line in lines if re.match(r"\|.*\d.*\|$", line)]
    if len(rows) < MIN_ROWS:
        found.append(f"only {len(rows)} rows with figures")
    return found


def summary_problems(summary: str, measured: set[str]) -> list[str]:
    """`summary` has rows of what, time in full precision, time of onebit, quotient; `measured` the cells of
    all tables that may have these times."""
    rows = [cells for cells in table_rows(summary) if len(cells) == 4 and cells[3]]
    found = [] if rows else ["has no table of four columns"]
    for what, *figures in rows:
        times = [match[1] for cell in figures[:2] if (match := TIME.fullmatch(cell))]
        if len(times) != 2:
            found.append(f"{what}: needs two times, like: 3.1 ms")
            continue
        found += [f"{what}: {time} is in no table of {' or '.join(MEASURED)}" for time in times
                  if time not in measured]
        quotient = float(times[0]) / float(times[1])
        if not re.fullmatch(r"[\d.]+x", figures[2]) or abs(float(figures[2][:-1]) / quotient - 1) > ROUNDING:
            found.append(f"{what}: {times[0]} over {times[1]} is {quotient:.3g}x, not {figures[2]}")
    return found


def main() -> int:
    root = pathlib.Path(sys.argv[1])
    pages = {name: (root / name).read_text(encoding="utf-8") for name in [*SUMMARIES, *MEASURED]}
    measured = {cell for name in MEASURED for cells in table_rows(pages[name]) for cell in cells}
    found = [f"{name}: {problem}" for name in SUMMARIES for problem in summary_problems(pages[name], measured)]
    found += [f"{MEASURED[0]}: {problem}" for problem in quickstart_problems(pages[MEASURED[0]])]
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
