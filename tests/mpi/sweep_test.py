# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks of a launcher sweep over transport mpi, correctly, with one report:
sweep_test.py ABI ALL_REDUCE_PERF TOOL...: the other tools more briefly."""

import re
import subprocess
import sys

import launch

SWEEP = ["-b", "1K", "-e", "1M", "-f", "32", "-n", "3", "-w", "1", "--transport", "mpi",
         "-c", "1"]


def main() -> int:
    abi, program, *others = sys.argv[1:]
    for mode in ("ef", "dense"):
        output = launch.succeed(abi, 4, [program, *SWEEP, "--mode", mode])
        assert output.count("Collective test concluded") == 1, output
        assert re.search(r"Out of bounds values : 0 OK", output), output
        assert "transport: mpi nranks: 4" in output, output
    for other in others:
        for ranks in (3, 4):
            output = launch.succeed(abi, ranks, [other, *SWEEP, "--mode", "ef"])
            assert re.search(r"Out of bounds values : 0 OK", output), output
    # MPI's own allreduce: what moves is in time, however long the whole takes.
    output = launch.succeed(abi, 3, [program, "-b", "192M", "-e", "192M", "-n", "1", "-w", "0",
                                     "-c", "0", "--mode", "dense", "--transport", "mpi"],
                            ONEBIT_MPI_NATIVE_DENSE="1", ONEBIT_COLLECTIVE_TIMEOUT_MS="400")
    assert output.count("Collective test concluded") == 1, output
    done = subprocess.run([program, "--procs", "2", *SWEEP], env=launch.environment(),
                          capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "mpirun" in done.stderr, (done.stdout, done.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
