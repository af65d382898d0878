# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Sweeps over ranks that are processes: sweep_processes_test.py ALL_REDUCE_PERF ONEBIT_RUN

Their results are right, one rank speaks for all, and a failure of one ends all with its cause.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from waiting import pid_of_rank  # noqa: E402

TOOL, RUN = "", ""
LAUNCHERS = ("RANK", "WORLD_SIZE", "OMPI_", "PMI_", "SLURM_", "ONEBIT_")
SMALL = ["-b", "1K", "-e", "64K", "-f", "4", "-n", "4"]


class ProcessesTest(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.report = pathlib.Path(self.folder.name) / "out.json"
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith(LAUNCHERS)}
        self.environment["TMPDIR"] = self.folder.name

    def run_tool(self, *command: str, **environment: str) -> subprocess.CompletedProcess:
        return subprocess.run(command, capture_output=True, text=True, timeout=120,
                              stdin=subprocess.DEVNULL, env={**self.environment, **environment})

    def sweep(self, *command: str, **environment: str) -> tuple[dict, str]:
        """Returns the report and stdout of a sweep that must succeed."""
        self.report.unlink(missing_ok=True)
        result = self.run_tool(*command, "-J", str(self.report), **environment)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result)
        return json.loads(self.report.read_text()), result.stdout

    def check_rows(self, report: dict, ranks: int, mode: str, rows: int) -> None:
        self.assertEqual(len(report["results"]), rows)
        for row in report["results"]:
            self.assertEqual((row["out_of_place"]["nwrong"], row["in_place"]["nwrong"]), (0, 0), row)
            self.assertEqual((row["nranks"], row["transport"], row["mode"]), (ranks, "socket", mode))
            self.assertEqual(row["wire_bytes"], row["wire_bytes_bound"], row)
        devices = report["config"]["devices"]
        self.assertEqual([device["rank"] for device in devices], list(range(ranks)))
        self.assertEqual(len({device["pid"] for device in devices}), ranks)

    def test_results_are_right(self):
        for ranks, mode in ((3, "ef"), (4, "dense"), (2, "sign"), (7, "ef"), (1, "ef")):
            with self.subTest(ranks=ranks, mode=mode):
                report, stdout = self.sweep(TOOL, *SMALL, "--procs", str(ranks), "--mode", mode)
                self.check_rows(report, ranks, mode, 4)
                rows = [line for line in stdout.splitlines() if not line.startswith("#")]
                self.assertEqual(len(rows), 4, stdout)
                self.assertIn("# Out of bounds values : 0 OK", stdout)
                self.assertEqual(stdout.count("Collective test starting"), 1)

    def test_all_types_and_odd_sizes(self):
        report, _ = self.sweep(TOOL, "-b", "0", "-e", "1210", "-i", "121", "-d", "all", "-o", "all",
                               "-n", "2", "--procs", "3", "--transport", "socket", "--mode", "ef",
                               "--block", "64")
        self.check_rows(report, 3, "ef", 66)

    def test_a_launcher_starts_it_too(self):
        report, stdout = self.sweep(RUN, "-n", "3", "--tag-output", TOOL, *SMALL, "--mode", "ef")
        self.check_rows(report, 3, "ef", 4)
        self.assertTrue(all(line.startswith("[0] ") for line in stdout.splitlines()), stdout)

    def test_errors_are_those_of_threads(self):
        """Threads and processes report the same, as inputs and arithmetic are the same."""
        threads, _ = self.sweep(TOOL, *SMALL, "-t", "3", "--mode", "ef")
        processes, _ = self.sweep(TOOL, *SMALL, "--procs", "3", "--mode", "ef")
        for ours, theirs in zip(processes["results"], threads["results"], strict=True):
            for name in ("rel_error", "wire_bytes", "size", "count"):
                self.assertEqual(ours[name], theirs[name], name)

    def test_a_rank_that_is_killed_ends_all(self):
        for victim in (0, 1):
            with self.subTest(victim=victim):
                job = subprocess.Popen(
                    [TOOL, "-b", "1M", "-e", "1M", "-n", "1000000", "--procs", "3"],
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment)
                pid = pid_of_rank(job.pid, victim)
                time.sleep(0.5)  # so that it dies in a call, of which no event tells
                os.kill(pid, signal.SIGKILL)
                _, errors = job.communicate(timeout=60)
                self.assertEqual(job.returncode, 128 + signal.SIGKILL, errors)
                self.assertIn(f"all_reduce_perf: rank {victim} (pid {pid}) was killed by signal 9",
                              errors)
                self.assertRegex(errors, rf"(?m)^all_reduce_perf: .*rank {victim}")
                self.assertNotIn("terminating", errors)  # before the grace period ends
                self.assertEqual(list(pathlib.Path(self.folder.name).iterdir()), [])

    def test_header_and_report_tell_of_hosts(self):
        for ranks in (["--procs", "3"], ["-t", "3"]):
            for variables, text, hosts in (({}, "1x3", [3]), ({"ONEBIT_HOST_RANKS": "2"}, "2+1", [2, 1]),
                                           ({"ONEBIT_HOST_RANKS": "1"}, "3x1", [1, 1, 1]),
                                           ({"ONEBIT_HOST_RANKS": "1", "ONEBIT_HOST": "a"}, "1x3", [3])):
                with self.subTest(ranks=ranks, variables=variables):
                    report, stdout = self.sweep(TOOL, "-b", "1K", "-e", "1K", "-n", "1", *ranks, **variables)
                    self.assertIn(f" nranks: 3 hosts: {text}\n", stdout)
                    self.assertEqual(report["config"]["hosts"], hosts)
                    numbers = [device["host"] for device in report["config"]["devices"]]
                    self.assertEqual([numbers.count(host) for host in range(len(hosts))], hosts)

    def test_errors_of_all_are_said_once(self):
        unknown = self.run_tool(TOOL, *SMALL, "--procs", "3", ONEBIT_SEGMENT_ELEMENTS="1")
        self.assertEqual(unknown.returncode, 1, unknown)
        self.assertIn("ONEBIT_SEGMENT_ELEMENTS", unknown.stderr)
        path = "/nonexistent/folder/x.json"
        unwritable = self.run_tool(TOOL, *SMALL, "--procs", "3", "-J", path)
        # 1: those that rank 0 has left were faster.
        self.assertIn(unwritable.returncode, (1, 2), unwritable)
        self.assertEqual(unwritable.stderr.count(path), 1, unwritable)
        usage = self.run_tool(RUN, "-n", "3", TOOL, "-b", "4X")
        self.assertEqual(usage.returncode, 2, usage)
        self.assertEqual(usage.stderr.count("is not a size"), 1, usage)
        usage = self.run_tool(RUN, "-n", "3", TOOL, "--help")
        self.assertEqual((usage.returncode, usage.stdout.count("--minbytes")), (0, 1))

    def test_ranks_come_from_one_place(self):
        for command, text in (([RUN, "-n", "2", TOOL, "--procs", "2"], "already started this process as rank 0"),
                              ([RUN, "-n", "2", TOOL, "-t", "4"], "with the launcher every process"),
                              ([RUN, "-n", "2", TOOL, "--transport", "local"], "leave out --transport"),
                              ([TOOL, "--procs", "2", "-t", "4"], "leave out -t"),
                              ([TOOL, "--procs", "0"], "--procs"),
                              ([TOOL, "--procs", "2", "--transport", "local"], "or use socket"),
                              ([TOOL, "-t", "2", "--transport", "ucx"], "--procs N")):
            result = self.run_tool(*command, *SMALL)
            self.assertEqual(result.returncode, 2, result)
            self.assertIn(text, result.stderr)
            self.assertEqual(result.stdout, "")


if __name__ == "__main__":
    RUN = os.path.abspath(sys.argv.pop(2))
    TOOL = os.path.abspath(sys.argv.pop(1))
    unittest.main()
