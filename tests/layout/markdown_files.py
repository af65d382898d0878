# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The Markdown pages for users, and what tests look at in a page."""

import pathlib
import re

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def code_blocks(text: str) -> list[tuple[str, str]]:
    """(language, content) of every block, in order; the language may be empty."""
    return [(match[1], match[2]) for match in FENCE.finditer(text)]


def user_pages(root: pathlib.Path) -> list[pathlib.Path]:
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def table_rows(text: str) -> list[list[str]]:
    """The cells of every row of every table, heads included, lines below heads not."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")]
            for line in text.splitlines() if line.startswith("|")]
    return [cells for cells in rows if any(set(cell) - set(":-") for cell in cells)]
