# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The table of ONEBIT_NCCL_STATS: preload_stats_test.py PRELOADED_CALLS_TEST"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)


def run(stats: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "ONEBIT_NCCL_STATS": stats, "CUDA_STAND_IN_DEVICES": "5"}
    return subprocess.run(
        [PROGRAM, "--gtest_filter=*TensorsAreCompressedAfterTheirStart"],
        env=environment, check=True, capture_output=True, text=True, timeout=200,
    )


def rows(table: str) -> dict:
    """Calls and bytes by outcome."""
    first, head, *lines, traffic, residuals = table.splitlines()
    assert first.startswith("onebit: NCCL calls in process "), first
    assert head.split() == ["communicator", "ranks", "operation", "type", "calls", "bytes", "outcome"], head
    found = {}
    for line in lines:
        name, ranks, operation, kind, calls, size, *outcome = line.split()
        assert (name, ranks, operation, kind) == ("dp", "3", "allreduce", "float32"), line
        found[" ".join(outcome)] = (int(calls), int(size))
    match = re.match(
        r"dp: (\d+) compressed calls sent (\d+) bytes, where NCCL's ring sends (\d+); 0 met a NaN or infinity; "
        r"\d+\.\d+ s of host time$", traffic)
    assert match, traffic
    calls, sent, ring = map(int, match.groups())
    assert calls == found["compressed"][0], traffic
    assert 0 <= found["compressed"][1] * 2 * 2 / 3 - ring <= calls, traffic  # rounded down in each
    match = re.match(r"dp: the residuals of this rank's inputs have norm (\S+) and root mean square (\S+)$", residuals)
    assert match, residuals
    norm, mean = map(float, match.groups())
    # Three ranks have 20,000 and 30,000 elements each. Elements of the gradient are about 1.
    assert abs(norm / (mean * (3 * 50_000) ** 0.5) - 1) < 0.01 and 0.02 < mean < 1, residuals
    # 4 bits and a scale of 16 bits for 128 elements, headers and padding.
    assert ring / 8 < sent < ring / 7, traffic
    return found


class StatsTest(unittest.TestCase):
    def check(self, table: str):
        found = rows(table)
        self.assertEqual(set(found), {"compressed", "start", "order unknown", "no rule"})
        # Three tensors, 40 steps, three ranks.
        self.assertEqual(sum(calls for calls, _ in found.values()), 3 * 3 * 40)
        self.assertEqual(found["no rule"], (3 * 40, 3 * 40 * 400))
        self.assertEqual(found["start"][0], 3 * 2 * 2)
        self.assertEqual(sum(size for _, size in found.values()), 3 * 40 * 4 * (20_000 + 30_000 + 100))

    def test_a_file_for_each_process(self):
        with tempfile.TemporaryDirectory() as folder:
            run(f"{folder}/%p.txt")
            (file,) = pathlib.Path(folder).iterdir()
            self.assertTrue(file.stem.isdigit())
            self.check(file.read_text(encoding="utf-8"))

    def test_standard_error(self):
        text = run("stderr").stderr
        self.check(text[text.index("onebit: NCCL calls"):])

    def test_a_signal_asks_for_the_table(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "ONEBIT_NCCL_STATS": f"{folder}/table,USR2", "CUDA_STAND_IN_DEVICES": "5"}
            command = [PROGRAM, "--gtest_filter=*TensorsAreCompressedAfterTheirStart", "--gtest_repeat=-1"]
            table = pathlib.Path(folder, "table")
            text = ""
            with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
                try:
                    # The first communicator has ended, so the handler is there.
                    for line in process.stdout:
                        if "[  PASSED  ]" in line:
                            break
                    process.send_signal(signal.SIGUSR2)
                    for line in process.stdout:
                        text = table.read_text(encoding="utf-8") if table.exists() else ""
                        if re.search("root mean square .*\n$", text):  # it is complete
                            break
                finally:
                    process.kill()
            self.assertIn(" compressed calls sent ", text)

    def test_a_file_that_cannot_be_written_is_named(self):
        text = run("/nowhere/stats").stderr
        self.assertIn("ONEBIT_NCCL_STATS: /nowhere/stats cannot be written: No such file", text)


if __name__ == "__main__":
    unittest.main()
