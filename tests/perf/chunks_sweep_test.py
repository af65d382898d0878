# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Small checked sweeps of a collective with one chunk per rank:
chunks_sweep_test.py TOOL [--procs]: over threads, or over processes and UCX."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

HEADER_BYTES = 64
ELEMENT_BYTES = {"uint8": 1, "int32": 4, "int64": 8, "half": 2, "float": 4, "double": 8, "bfloat16": 2}
SIZES = ["-b", "1K", "-e", "4M", "-f", "16", "-n", "3", "-w", "1", "-c", "1"]


def run(tool: str, *options: str) -> subprocess.CompletedProcess:
    command = [tool, *options]
    print(" ".join(command), flush=True)
    return subprocess.run(command, capture_output=True, text=True, timeout=100,
                          env={**os.environ, "ONEBIT_DEBUG": "NONE"})


def sweep(tool: str, *options: str) -> list[dict]:
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "out.json"
        done = run(tool, *SIZES, "-J", str(report), *options)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stderr == "", done.stderr
        assert "# Out of bounds values : 0 OK" in done.stdout, done.stdout
        return json.loads(report.read_text())["results"]


def check(row: dict, name: str, mode: str, ranks: int, op: str = "sum") -> None:
    assert row["out_of_place"]["nwrong"] == 0, row
    assert row["in_place"]["nwrong"] == (None if name == "alltoall_perf" else 0), row
    assert (row["in_place"]["time"] is None) == (name == "alltoall_perf"), row
    assert row["size"] == ranks * row["count"] * ELEMENT_BYTES[row["type"]], row
    assert row["redop"] == (op if name == "reduce_scatter_perf" else "none"), row
    assert row["mode"] == mode and row["nranks"] == ranks, row
    # Equal to the byte, except that with error feedback an all-gather compares checksums now and then.
    slack = 8 * (ranks - 1) if name == "all_gather_perf" and mode == "ef" else 0
    assert row["wire_bytes_bound"] <= row["wire_bytes"] <= row["wire_bytes_bound"] + slack, row
    if mode == "dense":
        assert row["rel_error"] < (1e-2 if ELEMENT_BYTES[row["type"]] == 2 else 1e-6), row
    else:
        assert row["count"] < 256 or 0.1 < row["rel_error"] < 1.2, row


def main() -> None:
    tool = sys.argv[1]
    name = pathlib.Path(tool).name
    is_process = "--procs" in sys.argv[2:]
    for ranks in (3, 4):
        place = ["--procs", str(ranks), "--transport", "socket"] if is_process else ["-t", str(ranks)]
        for mode in ("dense", "sign", "ef"):
            for row in sweep(tool, *place, "--mode", mode):
                check(row, name, mode, ranks)
    if is_process:
        return
    for extra in (["-d", "half"], ["-d", "bfloat16", "--scale", "l1"], ["--block", "tensor"]):
        for row in sweep(tool, "-t", "3", "--mode", "ef", *extra):
            check(row, name, "ef", 3)
    ops = ("sum", "avg", "max", "min") if name == "reduce_scatter_perf" else ("sum",)
    for type, op in zip(("uint8", "int32", "int64", "double"), 4 * ops):
        for row in sweep(tool, "-t", "3", "-d", type, *(["-o", op] if len(ops) > 1 else [])):
            check(row, name, "dense", 3, op)
    if name == "reduce_scatter_perf":
        sweep(tool, "-t", "2", "--mode", "ef", "-o", "avg")
    else:
        done = run(tool, "-o", "avg")
        assert done.returncode == 2 and "-o" in done.stderr, done.stderr
    sweep(tool, "-t", "1", "--mode", "ef")


if __name__ == "__main__":
    main()
