# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""ctest_progress.py estimates from what is known, and passes on what ctest prints and ends with."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import ctest_progress
from ctest_progress import Progress

COSTS = {"long": 90.0, "short": 10.0}


class ProgressTest(unittest.TestCase):
    def test_the_pace_of_the_last_run_is_the_first_guess(self):
        progress = Progress(["long", "short"], COSTS, 2.0)
        self.assertEqual(progress.line(0), "-- 0 of 2 tests, 0 s so far, about 50 s left")

    def test_its_own_pace_counts_soon(self):
        progress = Progress(["long", "short"], COSTS, 2.0)
        progress.end("short")
        self.assertEqual(progress.line(20), "-- 1 of 2 tests, 20 s so far, about 3 min left")
        progress.end("long")
        self.assertEqual(progress.line(100), "-- 2 of 2 tests, 2 min so far, about 0 s left")

    def test_without_a_former_run_tests_count_alike(self):
        progress = Progress([str(number) for number in range(100)], {}, None)
        self.assertEqual(progress.line(0), "-- 0 of 100 tests, 0 s so far, no estimate yet")
        for number in range(20):
            progress.end(str(number))
        self.assertEqual(progress.line(10), "-- 20 of 100 tests, 10 s so far, about 40 s left")

    def test_a_new_test_costs_what_others_do(self):
        self.assertEqual(Progress(["long", "short", "new"], COSTS, 1.0).seconds_left(0), 150)

    def test_ctest(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "CTestTestfile.cmake").write_text('add_test(good true)\nadd_test(bad sh -c "exit 1")\n')
            command = [sys.executable, "-B", ctest_progress.__file__, name, "ctest", "--test-dir", name]
            first = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertEqual(first.returncode, 8, first)
            self.assertIn("-- 0 of 2 tests, 0 s so far, no estimate yet\n", first.stdout)
            self.assertIn("50% tests passed, 1 tests failed out of 2", first.stdout)
            second = subprocess.run([*command, "-R", "good"], capture_output=True, text=True, check=False)
            self.assertEqual(second.returncode, 0, second)
            self.assertIn("-- 0 of 1 tests, 0 s so far, about 0 s left\n", second.stdout)


if __name__ == "__main__":
    unittest.main()
