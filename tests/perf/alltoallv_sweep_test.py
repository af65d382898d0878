# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Small checked sweeps with counts that differ between ranks, dense and with every codec:
alltoallv_sweep_test.py ALLTOALLV_PERF [--procs]: over threads, or over processes and sockets."""

import subprocess
import sys

from codec_sweep_test import BLOCKS, sweep


def check_rows(rows: list[dict]) -> None:
    """The size is that of the largest buffer, so it is no multiple of the number of ranks."""
    assert rows[0]["size"] == 0 and rows[-1]["size"] > 0, rows
    for row in rows:
        assert row["out_of_place"]["nwrong"] == 0 and row["in_place"]["time"] is None, row
        assert row["wire_bytes"] == row["wire_bytes_bound"], row
        assert row["redop"] == "none", row


def main() -> None:
    tool = sys.argv[1]
    is_process = "--procs" in sys.argv[2:]
    for ranks in ("2", "3", "4"):
        place = ["--procs", ranks, "--transport", "socket"] if is_process else ["-t", ranks]
        check_rows(sweep(tool, *place, "-d", "all"))
        check_rows(sweep(tool, *place, "--mode", "sign", "--block", "tensor"))
        for codec, block in BLOCKS.items():
            rows = sweep(tool, *place, "--codec", codec, "--no-dense")
            check_rows(rows)
            for row in rows[2:]:  # the smallest have too few elements for a typical error
                assert row["codec"] == codec and row["block"] == block, row
                assert row["mode"] == ("sign" if codec == "sign" else "plain"), row
                assert 0.001 < row["rel_error"] < 1, row
    if is_process:
        return
    # Rows with a scale each; 1-byte codes may have rows of any length.
    for codec, length in (("fp4", "770"), ("int8", "77"), ("uint8mm", "77"), ("int2", "772"),
                          ("int8s", "77"), ("sign", "64")):
        rows = sweep(tool, "-t", "3", "--codec", codec, "--block", length, "-d", "all", "--no-dense")
        check_rows(rows)
        for row in rows:
            element = 4 if row["type"] == "float" else 2
            assert row["size"] % (int(length) * element) == 0, row
    seeds = [[row["size"] for row in sweep(tool, "-t", "4", "--seed", seed)] for seed in "112"]
    assert seeds[0] == seeds[1] != seeds[2], seeds
    for options, text in {("--mode", "ef"): "use --mode plain", ("-o", "sum"): "-o"}.items():
        done = subprocess.run([tool, *options], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and text in done.stderr, done


if __name__ == "__main__":
    main()
