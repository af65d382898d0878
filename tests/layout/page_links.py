# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Checks that links between pages lead to a file, and to a heading in it: page_links.py ROOT"""

import pathlib
import re
import sys

from markdown_files import FENCE
from sources import project_files

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def anchors(text: str) -> set[str]:
    """Names of the headings, as GitHub makes them."""
    headings = HEADING.findall(FENCE.sub("", text))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def problems(page: pathlib.Path, text: str) -> list[str]:
    found = []
    for link in LINK.findall(FENCE.sub("", text)):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists():
            found.append(f"{link}: there is no such file")
        elif anchor and anchor not in anchors(target.read_text(encoding="utf-8")):
            found.append(f"{link}: there is no such heading")
    return found


def main() -> int:
    root = pathlib.Path(sys.argv[1]).resolve()
    status = 0
    for path in project_files(root):
        if path.suffix == ".md":
            for problem in problems(root / path, (root / path).read_text(encoding="utf-8")):
                print(f"{path}: {problem}")
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
