# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Models that fully_shard has sharded, in jobs of real processes: fsdp_test.py ONEBIT_RUN"""

import pathlib
import sys
import tempfile
import unittest

from needs_torch import torch
from rank_jobs import Jobs

if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 15):
    print(f"PyTorch {torch.__version__} is older than 2.15")
    sys.exit(77)

ONEBIT_RUN = sys.argv.pop(1)
run_job = Jobs(ONEBIT_RUN, pathlib.Path(__file__).with_name("fsdp_rank.py")).run


class ReplicasTest(unittest.TestCase):
    """Two replicas of two shards each."""

    def test_full_precision_has_the_bits_of_hsdp(self):
        for each in run_job(4, "full_precision").values():
            for name in ("is_equal 1", "is_equal 3", "is_equal without sync"):
                self.assertTrue(each[name], name)
            self.assertEqual(each["iterations without sync"], 2)
            # Micro-steps send what a single one does.
            (sent, dense), more = each["bytes 1"], each["bytes 3"]
            self.assertEqual(dense, more[1])
            self.assertAlmostEqual(sent / more[0], 1, delta=1e-3)  # joining is in both
            self.assertLess(sent, 1.01 * dense)

    def test_training_learns_as_without_it(self):
        for codec, most, share in (("fp4", 1.05, 1 / 7), ("int8", 1.005, 1 / 3.7)):
            with self.subTest(codec=codec):
                for each in run_job(4, "learns", codec).values():
                    self.assertLess(each["loss"], most * each["dense_loss"])
                    self.assertLess(each["dense_loss"], 0.3)  # it began at log(64), 4.16
                    self.assertLess(each["share"], share)
                    self.assertEqual(each["micro_step_share"], each["share"])
                    self.assertEqual(each["counts"], [60, 2, 0])
                    self.assertEqual(set(each["norms"]), {"blocks.0", "blocks.1", "(root)"})
                    self.assertTrue(all(norm > 0 for norm in each["norms"].values()))
                    self.assertIn("60 iterations: 2 dense", each["text"])

    def test_what_fully_shard_is_combined_with(self):
        for each in run_job(4, "modes").values():
            self.assertEqual(len(each), 9)
            for name, (native, own, skipped) in each.items():
                self.assertLess(own, 1.05 * native, name)
                self.assertLess(native, 3.5, name)  # it began at log(64), 4.16
                self.assertEqual(skipped > 0, "scaler" in name, name)

    def test_gradients_that_are_missing(self):
        found = run_job(4, "unused")
        text = "".join(each["text"] for each in found.values())
        self.assertIn(
            'module "blocks.0" has gradients of 64 elements on this rank now, and had 14592 before', text
        )
        self.assertIn("Call model.set_reduce_scatter_unused_params(True)", text)
        for each in found.values():
            self.assertNotEqual(each["text"], "")
            self.assertEqual(each["calls"], 10)
            self.assertEqual(each["iterations"], 8)
            self.assertIn(
                'module "blocks.1": there are gradients of earlier micro-steps, but none of the last one',
                each["late_text"],
            )
            self.assertTrue(each["late_equal"])

    def test_averages_outside_of_backward_passes(self):
        for each in run_job(4, "outside").values():
            self.assertTrue(each["is_same"])
            self.assertEqual(each["counts"], [3, 1])

    def test_a_divide_factor_makes_sums(self):
        for each in run_job(4, "divide_factor").values():
            self.assertLess(each["1.0"], 1e-6)
            self.assertLess(each["3.0"], 1e-6)
            self.assertLess(each["compressed"], 1e-6)

    def test_a_skipped_step_leaves_residuals_of_all_shards(self):
        found = run_job(4, "skipped")
        self.assertEqual(
            [found[rank]["is_finite_here"] for rank in range(4)], [False, True, False, True]
        )
        for each in found.values():
            self.assertTrue(each["is_same"])
            self.assertTrue(each["has_changed"])
            self.assertTrue(each["is_reverted"])
            self.assertEqual([each["skipped"], each["skipped_at_last"]], [1, 2])

    def test_a_failed_backward_pass_leaves_residuals(self):
        for each in run_job(4, "failed_pass").values():
            self.assertTrue(each["is_same"])

    def test_checkpoints(self):
        with tempfile.TemporaryDirectory() as folder:
            straight = run_job(4, "save", folder)
            resumed = run_job(4, "resume", folder)
            more = run_job(6, "resume", folder)
        self.assertEqual(
            [straight[rank]["shard"] for rank in range(4)], [[0, 2], [1, 2], [0, 2], [1, 2]]
        )
        self.assertEqual(resumed[0]["digest"], straight[0]["digest"])
        for rank, each in [*resumed.items(), *more.items()]:
            self.assertLess(each["error"], 1e-6)
            others, other, none = each["texts"]
            self.assertIn("the state is of one of 4 shards, but the model has 2 here", others)
            self.assertIn(
                f"the state is of shard {1 - rank % 2} of 2, but this rank has shard {rank % 2}", other
            )
            self.assertIn("the state's shard is None", none)

    def test_a_killed_rank_ends_all(self):
        for codec in ("int8", "lossless"):
            found = run_job(4, "loss_of_a_rank", codec, is_failing=True, ONEBIT_LOSS_TIMEOUT_MS="60000")
            self.assertIn("rank 1 (global rank 3) ", found[2]["text"])  # the number in its shard group first
        found = run_job(4, "loss_of_a_rank", is_failing=True, ONEBIT_LOSS_TIMEOUT_MS="60000")
        self.assertEqual(sorted(found), [0, 1, 2])
        for rank, each in found.items():
            # PyTorch's own collectives tell the ranks of its shards.
            self.assertEqual(each["kind"], "RuntimeError" if rank == 2 else "PeerLost")
            self.assertEqual(each["failure"][0], "PeerLost")
            self.assertIn("rank 3 is gone", each["failure"][1])
            self.assertLess(each["seconds"], 30)  # half of the time-out, so that none has waited for it


