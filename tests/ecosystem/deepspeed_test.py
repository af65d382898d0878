# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's 1-bit optimizers and ours, whose variant is theirs, on the same gradients."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

RANK_PROGRAM = pathlib.Path(__file__).with_name("deepspeed_rank.py")


def run_ranks(ranks: int, case: str) -> list:
    """What each rank found."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
        result = subprocess.run([*command, str(RANK_PROGRAM), folder, case], env=environment, capture_output=True,
                                text=True, check=False, timeout=300)
        assert result.returncode == 0, result.stdout + result.stderr
        return [json.loads((pathlib.Path(folder) / f"{rank}.json").read_text("utf-8")) for rank in range(ranks)]


class DeepSpeedTest(unittest.TestCase):
    def assert_same_way(self, case: str) -> None:
        for ranks in (2, 4):
            with self.subTest(ranks=ranks):
                for rank, found in enumerate(run_ranks(ranks, case)):
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
