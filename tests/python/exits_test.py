# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks of PyTorch that leave, fail, are interrupted, or make calls that the others do not make."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from needs_torch import torch

import exits_rank

RANKS = 3


class ExitsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        program = [sys.executable, "-B", exits_rank.__file__]
        with tempfile.TemporaryDirectory() as folder:
            job = [subprocess.Popen([*program, folder, str(r), str(RANKS)]) for r in range(RANKS)]
            cls.statuses = [rank.wait(100) for rank in job]
            cls.found = {
                int(path.stem): json.loads(path.read_text(encoding="utf-8"))
                for path in pathlib.Path(folder).glob("*.json")
            }

    def test_a_rank_that_saves_alone_is_named_everywhere(self):
        for alone in (0, 1):
            for rank in (1, 2):
                text = self.found[rank]["different"][f"state_dict on {alone}"]
                self.assertIn("Mismatch", text)
                self.assertIn(f"rank {alone} is exporting the state of a compressor", text)
                self.assertEqual("state_dict() is collective: all ranks must call it" in text, rank == alone)
        for rank in (1, 2):
            text = self.found[rank]["different"]["optimizer"]
            self.assertIn("rank 1 is exporting the state of", text)
            self.assertEqual("state_dict() is collective: all ranks must call it" in text, rank == 1)

    def test_a_rank_that_shrinks_alone_is_followed(self):
        for rank in (1, 2):
            found = self.found[rank]["different"]
            self.assertIn("rank 0 is shrinking the communicator", found["shrink"])
            self.assertEqual(found["shrunk"], RANKS)

    def test_an_interrupt_ends_a_wait(self):
        for where in ("in the hook", "in a call"):
            self.assertEqual(self.found[1]["interrupts"][where], "KeyboardInterrupt")
            text = self.found[2]["interrupts"][where]
            self.assertIn("rank 1 was aborted: its program failed or ended, was interrupted (Ctrl-C)", text)
        self.assertEqual(self.found[1]["interrupts"]["while joining"], "KeyboardInterrupt")
        self.assertTrue(self.found[1]["interrupts"]["whole"])

    def test_a_program_that_handles_the_signal_goes_on(self):
        for rank in (1, 2):
            self.assertEqual(self.found[rank]["interrupts"]["handled"], "")

    def test_who_leaves_early_is_missed_by_those_that_need_it(self):
        self.assertEqual(self.statuses, [0, 0, 0])
        for rank in (1, 2):
            found = self.found[rank]["left"]
            self.assertTrue(found["has rank 0 ended"])
            self.assertEqual(found["values"], [7.0] * 4)
            self.assertIn(": rank 0 has left (its program ended", found["text"])
            self.assertNotIn("is gone", found["text"])
            self.assertNotIn("failed first", found["text"])

    def test_a_shell_of_slurm_is_told_how_to_run_one_rank(self):
        variables = {
            "SLURM_PROCID": "0",
            "SLURM_NTASKS": "4",
            "SLURM_JOB_ID": "77",
            "SLURM_JOB_NODELIST": "localhost",
            "ONEBIT_CONNECT_TIMEOUT_MS": "300",
        }
        command = [sys.executable, "-B", "-c"]
        command += ["import onebit; print(onebit.Communicator.from_environment().size)"]

        def run(**more: str) -> subprocess.CompletedProcess:
            with tempfile.TemporaryDirectory() as folder:
                environment = {**os.environ, **variables, "TMPDIR": folder, **more}
                return subprocess.run(
                    command, env=environment, capture_output=True, text=True, check=False
                )

        self.assertIn(
            "SLURM_PROCID and SLURM_NTASKS made this process rank 0 of 4: start all ranks by srun",
            run().stderr,
        )
        self.assertEqual(run(RANK="0", WORLD_SIZE="1").stdout, "1\n")


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__}")
    unittest.main()
