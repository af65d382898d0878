# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Checks that links between pages lead to a file, and to a heading in it: page_links.py ROOT

The package's README is also shown by PyPI, where the other pages are not: it must have no such links.
"""

import pathlib
import re
import sys
import tomllib

from markdown_files import FENCE
from sources import project_files

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def anchors(text: str) -> set[str]:
    """Names of the headings, as GitHub makes them."""
    headings = HEADING.findall(FENCE.sub("", text))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def problems(page: pathlib.Path, text: str, stands_alone: bool = False) -> list[str]:
    found = []
    for link in LINK.findall(FENCE.sub("", text)):
        if "://" in link:
            continue
        if stands_alone and not link.startswith("#"):
            found.append(f"{link}: it is dead on PyPI, which has this page only: give the path as text")
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
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    status = 0
    for path in project_files(root):
        if path.suffix == ".md":
            text = (root / path).read_text(encoding="utf-8")
            for problem in problems(root / path, text, stands_alone=str(path) == project["readme"]):
                print(f"{path}: {problem}")
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
