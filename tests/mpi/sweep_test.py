# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks of a launcher sweep over transport mpi, correctly, with one report:
sweep_test.py ABI ALL_REDUCE_PERF TOOL...: the other tools more briefly."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

import mpi_launch

SWEEP = ["-b", "1K", "-e", "1M", "-f", "32", "-n", "3", "-w", "1", "--transport", "mpi",
         "-c", "1"]


def seconds_of_native_allreduce(abi: str, program: str, timeout_seconds: float) -> float | None:
    """How long MPI's own allreduce of a large tensor took with this deadline, at least; or None if a
    rank saw no progress for so long."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        done = mpi_launch.run(abi, 3, [program, "-b", "192M", "-e", "192M", "-n", "1", "-w", "0", "-c", "0",
                                   "--mode", "dense", "--transport", "mpi", "-J", str(report)],
                          ONEBIT_MPI_NATIVE_DENSE="1",
                          ONEBIT_COLLECTIVE_TIMEOUT_MS=str(int(1000 * timeout_seconds)))
        if done.returncode != 0:
            assert "no progress for" in done.stderr, done
            return None
        row, = json.loads(report.read_text())["results"]
    return min(row[place]["time"] for place in ("out_of_place", "in_place")) * 1e-6


def native_allreduce_restarts_the_clock(abi: str, program: str):
    """Each piece that MPI has summed is progress, so a call may take longer than the deadline. Without
    that no call does. A deadline may be too short for one piece, or for a rank that begins late, and
    load changes how long a call takes, so several are tried."""
    whole = seconds_of_native_allreduce(abi, program, 60)
    assert whole is not None
    for share in (0.5, 0.7, 0.85, 0.5, 0.7, 0.85, 0.95):
        timeout = share * whole
        seconds = seconds_of_native_allreduce(abi, program, timeout)
        if seconds is None:
            continue
        if seconds > timeout:
            return
        whole = seconds
    raise AssertionError(f"no call took longer than its deadline, the last of which was {timeout} s")


def codecs_send_what_they_should(abi: str, program: str):
    for ranks, codec in ((2, "fp4"), (3, "int8"), (4, "int2")):
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "report.json"
            mpi_launch.succeed(abi, ranks, [program, *SWEEP, "--codec", codec, "--mode", "plain", "--no-dense",
                                            "-J", str(report)])
            rows = json.loads(report.read_text())["results"]
        assert len(rows) == 3, rows
        for row in rows:
            assert row["codec"] == codec and row["wire_bytes"] == row["wire_bytes_bound"], row
            assert row["out_of_place"]["nwrong"] == 0 and row["in_place"]["nwrong"] == 0, row


def main() -> int:
    abi, program, *others = sys.argv[1:]
    for mode in ("ef", "dense"):
        output = mpi_launch.succeed(abi, 4, [program, *SWEEP, "--mode", mode])
        assert output.count("Collective test concluded") == 1, output
        assert re.search(r"Out of bounds values : 0 OK", output), output
        assert "transport: mpi nranks: 4" in output, output
    for other in others:
        for ranks in (3, 4):
            output = mpi_launch.succeed(abi, ranks, [other, *SWEEP, "--mode", "ef"])
            assert re.search(r"Out of bounds values : 0 OK", output), output
    codecs_send_what_they_should(abi, program)
    native_allreduce_restarts_the_clock(abi, program)
    done = subprocess.run([program, "--procs", "2", *SWEEP], env=mpi_launch.environment(),
                          capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "mpirun" in done.stderr, (done.stdout, done.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
