# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Outer optimizers of processes, of which one is killed while an average is on its way, and another takes its
place: torch_outer_job_test.py ONEBIT_RUN"""

import json
import pathlib
import sys
import unittest

from needs_torch import torch
from rank_jobs import Jobs

run_job = Jobs(sys.argv.pop(1), pathlib.Path(__file__).with_name("torch_outer_rank.py")).run
RANKS = 4
VICTIM = 1


class OuterJobTest(unittest.TestCase):
    def check(self, when, **options):
        found = run_job(RANKS, when, json.dumps(options), is_failing=True)
        self.assertEqual(sorted(found), list(range(RANKS)))  # the victim's is that of its successor
        survivors = [found[rank] for rank in found if rank != VICTIM]
        for each in survivors:
            self.assertEqual(each["ranks"], RANKS - 1)
            self.assertEqual(len(each["errors"]), 1, each["errors"])
            self.assertIn(f"rank {VICTIM}", each["errors"][0])
            self.assertEqual(each["shrunk"], survivors[0]["shrunk"])
            self.assertEqual(each["shrunk"]["steps"], 20)
            # Fragment 0 after 3, 9 and 15, and fragment 1 after 6, 12 and 18.
            self.assertEqual(each["shrunk"]["rounds"], 6)
        for each in found.values():
            for place in ("joined", "end"):
                self.assertEqual(each[place], survivors[0][place])
            self.assertEqual(each["joined"]["steps"], 31)
            self.assertEqual(each["end"]["steps"], 45)
            self.assertEqual(each["end"]["skipped"], 0)
        self.assertNotEqual(survivors[0]["joined"]["values"], survivors[0]["end"]["values"])

    def test_a_rank_is_killed_before_an_average(self):
        self.check("before", codec="fp4", mode="ef")

    def test_a_rank_is_killed_after_an_average(self):
        self.check("after", codec="fp4")


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__}")
    unittest.main()
