# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Checks docs/architecture.md and the READMEs of the folders of src/ against the sources.

    architecture_page.py ROOT             prints what does not fit, and exits with 1 if there is something
    architecture_page.py ROOT --picture   prints the picture that the page must have

The page's picture is that of MAY_INCLUDE in include_rules.py, each `file:function` that it names is defined
there, and it is short. Each folder has a README, no longer than a dozen lines, whose line "May include" is
that of MAY_INCLUDE.
"""

import pathlib
import re
import sys

from include_rules import MAY_INCLUDE

PAGE = "docs/architecture.md"
MOST_PAGE_LINES, MOST_README_LINES = 150, 12
PICTURE = re.compile(r"```mermaid\n(.*?)```", re.DOTALL)
STATION = re.compile(r"`((?:src|plugins|kernels)/[\w/.-]+):(\w+)`")
LEAST_STATIONS = 12


def box(folder: str) -> str:
    """The last part of its path; several folders have the plural."""
    return folder.rsplit("/", maxsplit=1)[-1].replace("_*", "s")


def picture(may_include: dict[str, list[str]]) -> str:
    """The folders and their arrows, in Mermaid's notation."""
    lines = ["flowchart TD"]
    for folder, others in may_include.items():
        arrows = f" --> {' & '.join(map(box, others))}" if others else ""
        lines.append(f'  {box(folder)}["{folder}"]{arrows}')
    return "\n".join(lines) + "\n"


def defines(text: str, function: str) -> bool:
    """Tells if a C++ source has the function with a body: as a member or not, at the beginning of a line."""
    return re.search(rf"^\S[^;=(]*\b{function}\((?:[^;{{]|\n)*?\{{", text, re.MULTILINE) is not None


def page_problems(root: pathlib.Path, text: str) -> list[str]:
    found = []
    shown = PICTURE.search(text)
    if shown is None or shown[1] != picture(MAY_INCLUDE):
        found.append("its picture is not that of include_rules.py: `architecture_page.py . --picture` prints it")
    stations = STATION.findall(text)
    if len(stations) < LEAST_STATIONS:
        found.append(f"it names {len(stations)} functions, not {LEAST_STATIONS} at the least")
    for file, function in stations:
        path = root / file
        if not path.is_file():
            found.append(f"{file}:{function}: there is no such file")
        elif not defines(path.read_text(encoding="utf-8"), function):
            found.append(f"{file}:{function}: the file does not define it")
    if (lines := text.count("\n")) > MOST_PAGE_LINES:
        found.append(f"it has {lines} lines, more than {MOST_PAGE_LINES}")
    return found


def readme_problems(folder: str, text: str) -> list[str]:
    found = []
    others = ", ".join(f"`{other}`" for other in MAY_INCLUDE[folder]) or "nothing"
    if f"\nMay include: {others}.\n" not in text:
        found.append(f"it must have the line 'May include: {others}.', as include_rules.py has it")
    for words in ("\nOwns: ", "\nMust never know: "):
        if words not in text:
            found.append(f"it has no line that begins with '{words.strip()}'")
    if (lines := text.count("\n")) > MOST_README_LINES:
        found.append(f"it has {lines} lines, more than {MOST_README_LINES}")
    return found


def problems(root: pathlib.Path) -> list[str]:
    found = [f"{PAGE}: {each}" for each in page_problems(root, (root / PAGE).read_text(encoding="utf-8"))]
    for folder in MAY_INCLUDE:
        if not folder.startswith("src/"):
            continue
        readme = root / folder / "README.md"
        each = readme_problems(folder, readme.read_text(encoding="utf-8")) if readme.is_file() else ["is missing"]
        found += [f"{folder}/README.md: {problem}" for problem in each]
    return found


def main() -> int:
    if sys.argv[2:] == ["--picture"]:
        print(picture(MAY_INCLUDE), end="")
        return 0
    found = problems(pathlib.Path(sys.argv[1]).resolve())
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
