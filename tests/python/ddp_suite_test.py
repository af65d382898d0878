# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's tests ask of DDP holds with the hook, too: ddp_suite_test.py ONEBIT_RUN; one job of two ranks."""

import pathlib
import sys
import unittest

from needs_torch import torch
from rank_jobs import Jobs

run_job = Jobs(sys.argv.pop(1), pathlib.Path(__file__).with_name("ddp_suite_rank.py")).run


class DdpSuiteTest(unittest.TestCase):
    def test_each_case_passes_on_each_rank(self):
        ranks = run_job(2)
        self.assertEqual(len(ranks), 2)
        for rank, cases in ranks.items():
            self.assertGreater(len(cases), 20)
            for name, found in cases.items():
                with self.subTest(name=name, rank=rank):
                    if isinstance(found, str):
                        self.assertLess(torch.__version__, "2", found)
                        print(f"{name} skipped: {found}")
                    else:
                        self.assertIsNone(found, (found or {}).get("failed"))


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__}")
    unittest.main()
