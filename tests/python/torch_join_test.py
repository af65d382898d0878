# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Optimizers of three ranks that have unequal numbers of batches, or other optimizers beside them.

    torch_join_test.py ONEBIT_RUN
"""

import pathlib
import sys
import unittest

from needs_torch import torch
from rank_jobs import Jobs

RANK = pathlib.Path(__file__).with_name("torch_join_rank.py")
run_job = Jobs(sys.argv.pop(1), RANK).run


class TorchJoinTest(unittest.TestCase):
    def test_each_case_passes_on_each_rank(self):
        ranks = run_job(3)
        self.assertEqual(sorted(ranks), [0, 1, 2])
        for rank, cases in ranks.items():
            self.assertEqual(len(cases), 5)
            for name, found in cases.items():
                with self.subTest(name=name, rank=rank):
                    self.assertIsNone(found, (found or {}).get("failed"))


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__}")
    unittest.main()