class ShardsTest(unittest.TestCase):
    """A model that is sharded over four ranks."""

    def test_training_learns_as_without_it(self):
        found = run_job(4, "shards")
        for each in found.values():
            stock = each["stock"]["loss"]
            self.assertLess(stock, 0.3)  # it began at log(64), 4.16
            for name, most in {
                "off": 1.0001,
                "int8": 1.001,
                "gathered": 1.02,
                "gathered only": 1.02,
                "gathered, kept": 1.02,
                "gathered, from fewer": 1.02,
                "ef": 1.05,
                "bf16": 1.05,
                "fp16 with a scaler": 2.5,  # it loses steps until its scale fits
            }.items():
                self.assertLess(each[name]["loss"], most * stock, name)
                self.assertEqual(each[name]["counts"][0], 60, name)
            self.assertLess(each["off"]["share"], 1.01)
            self.assertLess(each["int8"]["share"], 1 / 3.8)
            self.assertLess(each["gathered"]["share"], 1 / 3.8)
            self.assertLess(each["gathered only"]["share"], 0.55)
            # Backward passes gather what forward passes have gathered.
            self.assertEqual(each["lossless"]["loss"], each["off"]["loss"])
            self.assertLess(each["lossless"]["share"], 0.75)
            # All-gathers are two thirds of what is sent in full, and here next to nothing.
            self.assertEqual(each["slow lossless bf16"]["loss"], each["slow bf16"]["loss"])
            self.assertLess(each["slow lossless bf16"]["share"], 0.5)
            self.assertEqual(each["lossless"]["kept"], 0)  # no copy of the weights after close()
            self.assertLess(each["ef"]["share"], 1 / 7)
            # Residuals are kept by request, and those of the whole model.
            self.assertEqual(each["int8"]["elements"], 0)
            self.assertGreaterEqual(each["ef"]["elements"], each["parameters"])

    def test_checkpoints(self):
        with tempfile.TemporaryDirectory() as folder:
            found = run_job(4, "resumed_shards", folder)
        for each in found.values():
            self.assertEqual(each["files"][0], each["files"][1])
            self.assertTrue(each["is_loaded"])
            self.assertTrue(each["is_continued"])
            self.assertLess(max(each["errors"]), 1e-6)
            self.assertIn("one of 3 shards, but the model has 4 here", each["text"])


class BothTest(unittest.TestCase):
    def test_both_at_once(self):
        for each in run_job(4, "both").values():
            self.assertLess(each["loss"], 0.8)
            self.assertIn("this onebit.torch.fsdp.ShardState is closed", each["closed"])

    def test_refusals(self):
        for each in run_job(4, "refusals").values():
            for name in ("replicas", "shards"):
                self.assertIn(
                    "no module of this Gpt is sharded: call fully_shard first", each[f"{name} plain"]
                )
                self.assertIn("FullyShardedDataParallel (FSDP1) is not supported", each[f"{name} FSDP1"])
                self.assertIn("already", each[f"{name} twice"])
            self.assertIn("compress_replicas", each["State"])
            self.assertIn("the model itself is sharded over a mesh with replicas", each["native"])
            self.assertIn("a mesh of 2 dimensions", each["mesh"])
            self.assertIn("hold different shards of the model itself", each["overlap"])
            self.assertIn("replicas is a int", each["kind"])
            self.assertIn('gather="topk" does not suit weights', each["gather"])
            self.assertEqual(len(each["codecs"]), 12)
            for number, text in enumerate(each["codecs"]):
                given = ("'int9'", "1.5", "['fp4']")[number % 3]
                self.assertIn(f"InvalidArgument: {given} is not a Codec: use one of sign, fp4, int8", text)
            self.assertEqual(len(set(each["auto"])), 1)
            self.assertIn('InvalidArgument: "auto" is for onebit.torch.State, the hook of Dist', each["auto"][0])
            self.assertIn('name a codec here, such as "int8" or "fp4"', each["auto"][0])
            self.assertIn("sharded over 2 sets of ranks, [", each["sets"])

    def test_warnings(self):
        for rank, each in run_job(4, "doubts").items():
            for codec, of_doors in each["lossy"].items():
                for texts in of_doors:
                    self.assertEqual(len(texts), 1, codec)
                    self.assertIn(f'codec="{codec}" has no error feedback here', texts[0])
            self.assertEqual(each["fine"], [])
            self.assertEqual(len(each["ef"]), 1)
            self.assertIn("5 to 18 % higher", each["ef"][0])
            number = int(rank == 0)  # ranks would say the same
            for name, function in zip(("compress_replicas", "compress_shards"), each["left"]):
                self.assertEqual(len(function), number)
                for text in function:
                    self.assertIn(f"{name}: fully_shard has not sharded classes.weight, last.weight, so", text)
                    self.assertIn("call fully_shard(model), which takes", text)
            self.assertEqual(len(each["dense replicas"]), number)
            for text in each["dense replicas"]:
                self.assertIn("a mesh with replicas, over which PyTorch averages in full precision", text)
                self.assertIn("the other one to onebit.torch.fsdp.compress_replicas", text)


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__}")
    unittest.main()
