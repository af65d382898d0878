# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Small checked sweeps of a ring of sends and receives, dense and with every codec:
sendrecv_sweep_test.py SENDRECV_PERF [--procs]: over threads, or over processes and sockets."""

import subprocess
import sys

from codec_sweep_test import BLOCKS, check, sweep


def check_rows(rows: list[dict], ranks: str) -> None:
    for row in rows:
        assert row["out_of_place"]["nwrong"] == 0 and row["in_place"]["time"] is None, row
        assert row["out_of_place"]["bus_bw"] == row["out_of_place"]["alg_bw"], row
        assert row["wire_bytes"] == row["wire_bytes_bound"], row
        assert row["redop"] == "none", row
        least = 0 if ranks == "1" else 64  # a header at least
        assert row["wire_bytes"] >= least, row


def main() -> None:
    tool = sys.argv[1]
    is_process = "--procs" in sys.argv[2:]
    for ranks in ("1", "2", "3", "4"):
        place = ["--procs", ranks, "--transport", "socket"] if is_process else ["-t", ranks]
        check_rows(sweep(tool, *place, "-d", "all"), ranks)
        check_rows(sweep(tool, *place, "--mode", "sign", "--block", "tensor"), ranks)
        for codec, block in BLOCKS.items():
            rows = sweep(tool, *place, "--codec", codec, "--no-dense")
            check_rows(rows, ranks)
            for row in rows if ranks != "1" else ():
                check(row, codec, "plain", block)
            if codec == "int8s":
                continue
            rows = sweep(tool, *place, "--codec", codec, "--mode", "ef", "--no-dense")
            check_rows(rows, ranks)
            for row in rows if ranks != "1" else ():
                check(row, codec, "ef", block)
    if is_process:
        return
    for codec in BLOCKS:
        check_rows(sweep(tool, "-t", "3", "--codec", codec, "--block", "192", "-d", "all"), "3")
    check_rows(sweep(tool, "-t", "3", "--mode", "ef", "--block", "tensor", "-d", "all"), "3")
    for options, text in {("--codec", "int8s", "--mode", "ef"): "use --mode plain",
                          ("-o", "sum"): "-o"}.items():
        done = subprocess.run([tool, *options], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and text in done.stderr, done


if __name__ == "__main__":
    main()
