# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Puts the tables between two markers of a Markdown file."""

from reporting.fields import Malformed

BEGIN, END = "<!-- compare:begin -->", "<!-- compare:end -->"


def position(lines: list[str], marker: str, name: str) -> int:
    """Of the only line that is the marker."""
    found = [index for index, line in enumerate(lines) if line.rstrip("\r\n") == marker]
    if len(found) != 1:
        raise Malformed(f"{name}: needs the line {marker} once, has it {len(found)} times: put {BEGIN} and "
                        f"{END} on lines of their own around the place for the tables")
    return found[0]


def updated(text: str, tables: str, name: str) -> str:
    """`text` with `tables` in place of what was between the markers. Raises Malformed."""
    lines = text.splitlines(keepends=True)
    begin, end = position(lines, BEGIN, name), position(lines, END, name)
    if end < begin:
        raise Malformed(f"{name}: {END} stands before {BEGIN}")
    return "".join(lines[:begin + 1]) + tables + "".join(lines[end:])
