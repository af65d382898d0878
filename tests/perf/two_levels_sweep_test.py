# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Sweeps of calls that pass inside hosts and then between them, checked and counted:
two_levels_sweep_test.py TOOL ONEBIT_RUN: the tool of an allreduce, reduce-scatter, all-gather or broadcast"""

import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

TOOL, RUN = (os.path.abspath(path) for path in sys.argv[1:3])
NAME = pathlib.Path(TOOL).name
HAS_OP = NAME in ("all_reduce_perf", "reduce_scatter_perf")
# Ranks, and how many of them in a row are a host. Rails are as many as the smallest host has ranks.
HOSTS = ((4, 2), (3, 2), (7, 3), (7, 4))
# Short tensors have two levels, too, and calls of the larger sizes travel in several segments.
SETTINGS = {"ONEBIT_TWO_LEVEL_BYTES": "0", "ONEBIT_ONE_EXCHANGE_ELEMENTS": "0", "ONEBIT_SEGMENT_ELEMENTS": "2048"}
SIZES = ["-b", "12", "-e", "80012", "-i", "40000", "-n", "1", "-w", "0", "-c", "1"]
COMPRESSED = [*SIZES, "--no-dense"]
DENSE_CODES = ([], ["--scale", "l1", "--block", "64"], ["--codec", "fp4"], ["--codec", "int8"],
               ["--codec", "uint8mm"], ["--codec", "int2"], ["--codec", "bf16"])
SPARSE_CODES = (["--codec", "topk"], ["--codec", "randk"],
                ["--codec", "randk", "--values", "fp32", "--block", "320", "--k", "40"])
CODECS = [["--mode", "plain", *flags] for flags in (*DENSE_CODES, *SPARSE_CODES)]
CODECS += [["--mode", "ef", *flags] for flags in DENSE_CODES]
CODECS += [["--mode", "ef", *flags] for flags in SPARSE_CODES if NAME == "all_reduce_perf"]
CODECS.append(["--codec", "int8s"])
MIXED_HOSTS = ["-n", "5", "sh", "-c", 'ONEBIT_HOST=$((RANK % 3 % 2)) exec "$@"', "sh"]  # 0 1 0 0 1


class Sweeps(unittest.TestCase):
    def sweep(self, *command: str, **environment: str) -> tuple[dict, str]:
        """Returns report and stdout of a sweep whose results and bytes are right."""
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "out.json"
            done = subprocess.run([*command, "-J", str(report)], capture_output=True, text=True, timeout=100,
                                  stdin=subprocess.DEVNULL,
                                  env={**os.environ, "ONEBIT_DEBUG": "NONE", **SETTINGS, **environment})
            self.assertEqual((done.returncode, done.stderr), (0, ""), (command, environment, done.stdout))
            rows = json.loads(report.read_text())
        for row in rows["results"]:
            self.assertEqual((row["out_of_place"]["nwrong"], row["in_place"]["nwrong"]), (0, 0), row)
            self.assertEqual(row["wire_bytes"], row["wire_bytes_bound"], row)
        return rows, done.stdout

    def levels_of(self, report: dict) -> list[int]:
        return [row["levels"] for row in report["results"]]


class DenseTest(Sweeps):
    def test_every_type_and_op(self):
        for ranks, host_ranks in HOSTS:
            for root in range(ranks if NAME == "broadcast_perf" else 1):
                with self.subTest(ranks=ranks, host_ranks=host_ranks, root=root):
                    flags = ["-r", str(root)] if NAME == "broadcast_perf" else ["-o", "all"] if HAS_OP else []
                    report, stdout = self.sweep(TOOL, *SIZES, "-t", str(ranks), "-d", "all", *flags,
                                                ONEBIT_HOST_RANKS=str(host_ranks))
                    self.assertEqual(self.levels_of(report), 3 * 7 * (4 if HAS_OP else 1) * [2])
                    if NAME == "all_reduce_perf":
                        self.check_sent(stdout, ranks, host_ranks)

    def check_sent(self, stdout: str, ranks: int, host_ranks: int) -> None:
        """Ranks without a rail send nothing to other hosts, except what sweeps gather."""
        sent = re.findall(r"(?m)^#   rank (\d+) sent (\d+) bytes in \d+ messages, (\d+) bytes of them to other hosts$",
                          stdout)
        self.assertEqual([int(rank) for rank, _, _ in sent], list(range(ranks)), stdout)
        rails = ranks % host_ranks or host_ranks
        for rank, all_bytes, network in sent:
            self.assertLessEqual(int(network), int(all_bytes))
            self.assertEqual(int(network) > 1_000_000, int(rank) % host_ranks < rails, stdout)

    def test_the_size_decides(self):
        report, _ = self.sweep(TOOL, "-b", "32K", "-e", "128K", "-f", "2", "-n", "2", "-t", "4",
                               ONEBIT_HOST_RANKS="2", ONEBIT_TWO_LEVEL_BYTES="auto")
        self.assertEqual(self.levels_of(report), [1, 2, 2])

    def test_processes(self):
        for ranks in ("4", "3"):
            with self.subTest(ranks=ranks):
                report, _ = self.sweep(TOOL, *SIZES, "--procs", ranks, ONEBIT_HOST_RANKS="2")
                self.assertEqual(self.levels_of(report), 3 * [2])

    def test_ranks_of_a_host_need_not_follow_each_other(self):
        op = ["-o", "avg"] if HAS_OP else []
        report, stdout = self.sweep(RUN, *MIXED_HOSTS, TOOL, *SIZES, "-d", "half", *op)
        self.assertEqual(self.levels_of(report), 3 * [2])
        self.assertIn(" hosts: 3+2", stdout)


@unittest.skipIf(NAME == "broadcast_perf", "broadcasts are dense")
class CompressedTest(Sweeps):
    def test_every_codec(self):
        ops = ["-o", "all"] if HAS_OP else []
        # Each on some hosts: collectives of the library are tested with every codec on all of them.
        for codec, (ranks, host_ranks) in zip(CODECS, itertools.cycle(HOSTS)):
            with self.subTest(ranks=ranks, host_ranks=host_ranks, codec=codec):
                report, stdout = self.sweep(TOOL, *COMPRESSED, "-t", str(ranks), *codec, "--levels", "2",
                                            "-d", "all", *ops, ONEBIT_HOST_RANKS=str(host_ranks))
                self.assertEqual(self.levels_of(report), 3 * 3 * (2 if HAS_OP else 1) * [2])
                self.assertEqual(report["config"]["levels"], 2)
                self.assertRegex(stdout, r"(?m)^# mode: .* hosts: .* levels: 2 codec: ")

    def test_one_level_where_it_is_wanted_or_nobody_shares_a_host(self):
        for levels, host_ranks in (("1", "2"), ("2", "4"), ("2", "1"), ("0", "4")):
            with self.subTest(levels=levels, host_ranks=host_ranks):
                report, stdout = self.sweep(TOOL, *COMPRESSED, "-t", "4", "--mode", "ef", "--levels", levels,
                                            ONEBIT_HOST_RANKS=host_ranks)
                self.assertEqual(self.levels_of(report), 3 * [1])
                self.assertEqual(report["config"]["levels"], 1)
                self.assertIn(" levels: 1 codec: ", stdout)

    def test_the_size_decides_unless_levels_are_given(self):
        for least, levels in (("0", [2, 2, 2]), ("60000", [1, 1, 2])):
            with self.subTest(least=least):
                report, stdout = self.sweep(TOOL, *COMPRESSED, "-t", "4", "--mode", "ef", ONEBIT_HOST_RANKS="2",
                                            ONEBIT_TWO_LEVEL_BYTES=least)
                self.assertEqual(self.levels_of(report), levels)
                self.assertEqual(report["config"]["levels"], 0)
                self.assertIn(" levels: auto codec: ", stdout)

    def test_processes(self):
        for flags in (["--mode", "ef"], ["--codec", "int8s"]):
            for ranks in ("4", "3"):
                with self.subTest(flags=flags, ranks=ranks):
                    report, _ = self.sweep(TOOL, *COMPRESSED, "--procs", ranks, *flags, "--levels", "2",
                                           ONEBIT_HOST_RANKS="2")
                    self.assertEqual(self.levels_of(report), 3 * [2])

    def test_ranks_of_a_host_need_not_follow_each_other(self):
        report, stdout = self.sweep(RUN, *MIXED_HOSTS, TOOL, *COMPRESSED, "--codec", "int8s", "--levels", "2")
        self.assertEqual(self.levels_of(report), 3 * [2])
        self.assertIn(" hosts: 3+2", stdout)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
