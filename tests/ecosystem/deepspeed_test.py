# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's 1-bit optimizers and ours, whose variant is theirs, on the same gradients: deepspeed_test.py
ONEBIT_RUN"""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

from rank_jobs import Jobs  # pylint: disable=wrong-import-position

JOBS = Jobs(sys.argv.pop(1), pathlib.Path(__file__).with_name("deepspeed_rank.py"))
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}


class DeepSpeedTest(unittest.TestCase):
    def assert_same_way(self, case: str) -> None:
        for ranks in (2, 4):
            with self.subTest(ranks=ranks):
                for rank, found in JOBS.run(ranks, case, **ENVIRONMENT).items():
                    apart = [distance / max(norm, 1e-9)
                             for distance, norm in zip(found["distances"], found["norms"])]
                    print(f"{case}, rank {rank} of {ranks}: at most {max(apart):.1e} apart; {found['stats']}")
                    self.assertGreater(found["norms"][-1], 1.0)
                    # No element is so near to 0 that another order of a sum gives it another sign: with longer
                    # tensors or more steps that happens, and the ways part.
                    self.assertLess(max(apart), 1e-5)

    def test_adam(self):
        self.assert_same_way("adam")

    def test_lamb(self):
        self.assert_same_way("lamb")

    def test_zero_one_adam(self):
        self.assert_same_way("zero_one_adam")


if __name__ == "__main__":
    unittest.main(verbosity=2)
