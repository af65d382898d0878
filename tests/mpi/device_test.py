# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks of a launcher sweep on device memory over transport mpi, on the stand-in for CUDA:
device_test.py ABI ALL_REDUCE_PERF STAND_IN_OF_CUDA

The device compresses, and packets go through the host.
"""

import os
import pathlib
import re
import sys

import mpi_launch

SWEEP = ["-b", "1K", "-e", "64K", "-f", "64", "-n", "3", "-w", "1", "-c", "1", "--transport", "mpi",
         "--device", "cuda"]
RANKS = 3


def main() -> int:
    abi, program, stand_in = sys.argv[1:]
    before = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    path = ":".join(filter(None, [str(pathlib.Path(stand_in).parent), *before]))
    for mode in ("dense", "ef"):
        output = mpi_launch.succeed(abi, RANKS, [program, *SWEEP, "--mode", mode],
                                LD_LIBRARY_PATH=path, CUDA_STAND_IN_DEVICES=str(RANKS))
        assert output.count("Collective test concluded") == 1, output
        assert re.search(r"Out of bounds values : 0 OK", output), output
        assert f"transport: mpi nranks: {RANKS}" in output, output
    return 0


if __name__ == "__main__":
    sys.exit(main())
