# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Optimizers whose gradients something else averages, which they notice, and the remedy.

    own_averaging_test.py ONEBIT_RUN
"""

import pathlib
import sys
import unittest

from needs_torch import torch
from rank_jobs import Jobs

RANK = pathlib.Path(__file__).with_name("own_averaging_rank.py")
run_job = Jobs(sys.argv.pop(1), RANK).run


class OwnAveragingTest(unittest.TestCase):
    def assert_cases_pass(self, size: int, *names: str) -> None:
        ranks = run_job(size, *names)
        self.assertEqual(sorted(ranks), list(range(size)))
        for rank, cases in ranks.items():
            self.assertGreaterEqual(len(cases), len(names) or 12)
            for name, found in cases.items():
                with self.subTest(name=name, rank=rank):
                    self.assertIsNone(found, (found or {}).get("failed"))

    def test_each_case_passes_on_two_ranks(self):
        self.assert_cases_pass(2)

    def test_three_ranks(self):
        self.assert_cases_pass(3, "averaged_gradients_are_noticed", "the_remedy_ends_it",
                               "ranks_without_batches_raise_no_alarm")


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__}")
    unittest.main()
