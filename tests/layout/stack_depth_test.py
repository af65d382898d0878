# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Counts the functions between a call and the network: stack_depth_test.py ONEBIT_RUN ALL_REDUCE_PERF

Runs an allreduce of 256 KiB over TCP with rank 0 under gdb, which stops at sendmsg. Functions that the compiler
has inlined are not on the stack and do not count. Exits with 77, which means skipped, where there is no gdb or
it may not trace.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

LIMIT = 12
STOPS = 40
ENTRY, EXIT, PAYLOAD = "onebitAllReduce", "TcpLink::Send", "StartSends"


def stacks(launcher: str, tool: str) -> list[list[str]]:
    """Returns the functions on the stack of rank 0 at each sendmsg, the innermost first."""
    environment = {**os.environ, "ONEBIT_TRANSPORT": "socket", "ONEBIT_SOCKET_SHARED_MEMORY": "0",
                   "ONEBIT_COLLECTIVE_TIMEOUT_MS": "100000", "ONEBIT_CONNECT_TIMEOUT_MS": "100000",
                   "DEBUGINFOD_URLS": ""}
    with tempfile.TemporaryDirectory() as path:
        script, wrapper = pathlib.Path(path) / "script", pathlib.Path(path) / "wrapper"
        script.write_text("set pagination off\nset breakpoint pending on\nset print frame-arguments none\n"
                          "break sendmsg\nrun\n" + "backtrace 40\ncontinue\n" * STOPS + "delete\ncontinue\n")
        wrapper.write_text(f'[ "$RANK" = 0 ] || exec "$@"\nexec gdb -batch -nx -x {script} --args "$@"\n')
        result = subprocess.run(
            [launcher, "-n", "2", "--", "sh", str(wrapper), tool, "-b", "256K", "-e", "256K", "-n", "4", "-w", "0",
             "--mode", "ef", "--no-in-place", "-c", "0"],
            capture_output=True, text=True, env=environment, timeout=100, stdin=subprocess.DEVNULL)
    output = result.stdout
    refusal = re.search(".*(ptrace|not permitted).*", output + result.stderr)
    if refusal and "hit Breakpoint" not in output:
        print("skipped: gdb may not trace a program here:", refusal[0])
        sys.exit(77)
    found: list[list[str]] = []
    for line in output.splitlines():
        frame = re.search(r"#(\d+) +(?:0x[0-9a-f]+ in )?(\w.*) \(", line)
        if not frame:
            continue
        if frame[1] == "0":
            found.append([])
        found[-1].append(frame[2])
    assert found, result
    return found


def main() -> None:
    launcher, tool = sys.argv[1:]
    if not shutil.which("gdb"):
        print("skipped: there is no gdb")
        sys.exit(77)
    depths = {}
    for stack in stacks(launcher, tool):
        names = [frame.split("(")[0].strip() for frame in stack]
        entries = [i for i, name in enumerate(names) if name == ENTRY]
        exits = [i for i, name in enumerate(names) if name.endswith(EXIT)]
        if entries and exits and any(name.endswith(PAYLOAD) for name in names):
            depths[entries[0] - exits[0] + 1] = names[exits[0]:entries[0] + 1]
    assert depths, "no payload was sent from the calling thread"
    deepest = max(depths)
    print(f"{deepest} functions between the call and sendmsg, of at most {LIMIT}:")
    print("\n".join(reversed(depths[deepest])))
    assert deepest <= LIMIT


if __name__ == "__main__":
    main()
