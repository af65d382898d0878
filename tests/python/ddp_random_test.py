# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Random models in random modes of DDP, with the hook and in full precision:

    ddp_random_test.py ONEBIT_RUN [COUNT]
"""

import pathlib
import sys
import unittest

from needs_torch import torch
from rank_jobs import Jobs

run_job = Jobs(sys.argv.pop(1), pathlib.Path(__file__).with_name("ddp_random_rank.py")).run
COUNT = int(sys.argv.pop(1)) if len(sys.argv) > 1 else 20


class DdpRandomTest(unittest.TestCase):
    def test_random_models_are_trained_as_in_full_precision(self):
        found = run_job(2, "0", str(COUNT))
        self.assertEqual(len(found), 2)
        for each in found.values():
            for seed, text in each["failed"].items():
                self.fail(f"seed {seed}: {text}")
            for mode in ("", "static", "unused", "join", "join by remaining"):
                self.assertGreater(each["modes"].get(f"special {mode}", 0), 0, mode)
        print(COUNT, "models:", found[0]["modes"])


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__}")
    unittest.main()
