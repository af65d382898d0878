# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Tools whose reader leaves, as `head` does, say so: closed_output_test.py ALL_REDUCE_PERF GROUP_PERF"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

SWEEP, OTHER = "", ""
LEFT = "output pipe was closed\n"
SIZES = ["-b", "1K", "-e", "16K", "-f", "4", "-n", "2", "-w", "1", "-c", "0"]


class ClosedOutputTest(unittest.TestCase):
    def run_cut(self, lines: int, *command: str) -> tuple[int, str]:
        """The status and stderr of a program whose reader leaves after this many lines."""
        reader, writer = os.pipe()
        with os.fdopen(reader) as stream:
            if lines == 0:
                stream.close()
            environment = {name: value for name, value in os.environ.items() if not name.startswith("ONEBIT_")}
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=writer, stderr=subprocess.PIPE,
                                       text=True, env=environment)
            os.close(writer)
            for _ in range(lines):
                self.assertNotEqual(stream.readline(), "")
        _, stderr = process.communicate(timeout=60)
        return process.returncode, stderr

    def check_sweep(self, lines: int, *ranks: str) -> dict:
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "report.json"
            status, stderr = self.run_cut(lines, SWEEP, *SIZES, *ranks, "-J", str(report))
            self.assertEqual(status, 1, stderr)
            self.assertIn(f"all_reduce_perf: {LEFT}", stderr)
            self.assertNotIn("gone", stderr)  # other ranks do not take it for a loss
            return json.loads(report.read_text())

    def test_a_sweep_ends_with_a_complete_report(self):
        for ranks in (["-t", "2"], ["--procs", "2"]):
            with self.subTest(ranks=ranks):
                report = self.check_sweep(0, *ranks)
                self.assertEqual(report["results"], [])
                self.assertIn(LEFT.strip(), json.dumps(report))

    def test_a_sweep_keeps_the_rows_so_far(self):
        # Rows of a second each, of which one is read.
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "report.json"
            status, stderr = self.run_cut(20, SWEEP, "-b", "1K", "-e", "1K", "-N", "1000000", "-n", "200", "-t", "2",
                                          "-c", "0", "-J", str(path))
            self.assertEqual(status, 1, stderr)
            self.assertGreater(len(json.loads(path.read_text())["results"]), 0)

    def test_other_tools_say_so_too(self):
        status, stderr = self.run_cut(0, OTHER, "--help")
        self.assertEqual((status, stderr), (-signal.SIGPIPE, f"{pathlib.Path(OTHER).name}: {LEFT}"))


if __name__ == "__main__":
    SWEEP, OTHER = sys.argv[1:]
    del sys.argv[1:]
    unittest.main()
