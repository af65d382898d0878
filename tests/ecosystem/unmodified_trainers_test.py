# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Frameworks whose trainers stay as they are train as with onebit's line in them: unmodified_trainers_test.py"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(__file__).with_name("unmodified_trainer.py")
VARIABLE = "ONEBIT_TORCH_DDP"
ITERATIONS = 6
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2")


class UnmodifiedTrainersTest(unittest.TestCase):
    def train(self, launcher: tuple, framework: str, *arguments: str, **environment: str) -> tuple:
        """The findings of both ranks, and the lines that onebit has printed."""
        with tempfile.TemporaryDirectory() as folder:
            clean = {name: value for name, value in os.environ.items() if name != VARIABLE}
            ended = subprocess.run([sys.executable, "-B", *launcher, PROGRAM, framework, folder, *arguments],
                                   env={**clean, "OMP_NUM_THREADS": "1", **environment}, text=True,
                                   capture_output=True, timeout=600, check=False)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            found = [json.loads(pathlib.Path(folder, f"{rank}.json").read_text("utf-8")) for rank in range(2)]
        return found, [line for line in ended.stderr.splitlines() if line.startswith("onebit: ")]

    def assert_same(self, framework: str, model: str, launcher: tuple = TORCHRUN) -> None:
        dense, _ = self.train(launcher, framework)
        explicit, silence = self.train(launcher, framework, "explicit")
        found, report = self.train(launcher, framework, **{VARIABLE: "fp4"})
        print(f"{framework}: the last loss is {[float.fromhex(each['losses'][-1]) for each in found]}, without "
              f"compression {[float.fromhex(each['losses'][-1]) for each in dense]}")
        print(*report, sep="\n")
        self.assertEqual(len(found[0]["losses"]), 2 * ITERATIONS)
        self.assertEqual(found, explicit)
        self.assertEqual(found[0]["parameters"], found[1]["parameters"])
        self.assertNotEqual(found, dense)
        self.assertEqual(silence, [])
        heads = [f"onebit: {VARIABLE}=fp4, {model}:", f"onebit: {ITERATIONS} iterations: 2 dense, 0 taken back"]
        self.assertEqual(report[:2], heads)
        self.assertEqual(len(report), 5)

    def test_huggingface(self):
        self.assert_same("huggingface", "GPT2LMHeadModel")

    def test_lightning(self):
        self.assert_same("lightning", "Module", launcher=())

    def test_accelerate(self):
        self.assert_same("accelerate", "Sequential")


if __name__ == "__main__":
    unittest.main(verbosity=2)
