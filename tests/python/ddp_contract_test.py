# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What DDP promises holds with the hook, too: ddp_contract_test.py ONEBIT_RUN; one job of two ranks."""

import pathlib
import sys
import unittest

from needs_torch import torch
from rank_jobs import Jobs, TestOfCases

JOBS = Jobs(sys.argv.pop(1), pathlib.Path(__file__).with_name("ddp_contract_rank.py"))


class DdpContractTest(TestOfCases):
    jobs = JOBS

    def test_a_bucket_is_what_its_parts_cover(self):
        for each in self.found("forged_buckets"):
            self.assertEqual(len(each), 10)

    def test_types_and_layouts_are_averaged(self):
        for each in self.found("all_kinds_of_parameters"):
            self.assertEqual(len(each["texts"]), 1 if torch.__version__ < "2" else 2)
            self.assertIn("fp64: averaged in full precision", each["texts"][0])

    def test_sparse_gradients_are_averaged(self):
        for each in self.found("sparse_gradients"):
            self.assertEqual(len(each["texts"]), 1)
            self.assertIn("0.weight: averaged in full precision", each["texts"][0])
            self.assertIn("sparse=False", each["texts"][0])

    def test_dropped_steps_stay_owed(self):
        for each in self.found("dropped_steps"):
            self.assertLess(each["error"], 1e-5)
            self.assertGreater(each["error_without_revert"], 0.01)

    def test_all_modes_keep_what_is_owed(self):
        for each in self.found("modes_with_residuals"):
            self.assertEqual(len(each), 5 if torch.__version__ < "2" else 6)
            for mode, error in each.items():
                self.assertLess(error, 1e-5, mode)

    def test_uneven_batches_count_as_documented(self):
        for each in self.found("uneven_batches"):
            self.assertLess(each["all"], 1e-5)
            self.assertLess(each["remaining"], 1e-5)

    def test_a_load_is_all_or_nothing(self):
        for each in self.found("loaded_states"):
            self.assertIn("the residual of third: the state is damaged", each["damaged"])
            self.assertIn("give the model the memory_format that it had", each["turned"])
            self.assertIn("must be how many iterations there were", each["iteration"])
            self.assertIn("residuals of gone, first, second are dropped", each["dropped"])
            self.assertEqual(len(each["closed"]), 4)
            for text in each["closed"]:
                self.assertIn("this onebit.torch.State is closed", text)

    def test_wrapped_models_can_be_copied(self):
        for each in self.found("copied_models"):
            self.assertIn("construct one for this model", each["text"])

    def test_reports_answer_at_the_end_of_the_program(self):
        self.assertEqual([each["reports_at_the_end"] for each in self.ranks.values()], [[2, 2], [2, 2]])


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__}")
    unittest.main()
