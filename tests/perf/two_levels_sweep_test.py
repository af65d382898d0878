# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Sweeps of allreduces that pass inside hosts and then between them, checked and counted:
two_levels_sweep_test.py ALL_REDUCE_PERF ONEBIT_RUN"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

TOOL, RUN = "", ""
# Ranks, and how many of them in a row are a host. Rails are as many as the smallest host has ranks.
HOSTS = ((4, 2), (3, 2), (4, 3), (7, 4))
# Short tensors have two levels, too, and calls of the larger sizes travel in several segments.
SETTINGS = {"ONEBIT_TWO_LEVEL_BYTES": "0", "ONEBIT_ONE_EXCHANGE_ELEMENTS": "0", "ONEBIT_SEGMENT_ELEMENTS": "2048"}
SIZES = ["-b", "12", "-e", "80012", "-i", "40000", "-n", "1", "-w", "0", "-c", "1", "--no-dense"]
CODECS = [["--mode", mode, *flags] for mode in ("ef", "plain") for flags in (
    [], ["--scale", "l1", "--block", "64"], ["--codec", "fp4"], ["--codec", "int8"], ["--codec", "uint8mm"],
    ["--codec", "int2"], ["--codec", "bf16"], ["--codec", "topk"], ["--codec", "randk"],
    ["--codec", "randk", "--values", "fp32", "--block", "320", "--k", "40"])]
CODECS.append(["--codec", "int8s"])


class TwoLevelsTest(unittest.TestCase):
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

    def levels_of(self, report: dict) -> set[int]:
        return {row["levels"] for row in report["results"]}

    def test_dense_calls(self):
        for ranks, host_ranks in HOSTS:
            with self.subTest(ranks=ranks, host_ranks=host_ranks):
                report, stdout = self.sweep(TOOL, *SIZES, "-t", str(ranks), "-d", "all", "-o", "all",
                                            ONEBIT_HOST_RANKS=str(host_ranks))
                self.assertEqual(len(report["results"]), 3 * 7 * 4)
                self.assertEqual(self.levels_of(report), {2})
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

    def test_a_size_decides_for_dense_calls(self):
        report, _ = self.sweep(TOOL, "-b", "32K", "-e", "128K", "-f", "2", "-n", "2", "-t", "4",
                               ONEBIT_HOST_RANKS="2", ONEBIT_TWO_LEVEL_BYTES="auto")
        self.assertEqual([row["levels"] for row in report["results"]], [1, 2, 2])

    def test_every_codec(self):
        for ranks, host_ranks in HOSTS:
            for codec in CODECS:
                with self.subTest(ranks=ranks, host_ranks=host_ranks, codec=codec):
                    report, stdout = self.sweep(TOOL, *SIZES, "-t", str(ranks), *codec, "--levels", "2", "-d", "all",
                                                "-o", "all", ONEBIT_HOST_RANKS=str(host_ranks))
                    self.assertEqual(len(report["results"]), 3 * 3 * 2)
                    self.assertEqual(self.levels_of(report), {2})
                    self.assertEqual(report["config"]["levels"], 2)
                    self.assertRegex(stdout, r"(?m)^# mode: .* hosts: .* levels: 2 codec: ")

    def test_one_level_where_it_is_wanted_or_nobody_shares_a_host(self):
        for levels, host_ranks in (("1", "2"), ("0", "2"), ("2", "4"), ("2", "1")):
            with self.subTest(levels=levels, host_ranks=host_ranks):
                report, stdout = self.sweep(TOOL, *SIZES, "-t", "4", "--mode", "ef", "--levels", levels,
                                            ONEBIT_HOST_RANKS=host_ranks)
                self.assertEqual(self.levels_of(report), {1})
                self.assertIn(" levels: 1 codec: ", stdout)

    def test_processes(self):
        for flags in ([], ["--mode", "ef", "--levels", "2"], ["--codec", "int8s", "--levels", "2"]):
            for ranks in ("4", "3"):
                with self.subTest(flags=flags, ranks=ranks):
                    report, _ = self.sweep(TOOL, *SIZES, "--procs", ranks, *flags, ONEBIT_HOST_RANKS="2")
                    self.assertEqual(self.levels_of(report), {2})

    def test_ranks_of_a_host_need_not_follow_each_other(self):
        command = 'ONEBIT_HOST=$((RANK % 3 % 2)) exec "$@"'  # 0 1 0 0 1
        for flags in (["-o", "avg", "-d", "half"], ["--codec", "int8s", "--levels", "2"]):
            with self.subTest(flags=flags):
                report, stdout = self.sweep(RUN, "-n", "5", "sh", "-c", command, "sh", TOOL, *SIZES, *flags)
                self.assertEqual(self.levels_of(report), {2})
                self.assertIn(" hosts: 3+2", stdout)


if __name__ == "__main__":
    RUN = os.path.abspath(sys.argv.pop(2))
    TOOL = os.path.abspath(sys.argv.pop(1))
    unittest.main()
