# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A rank of PyTorch that is alone in a collective call, while others are elsewhere, or not there yet."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from needs_torch import torch

import waits_rank

RANKS = 2
# The time of a call in which the others do not come.
VARIABLES = {"ONEBIT_CONNECT_TIMEOUT_MS": "10000"}


class WaitsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        program = [sys.executable, "-B", waits_rank.__file__]
        with tempfile.TemporaryDirectory() as folder:
            job = [
                subprocess.Popen([*program, folder, str(r), str(RANKS)], env={**os.environ, **VARIABLES})
                for r in range(RANKS)
            ]
            cls.statuses = [rank.wait(100) for rank in job]
            cls.found = {
                int(path.stem): json.loads(path.read_text(encoding="utf-8"))
                for path in pathlib.Path(folder).glob("?.json")
            }

    def test_who_waits_for_long_is_told_once(self):
        self.assertEqual(self.statuses, [0, 0])
        calls = {
            "state": "state_dict()",
            "again": "state_dict()",
            "optimizer": "state_dict()",
            "global": "state_dict()",
            "synchronize": "synchronize()",
            "compressor": "export_state()",
            "group": "add_param_group()",
        }
        self.assertEqual(self.found[0]["late"].keys(), calls.keys())
        for name, call in calls.items():
            ((text, file),) = self.found[0]["late"][name]
            self.assertIn(f"{call} has waited 0.3 s for other ranks", text)
            self.assertIn("on rank 0 of 2; it is collective: all ranks must call it", text)
            self.assertEqual(file, "waits_rank.py")

    def test_other_waits_are_quiet(self):
        for rank in range(RANKS):
            self.assertEqual(self.found[rank]["quiet"], [])

    def test_a_rank_that_saves_alone_learns_why_it_waits(self):
        alone = self.found[0]["alone"]
        ((text, _),) = alone["warned"]
        self.assertIn("state_dict() has waited", text)
        self.assertIn("Timeout: state_dict() is collective: all ranks must call it: rank 0 of 2", alone["text"])
        self.assertIn("rank 1 missing", alone["text"])
        self.assertIn("RuntimeError", self.found[1]["alone"]["text"])


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__}")
    unittest.main()
