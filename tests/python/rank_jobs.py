# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs of processes whose ranks write what they find to files."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest


class Jobs:
    """Runs jobs of a program, started as PROGRAM FOLDER ARGUMENT..., whose rank r writes
    FOLDER/r.json."""

    def __init__(self, onebit_run: str, program: pathlib.Path):
        self._onebit_run = onebit_run
        self._program = program

    def run(self, ranks: int, *arguments: str, is_failing: bool = False, **environment: str) -> dict:
        """Runs a job with variables of `environment`, and returns the findings of each rank, by its number."""
        with tempfile.TemporaryDirectory() as folder:
            command = [self._onebit_run, "-n", str(ranks), "--grace", "60"]
            command += [sys.executable, "-B", str(self._program), folder, *arguments]
            result = subprocess.run(
                command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
            )
            assert (result.returncode != 0) == is_failing, result.stderr
            return {
                int(path.stem): json.loads(path.read_text(encoding="utf-8"))
                for path in pathlib.Path(folder).glob("*.json")
            }


class TestOfCases(unittest.TestCase):
    """Tests that look at what one job of two ranks has found: rank_cases.py runs its cases."""

    jobs: Jobs

    @classmethod
    def setUpClass(cls):
        cls.ranks = cls.jobs.run(2)

    def found(self, case: str) -> list:
        """What a case has found on each rank; a case that failed says so."""
        found = [each[case] for each in self.ranks.values()]
        self.assertEqual(len(found), 2)
        for each in found:
            self.assertNotIn("failed", each, each.get("failed"))
        return found


def ceil_to(number: int, unit: int) -> int:
    """The next multiple of `unit`."""
    return -(-number // unit) * unit
