# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Says which symbols keep programs and libraries from an older system: newest_symbols.py FILE...

The wheel is for manylinux_2_34, and so for Ubuntu 22.04, RHEL 9 and Amazon Linux 2023. A build on Debian 12 cannot be
for older systems: what it links has the version 2.34, in which glibc took in libpthread. Other files than programs
and libraries may be given, too.
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
from typing import Iterable, Iterator

#: The newest versions of symbols that the systems of this tag are sure to have, as auditwheel lists them.
TAG = "manylinux_2_34"
NEWEST = {"GLIBC": "2.34", "GLIBCXX": "3.4.29", "CXXABI": "1.3.13", "GCC": "11.0"}

UNDEFINED = re.compile(r"\bUND\s+(?P<symbol>\S.*?)@(?P<library>[A-Z]+)_(?P<version>\d[\d.]*)")


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def problems(file: pathlib.Path) -> Iterator[str]:
    """What is too new for the tag in a program or a shared object."""
    command = ["readelf", "--dyn-syms", "--wide", "--demangle", str(file)]
    table = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for match in UNDEFINED.finditer(table):
        library, version = match["library"], match["version"]
        if library in NEWEST and numbers(version) > numbers(NEWEST[library]):
            yield (f"{file} needs {match['symbol']} of {library}_{version}, "
                   f"but {TAG} ends at {library}_{NEWEST[library]}")


def is_elf(file: pathlib.Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(4) == b"\x7fELF"


def main(names: Iterable[str]) -> int:
    files = [file for file in map(pathlib.Path, names) if is_elf(file)]
    if not files:
        print("no program or library among the files to check")
        return 1
    found = [problem for file in files for problem in problems(file)]
    print("\n".join(found) or f"{len(files)} programs and libraries need no more than {TAG} has")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
