# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Compares the weight of the project with budget.txt, and prints it: budget.py ROOT

Exported functions, public headers and settings must be as many as the file says, so that a commit
that adds one says so there. No folder has more lines of code than its ceiling, nor has the product, whose share
of comments must not fall. Base names of sources must be unique, except for those that the file lists.
"""

import collections
import io
import pathlib
import re
import sys
import tokenize

from exports import DECLARATION
from sources import project_files

BUDGET = "tests/layout/budget.txt"
PRODUCT = ("bindings", "include", "kernels", "plugins", "src")
FOLDERS = (*PRODUCT, "perf", "tests")
STUDIES = ("perf", "studies")
SOURCES = {".h", ".hpp", ".c", ".cc", ".cu", ".cuh", ".py"}
LEAST_SHARE = 0.8  # of its ceiling that a folder has
COMMENT = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'""", re.DOTALL)  # or a literal
LAYOUT = {tokenize.ENCODING, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
SETTING = re.compile(r'(?:\.name = |BytesSetting\()"ONEBIT_\w+"')  # a row, or a function that makes one


class Budget:
    """What budget.txt says: figures, their ceilings, lines of folders, share of comments, shared base names."""

    def __init__(self, text: str):
        self.figures: dict[str, int] = {}
        self.ceilings: dict[str, int] = {}
        self.lines: dict[str, int] = {}
        self.comments = 0.0
        self.shared: dict[str, set[str]] = {}
        for line in text.splitlines():
            match line.split("#")[0].split():
                case []:
                    pass
                case ["shared", name, *folders]:
                    self.shared[name] = set(folders)
                case ["lines", folder, ceiling]:
                    self.lines[folder] = int(ceiling)
                case ["comments", share]:
                    self.comments = float(share)
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


def code_lines(text: str, is_python: bool) -> int:
    """The number of lines with more than a comment, or a docstring, on them."""
    if not is_python:
        rest = COMMENT.sub(lambda match: match[0] if match[0][0] in "\"'" else "\n" * match[0].count("\n"), text)
        return sum(1 for line in rest.splitlines() if line.strip())
    lines: set[int] = set()
    before = tokenize.ENCODING
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.NL):
            continue
        is_docstring = token.type == tokenize.STRING and before in LAYOUT
        if token.type not in LAYOUT | {tokenize.ENDMARKER} and not is_docstring:
            lines.update(range(token.start[0], token.end[0] + 1))
        before = token.type
    return len(lines)


def lines_of(root: pathlib.Path, paths: list[pathlib.PurePosixPath]) -> tuple[dict[str, int], dict[str, int]]:
    """Lines of code, and of comments, by folder: each folder of src/ and plugins/, perf/studies, the others whole."""
    code: collections.Counter[str] = collections.Counter()
    comments: collections.Counter[str] = collections.Counter()
    for path in paths:
        if path.parts[0] not in FOLDERS or path.suffix not in SOURCES:
            continue
        content = (root / path).read_bytes()
        if b"\0" not in content:
            text = content.decode(encoding="utf-8", errors="replace")
            has_parts = path.parts[0] in ("src", "plugins") and len(path.parts) > 2 or path.parts[:2] == STUDIES
            folder = "/".join(path.parts[:2 if has_parts else 1])
            count = code_lines(text, path.suffix == ".py")
            code[folder] += count
            comments[folder] += sum(1 for line in text.splitlines() if line.strip()) - count
    for lines in (code, comments):
        lines["product"] = sum(lines[folder] for folder in lines if folder.split("/")[0] in PRODUCT)
    return dict(code), dict(comments)


def line_problems(ceilings: dict[str, int], lines: dict[str, int]) -> list[str]:
    """Folders beyond their ceilings, or far below them: a ceiling with room to spare holds nothing back."""
    found = []
    for folder in sorted(ceilings.keys() | lines.keys()):
        count, ceiling = lines.get(folder, 0), ceilings.get(folder)
        if ceiling is None:
            found.append(f"{BUDGET} has no ceiling for {folder}: add the line: lines {folder} {nearest_ceiling(count)}")
        elif count > ceiling:
            found.append(f"{folder} has {count} lines of code, more than its ceiling of {ceiling}: take out as many, "
                         f"or raise the ceiling in {BUDGET} in the same commit and say why")
        elif count < LEAST_SHARE * ceiling:
            found.append(f"{folder} has {count} lines of code: lower its ceiling of {ceiling} in {BUDGET} to "
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
    code, comments = lines_of(root, paths)
    for folder, count in sorted(code.items()):
        print(f"{count:7d} lines of code in {folder}")
    share = 100 * comments["product"] / (code["product"] + comments["product"])
    print(f"{share:7.1f} % of the product's lines are comments")
    budget = Budget((root / BUDGET).read_text(encoding="utf-8"))
    found = problems(budget, figures, shared_names(paths)) + line_problems(budget.lines, code)
    if share < budget.comments:
        found.append(f"{share:.1f} % of the product's lines are comments, less than {budget.comments} %: write those "
                     "that a reader of the new code needs")
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
