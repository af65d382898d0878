# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Examples as users run them: example_programs_test.py ONEBIT_RUN EXAMPLES TEXT [TestCase.test]."""

import functools
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

try:
    import torch  # pylint: disable=unused-import
except ImportError:
    torch = None

ONEBIT_RUN, EXAMPLES, TEXT = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
SMALL = ["--width", "64", "--layers", "1", "--context", "32", "--batch", "8"]


def run_job(ranks: int, program: str, *arguments: str) -> str:
    # Tagged, because lines of two ranks could mix.
    command = [ONEBIT_RUN, "-n", str(ranks), "--tag-output"]
    command += [sys.executable, "-B", str(EXAMPLES / program)]
    result = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def losses(output: str) -> dict:
    """Losses by step."""
    found = re.findall(r"^\[0\] step (\d+): \D*([0-9.]+)", output, re.MULTILINE)
    return {int(step): float(loss) for step, loss in found}


def gpt_options(way: str) -> list:
    return [TEXT, "--average", way, "--freeze-step", "35", *SMALL]


@functools.cache
def straight_gpt(way: str) -> dict:
    """Losses of 60 steps that nothing interrupts."""
    return losses(run_job(2, "gpt.py", *gpt_options(way), "--steps", "60"))


class ExamplesTest(unittest.TestCase):
    def test_numpy(self):
        output = run_job(2, "numpy_trainer.py")
        found = losses(output)
        self.assertLess(found[199], 0.6 * found[0])
        totals = re.findall(r"sent (\d+) bytes; full precision needs (\d+)", output)
        self.assertEqual(len(totals), 2)
        for sent, dense in totals:
            self.assertLess(int(sent), 0.2 * int(dense))

    @unittest.skipIf(torch is None, "no PyTorch")
    def test_gpt(self):
        dense, hook, adam = map(straight_gpt, ("dense", "hook", "adam"))
        self.assertLess(dense[59], dense[0] - 1.5)
        self.assertEqual(hook[0], dense[0])
        self.assertLess(abs(hook[59] - dense[59]), 0.1)
        self.assertLess(abs(adam[59] - dense[59]), 0.3)

    @unittest.skipIf(torch is None, "no PyTorch")
    def test_gpt_continues(self):
        # The optimizer is saved before its freeze. Later states of all ranks share out residuals anew.
        for way in ("hook", "adam"):
            with self.subTest(way=way), tempfile.TemporaryDirectory() as folder:
                straight = straight_gpt(way)
                options = [*gpt_options(way), "--checkpoint", f"{folder}/checkpoint"]
                run_job(2, "gpt.py", *options, "--steps", "12")
                resumed = losses(run_job(2, "gpt.py", *options, "--steps", "21"))
                self.assertAlmostEqual(resumed[20], straight[20], delta=0.02)
                more = losses(run_job(3, "gpt.py", *options, "--steps", "41"))
                self.assertLess(more[40], straight[0] - 0.5)

    @unittest.skipIf(torch is None, "no PyTorch")
    def test_diloco(self):
        with tempfile.TemporaryDirectory() as folder:
            options = [TEXT, "--checkpoint", f"{folder}/states"]
            straight = losses(run_job(3, "diloco.py", TEXT, "--steps", "100"))
            first = run_job(3, "diloco.py", *options, "--steps", "50")
            resumed = losses(run_job(3, "diloco.py", *options, "--steps", "100"))
        self.assertEqual(sorted(straight), [50, 100])
        self.assertLess(straight[100], straight[50] - 0.2)
        self.assertEqual(resumed, {100: straight[100]})  # bit for bit
        shown = re.findall(r"^\[\d\] (step 50: .*)", first, re.MULTILINE)
        self.assertEqual(len(shown), 3)
        self.assertEqual(len(set(shown)), 1)
        compressed, dense = re.search(r"a round takes ([\d.]+) MB, in full precision ([\d.]+) MB", first).groups()
        self.assertLess(7 * float(compressed), float(dense))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
