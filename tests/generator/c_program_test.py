# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Compiles cases that random_calls prints as C programs, and runs them.

    c_program_test.py RANDOM_CALLS COMPILER INCLUDE_FOLDER LIBRARY

Each program compares an output with the bytes that the scalar model says, so it must return 0; with
bytes that are wrong it must not.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

CASES = [
    "ranks=3 events=none,rank_state,mask,global_state,revert | collective=allreduce codec=sign"
    " mode=ef count=1003 op=avg block=64 cuts=3 mask=1 offset=1 in_place=1",
    "ranks=2 grouped=1 streamed=1 events=none,reset | collective=reduce_scatter codec=fp4 mode=ef"
    " type=f16 count=777 in_place=1 | collective=all_gather codec=int8 mode=ef type=bf16 count=65",
    "ranks=3 events=none,none | collective=all_to_all_v codec=int8_stochastic type=bf16 count=501"
    " block=4 | collective=broadcast type=i64 count=33 root=1",
    "ranks=3 streamed=1 events=none,rank_state | collective=send_recv codec=int2 mode=ef count=300"
    " mask=1 root=1",
    "ranks=2 one_thread=1 grouped=1 segment=1000 events=none,nan,none | collective=all_to_all"
    " codec=sign mode=ef count=3001 block=0 rule=l1",
    "ranks=4 events=none,none | collective=allreduce codec=randk mode=ef count=5001 k=5 hops=2"
    " | collective=allreduce codec=uint8mm count=77 op=avg weights=1",
    "ranks=5 hosts=pairs one_exchange=0 two_level_bytes=0 events=none,global_state | collective=allreduce codec=fp4"
    " mode=ef op=avg count=1003 levels=2 | collective=reduce_scatter type=f16 op=avg count=65",
]


def status_of(program: str, compiler: str, folder: pathlib.Path, include: str, library: str) -> int:
    source, binary = folder / "finding.c", folder / "finding"
    source.write_text(program)
    subprocess.run([compiler, "-std=gnu11", "-Wall", "-Werror", "-Wno-unused", f"-I{include}", source,
                    library, "-lpthread", f"-Wl,-rpath,{pathlib.Path(library).parent}", "-o", binary], check=True)
    return subprocess.run([binary], timeout=120).returncode


def main() -> int:
    random_calls, compiler, include, library = sys.argv[1:]
    failures = 0
    with tempfile.TemporaryDirectory() as name:
        for case in CASES:
            program = subprocess.run([random_calls, "--case", case, "--program"], check=True, text=True,
                                     stdout=subprocess.PIPE).stdout
            status = status_of(program, compiler, pathlib.Path(name), include, library)
            if status != 0:
                print(f"status {status}, not 0: {case}")
                failures += 1
        wrong = re.sub(r'(Expect\(0, 0, ")(..)', lambda found: f"{found[1]}{int(found[2], 16) ^ 255:02x}", program)
        if status_of(wrong, compiler, pathlib.Path(name), include, library) == 0:
            print("a program with wrong bytes returned 0")
            failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
