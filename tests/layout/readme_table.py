# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Checks that the README holds what the quickstart measured, and where: readme_table.py README

The figures themselves differ from machine to machine, so nothing compares them.
"""

import pathlib
import re
import sys

BEGIN, END = "<!-- quickstart begin -->", "<!-- quickstart end -->"
MACHINE = re.compile(r"\S.*, \d+ cores?, .+; \d+ ranks .*")  # as quickstart_report.py prints it
MIN_ROWS = 2


def problems(readme: str) -> list[str]:
    if readme.count(BEGIN) != 1 or readme.count(END) != 1:
        return [f"needs one line {BEGIN} and one line {END}"]
    begin, end = readme.index(BEGIN) + len(BEGIN), readme.index(END)
    lines = readme[begin:end].strip().splitlines()
    if not lines:
        return ["the quickstart's figures are missing: ./perf/quickstart --readme prints them"]
    found = []
    if not MACHINE.fullmatch(lines[0]):
        found.append(f"this does not name the machine, its cores, compiler and ranks: {lines[0]}")
    rows = [line for line in lines if re.match(r"\|.*\d.*\|$", line)]
    if len(rows) < MIN_ROWS:
        found.append(f"only {len(rows)} rows with figures")
    return found


def main() -> int:
    found = problems(pathlib.Path(sys.argv[1]).read_text())
    for problem in found:
        print(f"{sys.argv[1]}: {problem}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
