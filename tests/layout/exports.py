# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Checks libonebit.so from outside: exports.py LIBRARY MAJOR_VERSION HEADER...

It exports exactly the functions that the public headers declare, its SONAME carries the major
version, and it needs nothing at run time that the core must not need.
"""

import pathlib
import re
import subprocess
import sys

DECLARATION = re.compile(r"^ONEBIT_API\b[^(;]*?\b(\w+)\s*\(", re.MULTILINE)

# Highway is here because Debian has it as a shared library only; libsodium gets its security fixes
# from the distribution; hwloc is used where it was found, and knows machines that are not built yet.
MAY_NEED = re.compile(
    r"(libc|libm|libstdc\+\+|libgcc_s|libhwy|libsodium|libhwloc|ld-linux-[\w-]+)\.so(\.\d+)*")


def output_of(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def exported_symbols(library: str) -> set[str]:
    """What the library exports, as name@version, the version node itself left out."""
    lines = output_of("nm", "-D", "--defined-only", "-P", library).splitlines()
    return {fields[0].replace("@@", "@") for fields in map(str.split, lines) if fields[1] != "A"}


def main() -> int:
    library, major, *headers = sys.argv[1:]
    problems = []

    declared = {name for header in headers
                for name in DECLARATION.findall(pathlib.Path(header).read_text())}
    exported = {symbol.split("@")[0] for symbol in exported_symbols(library)}
    problems += [f"exported, but in no public header: {name}" for name in exported - declared]
    problems += [f"declared, but not exported: {name}" for name in declared - exported]

    dynamic = output_of("readelf", "-d", "-W", library)
    problems += [f"needs {name}" for name in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
                 if not MAY_NEED.fullmatch(name)]
    if f"soname: [libonebit.so.{major}]" not in dynamic:
        problems.append(f"the SONAME is not libonebit.so.{major}")

    if "NODELETE" not in dynamic:
        problems.append("dlclose would unmap it under its control thread (-z nodelete)")

    for problem in sorted(problems):
        print(f"{library}: {problem}")
    return 1 if problems or not declared else 0


if __name__ == "__main__":
    sys.exit(main())
