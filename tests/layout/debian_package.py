# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Compares cmake/debian with the project: debian_package.py ROOT VERSION LIBRARY

The list of symbols is what the library exports, under its version node and SONAME, and none is newer than
VERSION. The changelog begins with VERSION and a revision. What the packages need to be built is in
debian-packages.txt, so that .ci/ecosystem can install it.
"""

import pathlib
import re
import sys

from exports import exported_symbols

SYMBOL = re.compile(r"^ (\S+)@(\S+) (\S+)$")
FROM_DEBHELPER = {"debhelper-compat": "debhelper", "dh-sequence-python3": "dh-python"}


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def symbol_problems(text: str, version: str, exported: set[str]) -> list[str]:
    major = version.split(".")[0]
    head, *lines = text.splitlines()
    node = f"ONEBIT_{major}"
    found = []
    if head != f"libonebit.so.{major} libonebit{major} #MINVER#":
        found.append(f"the first line is not for libonebit.so.{major}: {head}")
    listed = {f"{match[1]}@{match[2]}": match[3] for match in map(SYMBOL.match, lines) if match}
    if listed.pop(f"{node}@{node}", None) is None:
        found.append(f"there is no line for the version node: {node}@{node}")
    found += [f"not exported, so delete the line: {name}" for name in listed if name not in exported]
    found += [f"exported, so add the line:  {name} {version}" for name in exported if name not in listed]
    found += [f"{name} is said to be there since {since}, after {version}" for name, since in listed.items()
              if numbers(since) > numbers(version)]
    return found


def changelog_problems(text: str, version: str) -> list[str]:
    first = re.match(r"onebit \(([\d.]+)-\d+\)", text)
    return [] if first and first[1] == version else [f"the first entry is not for {version}"]


def build_packages(control: str) -> set[str]:
    """Packages of Build-Depends that a build for the own architecture takes."""
    field = re.search(r"^Build-Depends:(.*\n(?: .*\n)*)", control, re.MULTILINE)[1]
    names = set()
    for item in field.split(","):
        if "<cross>" in item:
            continue
        name = re.match(r"\s*([\w.+-]+)", item)[1]
        names.add(FROM_DEBHELPER.get(name, name))
    return names


def main() -> int:
    root, version, library = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    folder = root / "cmake/debian"

    def read(name: str) -> str:
        return (folder / name).read_text(encoding="utf-8")

    symbols = f"libonebit{version.split('.')[0]}.symbols"
    known = {line.split()[1] for line in (root / "cmake/debian-packages.txt").read_text(encoding="utf-8").splitlines()
             if line and not line.startswith("#")}
    problems = [f"{symbols}: {problem}"
                for problem in symbol_problems(read(symbols), version, exported_symbols(library))]
    problems += [f"changelog: {problem}" for problem in changelog_problems(read("changelog"), version)]
    problems += [f"control: {name} is not in cmake/debian-packages.txt"
                 for name in build_packages(read("control")) - known]
    for problem in sorted(problems):
        print(f"cmake/debian/{problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
