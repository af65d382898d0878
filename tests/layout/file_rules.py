# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Checks every source file's licence lines, size and white space: file_rules.py ROOT [FILE...]"""

import pathlib
import re
import sys

from sources import project_files

SPDX = re.compile(
    r"(#!.*\n)?"
    r"(?P<begin>//|/\*|#|<!--) SPDX-FileCopyrightText: The onebit authors\n"
    r"(//| \*|#|    ) SPDX-License-Identifier: Apache-2\.0(\n| -->)")
SUFFIXES = {".h", ".hpp", ".c", ".cc", ".cu", ".cuh", ".py", ".sh", ".cmake", ".in", ".map"}
MAX_LINES = 800  # nine files in ten stay under 400; beyond this there are two ideas in one file


def is_source(path: pathlib.PurePosixPath, text: str) -> bool:
    return path.suffix in SUFFIXES or path.name == "CMakeLists.txt" or text.startswith("#!")


def violations(root: pathlib.Path, paths: list[pathlib.PurePosixPath]) -> list[str]:
    found = []
    for path in paths:
        content = (root / path).read_bytes()
        if b"\0" in content:
            continue
        text = content.decode("utf-8", errors="replace")
        if not is_source(path, text):
            continue
        if not SPDX.match(text):
            found.append(f"{path}:1: the file does not begin with the two SPDX lines")
        lines = text.split("\n")
        if len(lines) - 1 > MAX_LINES:
            found.append(f"{path}:{MAX_LINES}: {len(lines) - 1} lines, more than {MAX_LINES}")
        found += [f"{path}:{number}: white space at the end of the line"
                  for number, line in enumerate(lines, start=1) if line != line.rstrip()]
        if text and not text.endswith("\n"):
            found.append(f"{path}:{len(lines)}: no newline at the end of the file")
    return found


def main() -> int:
    root = pathlib.Path(sys.argv[1]).resolve()
    paths = [pathlib.PurePosixPath(name) for name in sys.argv[2:]] or project_files(root)
    found = violations(root, paths)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
