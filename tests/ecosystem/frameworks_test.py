# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The optimizers and the hook in frameworks as they are published, on tiny models of theirs:
frameworks_test.py ONEBIT_RUN"""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

from framework_settings import ENVIRONMENT  # pylint: disable=wrong-import-position
from rank_jobs import Jobs  # pylint: disable=wrong-import-position

JOBS = Jobs(sys.argv.pop(1), pathlib.Path(__file__).with_name("frameworks_rank.py"))


class FrameworksTest(unittest.TestCase):
    def assert_cases_pass(self, ranks: int, framework: str, folder: str = "") -> None:
        with tempfile.TemporaryDirectory() as own:
            found = JOBS.run(ranks, folder or own, framework, **ENVIRONMENT)
        self.assertEqual(sorted(found), list(range(ranks)))
        for rank, cases in found.items():
            self.assertNotEqual(cases, {})
            for name, result in cases.items():
                with self.subTest(framework=framework, name=name, rank=rank):
                    self.assertNotIn("failed", result or {}, (result or {}).get("failed"))
                if rank == 0 and result:
                    print(f"{framework}, {ranks} ranks, {name}: {result}")

    def test_transformers(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assert_cases_pass(2, "transformers", folder)
            self.assert_cases_pass(3, "resumed", folder)  # from a checkpoint of two ranks

    def test_one_rank_of_transformers(self):
        self.assert_cases_pass(1, "alone")
        self.assert_cases_pass(1, "launched")

    def test_accelerate(self):
        self.assert_cases_pass(2, "accelerate")

    def test_lightning(self):
        self.assert_cases_pass(2, "lightning")

    def test_deepspeed(self):
        self.assert_cases_pass(2, "deepspeed")


if __name__ == "__main__":
    unittest.main(verbosity=2)
