# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Checks libonebit-transport-nccl.so from outside: plugin_file_test.py PLUGIN

It exports the one function that the library asks for, and needs neither NCCL nor CUDA to be opened.
"""

import re
import subprocess
import sys

MAY_NEED = re.compile(
    r"(libc|libm|libstdc\+\+|libgcc_s|libasan|libubsan|libtsan|ld-linux-[\w-]+)\.so(\.\d+)*")


def output_of(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> int:
    plugin = sys.argv[1]
    exported = [line.split()[0]
                for line in output_of("nm", "-D", "--defined-only", "-P", plugin).splitlines()]
    problems = [] if exported == ["onebitTransportGet"] else [f"exports {exported}"]
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "-d", "-W", plugin))
    problems += [f"needs {name}" for name in needed if not MAY_NEED.fullmatch(name)]
    for problem in problems:
        print(f"{plugin}: {problem}")
    return 1 if problems or not needed else 0


if __name__ == "__main__":
    sys.exit(main())
