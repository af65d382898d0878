# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Small checked sweeps of a collective with every codec, with and without error feedback:
codec_sweep_test.py TOOL [TRANSPORT]: over threads, or over processes and socket or ucx."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

# Calls of the larger sizes travel in several segments.
SEGMENT_ELEMENTS = "4096"
SIZES = ["-b", "0", "-e", "99000", "-i", "33000"]
# Relative error of one call on normal numbers: at least, and at most.
ERRORS = {"sign": (0.4, 1.1), "fp4": (0.05, 0.2), "int8": (0.003, 0.015), "uint8mm": (0.003, 0.015),
          "int2": (0.2, 0.6), "int8s": (0.004, 0.02)}
# Sparse codecs lose most of one call; a factor of block / k makes the result of randk unbiased.
ERRORS |= {"topk": (0.8, 1.0), "randk": (0.9, 12)}
BLOCKS = {"sign": 4096, "fp4": 128, "int8": 256, "uint8mm": 256, "int2": 4096, "int8s": 256}


def sweep(tool: str, *options: str, sizes: list[str] = SIZES) -> list[dict]:
    """Returns the rows of a sweep that must succeed."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "out.json"
        command = [tool, *sizes, "-n", "2", "-w", "0", "-c", "1", "-J", str(report), *options]
        print(" ".join(command), flush=True)
        done = subprocess.run(command, capture_output=True, text=True, timeout=100,
                              env={**os.environ, "ONEBIT_DEBUG": "NONE",
                                   "ONEBIT_SEGMENT_ELEMENTS": SEGMENT_ELEMENTS})
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stderr == "", done.stderr
        return json.loads(report.read_text())["results"]


def check(row: dict, codec: str, mode: str, block: int) -> None:
    assert row["out_of_place"]["nwrong"] == 0 and row["in_place"]["nwrong"] in (0, None), row
    assert row["codec"] == codec and row["block"] == block, row
    assert row["mode"] == ("sign" if (codec, mode) == ("sign", "plain") else mode), row
    assert row["wire_bytes"] == row["wire_bytes_bound"], row
    least, most = ERRORS[codec]
    assert row["count"] == 0 or least < row["rel_error"] < most, row


def check_sparse(tool: str, place: list[str]) -> None:
    name = pathlib.Path(tool).name
    if name == "all_reduce_perf":
        kinds = [(mode, ["--hops", hops]) for mode in ("plain", "ef") for hops in ("1", "2")]
    elif name in ("reduce_scatter_perf", "all_gather_perf"):
        kinds = [("plain", [])]
    else:
        return
    for codec in ("topk", "randk"):
        for values in ("two", "fp32"):
            for mode, hops in kinds:
                options = ["--codec", codec, "--mode", mode, "--k", "51", "--block", "3264", "--values", values, *hops]
                for row in sweep(tool, *place, "--no-dense", *options):
                    check(row, codec, mode, 3264)


def main() -> None:
    tool = sys.argv[1]
    transport = sys.argv[2] if len(sys.argv) > 2 else None

    def place_of(ranks: str) -> list[str]:
        return ["-t", ranks] if transport is None else ["--procs", ranks, "--transport", transport]

    for ranks in ("2", "3", "4"):
        place = place_of(ranks)
        for codec, block in BLOCKS.items():
            for mode in ("plain",) if codec == "int8s" else ("plain", "ef"):
                for row in sweep(tool, *place, "--no-dense", "--codec", codec, "--mode", mode):
                    check(row, codec, mode, block)
    check_sparse(tool, place_of("3"))
    if transport is not None:
        return
    # A codec's usual mode; other types; blocks that do not divide segments.
    for codec, mode in (("fp4", "ef"), ("uint8mm", "ef"), ("int2", "ef"), ("int8s", "plain")):
        for row in sweep(tool, "-t", "3", "--codec", codec, "--block", "96", "-d", "all", "--no-dense"):
            check(row, codec, mode, 96)


if __name__ == "__main__":
    main()
