# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Checks libraries from outside: needed.py PLUGIN LIBRARY...

No LIBRARY needs anything of CUDA to be loaded, the PLUGIN neither. The PLUGIN exports the one function
that the library asks for, and imports nothing of CUDA.
"""

import re
import subprocess
import sys

EXPORTED = {"onebitDeviceGet"}
CUDA = re.compile(r"lib(cuda|cudart|nccl|nvidia|nvrtc|nvJitLink)[^/]*\.so")
CUDA_FUNCTION = re.compile(r"cu[A-Z]|cuda[A-Z]|nccl[A-Z]")


def output_of(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def names(library: str, which: str) -> set[str]:
    return {line.split()[0].split("@")[0]
            for line in output_of("nm", "-D", which, "-P", library).splitlines()}


def main() -> int:
    plugin, *libraries = sys.argv[1:]
    problems = []
    for library in [plugin, *libraries]:
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "-d", "-W", library))
        if not needed:
            problems.append(f"{library}: readelf shows nothing that it needs")
        problems += [f"{library}: needs {name}" for name in needed if CUDA.match(name)]
        problems += [f"{library}: imports {name}"
                     for name in names(library, "--undefined-only") if CUDA_FUNCTION.match(name)]
    exported = names(plugin, "--defined-only")
    problems += [f"{plugin}: exports {name}" for name in exported - EXPORTED]
    problems += [f"{plugin}: does not export {name}" for name in EXPORTED - exported]
    for problem in sorted(problems):
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
