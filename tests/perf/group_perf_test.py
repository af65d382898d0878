# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""group_perf times groups against single calls, and says what is wrong:
group_perf_test.py GROUP_PERF [STAND_IN_OF_CUDA]

With the stand-in all of it is in device memory.
"""

import os
import pathlib
import subprocess
import sys

WRONG = {
    (): "--procs",
    ("--procs", "0"): "--procs",
    ("--procs", "2", "--min-elements", "9", "--max-elements", "8"): "--min-elements is larger",
    ("--procs", "2", "--transport", "local"): "--transport local connects the threads",
    ("--procs", "2", "--tensors", "many"): "--tensors",
    ("--procs", "2", "--codec", "int8s", "--mode", "ef"): "use --mode plain",
    ("--procs", "2", "--device", "gpu"): "is not cpu, cuda or cuda:N",
    ("--procs", "2", "--transport", "nccl"): "add --device cuda",
}


def run(*command: str) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def main() -> None:
    tool, device = sys.argv[1], []
    if len(sys.argv) > 2:
        before = filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))
        os.environ["LD_LIBRARY_PATH"] = ":".join([str(pathlib.Path(sys.argv[2]).parent), *before])
        os.environ["CUDA_STAND_IN_DEVICES"] = "2"
        device = ["--device", "cuda"]
    for options, text in WRONG.items():
        result = run(tool, *options)
        assert result.returncode == 2, (options, result)
        assert text in result.stderr and result.stdout == "", (options, result)

    # Bytes to two peers; small compressed tensors take one exchange.
    for mode, expected in ([], 2), (["--mode", "dense"], 4):
        result = run(tool, "--procs", "3", "--tensors", "12", "--max-elements", "8000",
                     "--repetitions", "3", "--warmup", "1", *mode, *device)
        assert result.returncode == 0, result
        lines = result.stdout.splitlines()
        assert lines[0].startswith("# 12 tensors of 1024 to 8000 fp32 elements"), lines
        assert f"device {'cuda' if device else 'cpu'};" in lines[0], lines
        names = ("one by one", "group", "ratio")
        assert [line[:12].strip() for line in lines[1:]] == list(names), lines
        messages = [int(line[12:].split()[2]) for line in lines[1:3]]
        assert messages == [12 * expected, expected], lines


if __name__ == "__main__":
    main()
