# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Wrong command lines end with status 2 and say what is wrong: usage_test.py ALL_REDUCE_PERF OTHER..."""

import os
import subprocess
import sys

WRONG = {
    ("-b", "4X"): "'4X' is not a size",
    ("-b", "2K", "-e", "1K"): "larger than",
    ("-d", "int8"): "uint8|int32|int64|half|float|double|bfloat16",
    ("--mode", "ef", "-d", "int32"): "needs --mode dense",
    ("--mode", "2bit"): "dense|plain|ef|sign",
    ("--transport", "pigeon"): "start some with --procs N",
    ("--procs", "0"): "--procs",
    ("--procs", "2", "-t", "2"): "leave out -t",
    ("--procs", "2", "--transport", "local"): "--transport local connects the threads",
    ("--block", "100"): "multiple of 64",
    ("--codec", "fp3"): "sign|fp4|int8|uint8mm|int2|int8s",
    ("--codec", "fp4", "--mode", "sign"): "with --codec fp4 use --mode plain",
    ("--codec", "int8s", "--mode", "ef"): "use --mode plain",
    ("-t", "0"): "--nthreads",
    ("-g", "2"): "give -t N or --procs N",
    ("-m", "8"): "group_perf",
    ("-z", "0"): "calls on host memory block",
    ("-f", "-2"): "--stepfactor",
    ("-J", "/nonexistent/folder/x.json", "-b", "1K", "-e", "1K", "-t", "2"): "/nonexistent/folder/x.json",
}


def run(*command: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, timeout=60,
                          env={**os.environ, **environment})


def main() -> None:
    tool, *others = sys.argv[1:]
    for one in (tool, *others):
        for options in ([], ["-b", "1K", "-e", "1K"]):
            result = run(one, *options)
            assert result.returncode == 2 and result.stdout == "", (one, result)
            assert "-t 4 makes four threads of this process, --procs 4 four processes on this host" in result.stderr, result
            assert "onebit_run, torchrun, mpirun and srun" in result.stderr, result
    for options, text in WRONG.items():
        result = run(tool, *options)
        assert result.returncode == 2, (options, result)
        assert text in result.stderr and result.stdout == "", (options, result)

    help_text = run(tool, "--help")
    assert help_text.returncode == 0 and "--minbytes" in help_text.stdout, help_text

    # The flags of a script for nccl-tests, and its header.
    flags = run(tool, "-b", "1K", "-e", "1K", "-t", "2", "-g", "1", "-m", "1", "-z", "1", "-N", "3",
                "-a", "3", "-T", "60", ONEBIT_COLLECTIVE_TIMEOUT_MS="overridden by -T")
    assert flags.returncode == 0, flags
    assert len([line for line in flags.stdout.splitlines() if line[0] != "#"]) == 3, flags
    assert ("# nThread 2 nGpus 0 minBytes 1024 maxBytes 1024 step: 1048576(bytes) warmup iters: 1 "
            "iters: 20 agg iters: 1 validation: 1 graph: 0\n") in flags.stdout, flags

    alone = run(tool, "-b", "1K", "-e", "1K", "-t", "1")
    assert alone.returncode == 0, alone

    # Errors of the library are shown in its own words.
    wrong = run(tool, "-b", "1K", "-e", "1K", "-t", "2", ONEBIT_SEGMENT_ELEMENTS="1")
    assert wrong.returncode == 1 and "ONEBIT_SEGMENT_ELEMENTS" in wrong.stderr, wrong
    unknown = run(tool, "-b", "1K", "-e", "1K", "-t", "2", ONEBIT_NO_SUCH_SETTING="1")
    assert unknown.returncode == 0 and "ONEBIT_NO_SUCH_SETTING" in unknown.stderr, unknown


if __name__ == "__main__":
    main()
