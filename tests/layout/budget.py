# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Compares the weight of the project with budget.txt, and prints it: budget.py ROOT

Exported functions, public headers and settings must be as many as the file says, so that a commit
that adds one says so there. No folder has more lines than its ceiling. Base names of sources must be
unique, except for those that the file lists.
"""

import collections
import pathlib
import re
import sys

from exports import DECLARATION
from sources import project_files

BUDGET = "tests/layout/budget.txt"
PRODUCT = ("bindings", "include", "kernels", "perf", "plugins", "src")
FOLDERS = (*PRODUCT, "tests")
STUDIES = ("perf", "studies")
SOURCES = {".h", ".hpp", ".c", ".cc", ".cu", ".cuh", ".py"}
LEAST_SHARE = 0.8  # of its ceiling that a folder has
SETTING = re.compile(r'(?:\.name = |BytesSetting\()"ONEBIT_\w+"')  # a row, or a function that makes one


class Budget:
    """What budget.txt says: figures, their ceilings, lines of folders, and the folders that share a base name."""

    def __init__(self, text: str):
        self.figures: dict[str, int] = {}
        self.ceilings: dict[str, int] = {}
        self.lines: dict[str, int] = {}
        self.shared: dict[str, set[str]] = {}
        for line in text.splitlines():
            match line.split("#")[0].split():
                case []:
                    pass
                case ["shared", name, *folders]:
                    self.shared[name] = set(folders)
                case ["lines", folder, ceiling]:
                    self.lines[folder] = int(ceiling)
                case [name, figure]:
                    self.figures[name] = int(figure)
                case [name, figure, "of", ceiling]:
                    self.figures[name], self.ceilings[name] = int(figure), int(ceiling)
                case _:
                    raise ValueError(f"{BUDGET}: cannot read the line: {line}")


def figures_of(root: pathlib.Path, paths: list[pathlib.PurePosixPath]) -> dict[str, int]:
    """The counts that the budget limits."""
    headers = [path for path in paths if path.parts[:2] == ("include", "onebit")]
    functions = {name for path in headers
                 for name in DECLARATION.findall((root / path).read_text(encoding="utf-8"))}
    settings = sum(len(SETTING.findall((root / path).read_text(encoding="utf-8")))
                   for path in paths if path.parts[0] in ("src", "plugins") and path.suffix == ".cc")
    return {"functions": len(functions), "headers": len(headers), "settings": settings}


def shared_names(paths: list[pathlib.PurePosixPath]) -> dict[str, set[str]]:
    """Base names of sources in more than one folder, with these folders. X.h, X-inl.h and X.cc
    of a folder are one idea; so are the spellings of a kernel in all folders of kernels/."""
    folders = collections.defaultdict(set)
    for path in paths:
        if path.parts[0] in FOLDERS and path.suffix in SOURCES and path.name != "__init__.py":
            folder = "kernels" if path.parts[0] == "kernels" else str(path.parent)
            folders[path.stem.removesuffix("-inl")].add(folder)
    return {name: where for name, where in folders.items() if len(where) > 1}


def problems(budget: Budget, figures: dict[str, int], shared: dict[str, set[str]]) -> list[str]:
    """What differs from the budget, each with what to do about it."""
    found = []
    for name, figure in figures.items():
        ceiling = budget.ceilings.get(name)
        if name not in budget.figures:
            found.append(f"{BUDGET} says nothing of {name}: add the line: {name} {figure}")
        elif figure != budget.figures[name]:
            found.append(f"there are {figure} {name}, but {BUDGET} says {budget.figures[name]}: if that "
                         "is on purpose, change the file in the same commit and say why")
        if ceiling is not None and figure > ceiling:
            found.append(f"there are {figure} {name}, more than the ceiling of {ceiling}: remove one, "
                         "or talk about the ceiling first")
    for name, folders in sorted(shared.items()):
        for folder in sorted(folders - budget.shared.get(name, set())):
            others = ", ".join(sorted(folders - {folder}))
            found.append(f"{folder}/{name}: {others} has a file of this base name, too: find a name "
                         "that says what is special about this one")
    for name, folders in sorted(budget.shared.items()):
        if name not in shared:
            found.append(f"{BUDGET}: no folders share the base name {name} any more: delete the line")
            continue
        for folder in sorted(folders - shared[name]):
            found.append(f"{BUDGET}: {folder} has no file of the base name {name} any more: delete it "
                         "from the line")
    return found


def lines_of(root: pathlib.Path, paths: list[pathlib.PurePosixPath]) -> dict[str, int]:
    """Lines of sources by folder: each folder of src/ and plugins/, perf/studies, and the others whole."""
    lines: collections.Counter[str] = collections.Counter()
    for path in paths:
        if path.parts[0] not in FOLDERS or path.suffix not in SOURCES:
            continue
        content = (root / path).read_bytes()
        if b"\0" not in content:
            has_parts = path.parts[0] in ("src", "plugins") and len(path.parts) > 2 or path.parts[:2] == STUDIES
            lines["/".join(path.parts[:2 if has_parts else 1])] += content.count(b"\n")
    return dict(lines)


def line_problems(ceilings: dict[str, int], lines: dict[str, int]) -> list[str]:
    """Folders beyond their ceilings, or far below them: a ceiling with room to spare holds nothing back."""
    found = []
    for folder in sorted(ceilings.keys() | lines.keys()):
        count, ceiling = lines.get(folder, 0), ceilings.get(folder)
        if ceiling is None:
            found.append(f"{BUDGET} has no ceiling for {folder}: add the line: lines {folder} {nearest_ceiling(count)}")
        elif count > ceiling:
            found.append(f"{folder} has {count} lines, more than its ceiling of {ceiling}: take out as many, or raise "
                         f"the ceiling in {BUDGET} in the same commit and say why")
        elif count < LEAST_SHARE * ceiling:
            found.append(f"{folder} has {count} lines: lower its ceiling of {ceiling} in {BUDGET} to "
                         f"{nearest_ceiling(count)}")
    return found


def nearest_ceiling(count: int) -> int:
    """Leaves room for five lines in a hundred."""
    return -(-count * 105 // 1000) * 10


def main() -> int:
    root = pathlib.Path(sys.argv[1]).resolve()
    paths = project_files(root)
    figures = figures_of(root, paths)
    for name, figure in figures.items():
        print(f"{figure:7d} {name}")
    lines = lines_of(root, paths)
    for folder, count in sorted(lines.items()):
        print(f"{count:7d} lines in {folder}")
    product = sum(count for folder, count in lines.items()
                  if folder.split("/")[0] in PRODUCT and not folder.startswith("perf"))
    print(f"{product:7d} lines of product (bindings, include, kernels, plugins, src)")
    budget = Budget((root / BUDGET).read_text(encoding="utf-8"))
    found = problems(budget, figures, shared_names(paths)) + line_problems(budget.lines, lines)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
