# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a small checked sweep from end to end: all_reduce_sweep_test.py ALL_REDUCE_PERF --mode MODE"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import tempfile

RANKS = 3
SEGMENT_ELEMENTS = 262_144  # default of ONEBIT_SEGMENT_ELEMENTS
HEADER_BYTES = 64
SIZES = [1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20]


def sweep(tool: str, *options: str) -> tuple[dict, str]:
    """Returns the JSON report and stdout of a sweep that must succeed."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "out.json"
        command = [tool, "-t", str(RANKS), "-n", "4", "-c", "1", "-J", str(report), *options]
        print(" ".join(command), flush=True)
        run = subprocess.run(command, capture_output=True, text=True, timeout=120,
                             env={**os.environ, "ONEBIT_DEBUG": "NONE"})
        assert run.returncode == 0, run.stdout + run.stderr
        assert run.stderr == "", run.stderr  # in a pipe there is no progress
        return json.loads(report.read_text()), run.stdout


def check_row(row: dict, mode: str) -> None:
    assert row["out_of_place"]["nwrong"] == 0 and row["in_place"]["nwrong"] == 0, row
    assert row["out_of_place"]["time"] > 0 and row["in_place"]["time"] > 0, row
    assert row["mode"] == mode and row["nranks"] == RANKS and row["transport"] == "local", row
    # The bytes counted on the wire equal the formula exactly.
    assert row["wire_bytes"] == row["wire_bytes_bound"], row
    if mode == "dense":
        assert row["speedup_vs_dense"] == 1.0, row
        assert row["rel_error"] < (1e-2 if row["type"] in ("half", "bfloat16") else 1e-6), row
    else:
        assert row["speedup_vs_dense"] > 0, row
        assert row["count"] < 256 or 0.5 < row["rel_error"] < 1.2, row


def check_one_bit_bound(row: dict) -> None:
    """Scales add at most 1 % to a bit per element and exchange, for chunks of at least 64 Ki elements.

    That bound is about the payload. Headers come on top: one per message, that is per peer, exchange
    and segment of a chunk; 64 bytes, of a payload of at least 8 KiB.
    """
    chunk = -(-row["count"] // RANKS)
    assert chunk >= 64 << 10, row
    segments = -(-chunk // SEGMENT_ELEMENTS)
    headers = 2 * (RANKS - 1) * segments * HEADER_BYTES
    bits = 8 * (row["wire_bytes"] - headers)
    assert bits <= 1.01 * 2 * (RANKS - 1) / RANKS * row["count"], row


def check_table(stdout: str, rows: list[dict]) -> None:
    lines = [line.split() for line in stdout.splitlines() if not line.startswith("#")]
    assert [int(line[0]) for line in lines] == [row["size"] for row in rows], stdout
    assert all(len(line) == 17 for line in lines), stdout
    assert "# Out of bounds values : 0 OK" in stdout, stdout
    sent = re.findall(r"^#   rank (\d+) sent (\d+) bytes in (\d+) messages$", stdout, re.MULTILINE)
    assert [int(rank) for rank, _, _ in sent] == list(range(RANKS)), stdout
    # Each row has at least two timed calls, and both phases.
    assert max(int(count) for _, count, _ in sent) > 2 * sum(row["wire_bytes"] for row in rows), sent


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("--mode", required=True)
    arguments = parser.parse_args()
    mode = arguments.mode

    report, stdout = sweep(arguments.tool, "--mode", mode, "-b", "1K", "-e", "1M", "-f", "4")
    rows = report["results"]
    assert [row["size"] for row in rows] == SIZES, rows
    assert report["out_of_bounds"] == {"count": 0, "okay": "true"}, report
    assert report["errors"] == [], report
    check_table(stdout, rows)

    # Covers odd sizes, empty chunks, no elements, and all types and ops.
    odd, _ = sweep(arguments.tool, "--mode", mode, "-b", "0", "-e", "1210", "-i", "121",
                   "-d", "all", "-o", "all", "--scale", "l1", "--block", "64")
    rows += odd["results"]
    assert len(odd["results"]) == 11 * (7 * 4 if mode == "dense" else 3 * 2), odd
    if mode != "dense":
        tensor, _ = sweep(arguments.tool, "--mode", mode, "-b", "3K", "-e", "300K", "-f", "10",
                          "--block", "tensor")
        rows += tensor["results"]
        # Chunks of 64 Ki elements exactly, of some more, and of several segments.
        large, _ = sweep(arguments.tool, "--mode", mode, "-b", "768K", "-e", "3840K", "-i", "1M",
                         "--block", "4096")
        assert len(large["results"]) == 4, large
        for row in large["results"]:
            check_one_bit_bound(row)
        rows += large["results"]
    for row in rows:
        check_row(row, mode)


if __name__ == "__main__":
    main()
