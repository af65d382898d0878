# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Small checked sweeps of broadcasts from the first and the last rank:
broadcast_sweep_test.py BROADCAST_PERF [--procs]: over threads, or over processes and sockets."""

import subprocess
import sys

from codec_sweep_test import SIZES, sweep


def main() -> None:
    tool = sys.argv[1]
    is_process = "--procs" in sys.argv[2:]
    for ranks in (1, 2, 3, 4):
        place = ["--procs", str(ranks), "--transport", "socket"] if is_process else ["-t", str(ranks)]
        for root in {0, ranks - 1}:
            # Messages of one exchange, of two, and of several segments.
            for sizes in (["-b", "0", "-e", "2000", "-i", "400"], SIZES):
                for row in sweep(tool, *place, "-r", str(root), "-d", "all", sizes=sizes):
                    assert row["out_of_place"]["nwrong"] == 0 and row["in_place"]["nwrong"] == 0, row
                    assert row["wire_bytes"] == row["wire_bytes_bound"], row
                    assert row["root"] == root and row["mode"] == "dense" and row["rel_error"] == 0, row
    for options, text in {("--mode", "ef"): "--mode", ("-r", "2", "-t", "2", "-b", "1K", "-e", "1K"):
                          "--root 2: there are 2 ranks"}.items():
        done = subprocess.run([tool, *options], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and text in done.stderr, done


if __name__ == "__main__":
    main()
