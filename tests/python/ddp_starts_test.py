# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""How a training with the hook begins: ddp_starts_test.py ONEBIT_RUN; one job of two ranks."""

import pathlib
import sys
import unittest

from needs_torch import torch
from rank_jobs import Jobs, TestOfCases

JOBS = Jobs(sys.argv.pop(1), pathlib.Path(__file__).with_name("ddp_starts_rank.py"))

WARM_UP = ["dense"] * 2
TURNS = ["fp4", "dense"] * 8


class DdpStartsTest(TestOfCases):
    jobs = JOBS

    def test_a_state_made_before_the_group_joins_at_the_first_average(self):
        for each in self.found("a_state_made_before_the_group"):
            self.assertEqual(each["before"], [0, 0])
            self.assertEqual(each["dense"], [2, 2, 0])
            self.assertTrue(each["is_same"] and each["is_kept"] and each["is_equal"] and each["finite"])
            self.assertLess(max(each["owed"]), 1.0)

    def test_a_rank_that_waits_for_rank_0_says_so(self):
        for each in self.found("rank_0_is_late"):
            self.assertEqual(each["said"], "rank 1 has waited 0.1 s for rank 0, or others, of the process group: a onebit "
                             "State or optimizer is constructed on all ranks, at the same point of the program")

    def test_a_hook_without_a_state_is_refused(self):
        for each in self.found("a_hook_without_a_state"):
            self.assertIn("needs a State, and was registered with None: call model.register_comm_hook(", each["said"])

    def chosen(self, case: str, is_compressed: bool, seconds: float):
        for each in self.found(case):
            self.assertEqual(each["sent"][:18], WARM_UP + TURNS)
            self.assertEqual(each["trial"][0], 1.0)
            self.assertAlmostEqual(each["trial"][1], seconds, places=6)
            self.assertEqual(each["trial"][2], is_compressed)
            yield each

    def test_auto_compresses_where_the_network_is_slow(self):
        for each in self.chosen("auto_where_the_network_is_slow", True, 0.5):
            self.assertEqual(each["sent"][18:], ["fp4"] * 8)
            self.assertEqual([each["dense_iterations"], each["residuals"]], [10, 1])
            self.assertIn("auto: fp4, because an iteration took 1000.0 ms in full precision and 500.0 ms", each["text"])

    def test_auto_leaves_a_fast_network_alone_and_owes_nothing(self):
        for case, seconds in (("auto_where_the_network_is_free", 1.1), ("auto_where_it_makes_no_difference", 0.99)):
            for each in self.chosen(case, False, seconds):
                self.assertEqual(set(each["sent"][18:]), {"dense"})
                self.assertEqual([each["dense_iterations"], each["residuals"]], [18, 0])
                self.assertIn("auto: full precision, because", each["text"])
                self.assertLess(each["owed"], 1e-3)

    def test_a_training_that_goes_back_to_its_beginning_is_dense_again(self):
        for each in self.found("an_early_state_again"):
            self.assertEqual(each["dense"], 2 * [1, 1, 0, 0])

    def test_codecs_that_adam_does_not_bear_are_said_to_be_such(self):
        for each in self.found("coarse_codecs"):
            self.assertEqual({codec: len(texts) for codec, texts in each.items()},
                             {"sign": 1, "int2": 1, "fp4": 0, "int8": 0, "bf16": 0, "auto": 0})
            self.assertIn("onebit.torch.optim", each["sign"][0])


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__}")
    unittest.main()
