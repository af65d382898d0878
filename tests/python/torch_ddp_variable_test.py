# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""ONEBIT_TORCH_DDP compresses in trainers that stay as they are: torch_ddp_variable_test.py ONEBIT_RUN"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
from importlib.metadata import entry_points

try:
    import torch

    VERSION = tuple(int(number) for number in torch.__version__.split(".")[:2])
except ImportError:
    VERSION = (0, 0)
if VERSION < (2, 5):
    print("PyTorch 2.5 or newer, which loads entry points, not found")
    sys.exit(77)

# pylint: disable=wrong-import-position

import onebit
from onebit import doctor
from onebit.torch import _ddp_variable

ONEBIT_RUN = sys.argv.pop(1)
HERE = pathlib.Path(__file__).resolve().parent
VARIABLE = "ONEBIT_TORCH_DDP"
TRAININGS = ["plain_loop", "micro_steps", "several_models", "a_scaler_after_the_wrapper",
             "a_scaler_before_the_wrapper"]

class Job:
    """A job of torch_ddp_variable_rank.py that has ended."""

    def __init__(self, how: str, *cases: str, ranks: int = 2, options=(), launcher=(), **environment: str):
        clean = {name: value for name, value in os.environ.items() if name != VARIABLE}
        command = launcher or [ONEBIT_RUN, "-n", str(ranks), "--grace", "60", *options, sys.executable, "-B"]
        with tempfile.TemporaryDirectory() as folder:
            self.ended = subprocess.run(
                [*command, str(HERE / "torch_ddp_variable_rank.py"), folder, how, *cases],
                env={**clean, **environment}, capture_output=True, text=True, check=False, timeout=200)
            self.found = [json.loads(path.read_text(encoding="utf-8"))
                          for path in sorted(pathlib.Path(folder).glob("*.json"))]

    @property
    def report(self) -> list:
        """What the library has printed, in the order of its lines."""
        return [line for line in self.ended.stderr.splitlines() if line.startswith("onebit: ")]


class TorchDdpVariableTest(unittest.TestCase):
    def assert_trained(self, job: Job) -> None:
        self.assertEqual(job.ended.returncode, 0, job.ended.stderr)
        for found in job.found:
            for case in TRAININGS:
                self.assertNotIn("failed", found[case], found[case].get("failed"))

    def test_trainings_are_those_of_the_explicit_line(self):
        explicit = Job("explicit")
        job = Job("plain", options=["--ddp", "fp4,dense_iterations=1"])
        dense = Job("plain")
        for each in (explicit, job, dense):
            self.assert_trained(each)
        self.assertEqual(job.found, explicit.found)
        for case in TRAININGS:
            self.assertNotEqual(job.found[0][case], dense.found[0][case], f"{case} was not compressed")
        scales = job.found[0]["a_scaler_after_the_wrapper"]["scales"]
        self.assertEqual(scales, [256, 512, 512, 1024, 1024, 512, 512, 1024, 1024])
        self.assertEqual([found["imported"] for found in dense.found], [False, False])
        self.assertEqual((explicit.report, dense.report), ([], []))

        # One report for each model, and all of them ended before the program did.
        heads = [f"onebit: {VARIABLE}=fp4,dense_iterations=1, {name}:"
                 for name in ("Sequential", "LanguageModel", *["Sequential"] * 4)]
        self.assertEqual([line for line in job.report if VARIABLE in line], heads)
        rest = "\n".join(job.report)
        self.assertEqual(re.findall(r"onebit: (\d+) iterations: 1 dense, (\d) taken back\n", rest),
                         [("8", "0"), ("5", "0"), ("6", "0"), ("6", "0"), ("9", "1"), ("9", "1")])
        self.assertEqual(len(re.findall(r"onebit: sent \d\.\d MB, in full precision \d\.\d MB\n", rest)), 6)
        # Models that a program drops as it ends close their communicators in the midst of that.
        self.assertNotIn("Traceback", job.ended.stderr)

    def test_torchrun_passes_the_variable_on(self):
        torchrun = [sys.executable, "-B", "-m", "torch.distributed.run", "--nproc-per-node", "2"]
        job = Job("destroying", "plain_loop", launcher=torchrun, **{VARIABLE: "int8,block=512,mode=plain"})
        self.assertEqual(job.ended.returncode, 0, job.ended.stderr)
        self.assertEqual([found["imported"] for found in job.found], [True, True])
        self.assertEqual(job.report[0], f"onebit: {VARIABLE}=int8,block=512,mode=plain, Sequential:")
        self.assertEqual(job.report[1], "onebit: 8 iterations: 2 dense, 0 taken back")
        self.assertEqual(len([line for line in job.report if VARIABLE in line]), 1)

    def test_a_second_hook_is_refused(self):
        job = Job("plain", "refused_hooks", **{VARIABLE: "fp4"})
        self.assertEqual(job.ended.returncode, 0, job.ended.stderr)
        for found in job.found:
            texts = found["refused_hooks"]
            self.assertIn(f"InvalidUsage: environment variable {VARIABLE} has registered onebit's hook",
                          texts["second"])
            self.assertIn("own_hook): unset the variable, or leave out the trainer's own hook", texts["second"])
            self.assertIn(f"InvalidUsage: environment variable {VARIABLE}: this model already has a hook",
                          texts["first"])
        self.assertIn("onebit: 1 iterations: 1 dense, 0 taken back", job.report)

    def test_wrong_values_are_named_where_a_model_is_wrapped(self):
        for found in Job("plain", "plain_loop", **{VARIABLE: "fp5"}).found:
            self.assertIn(f"onebit.InvalidArgument: environment variable {VARIABLE}: \"fp5\": 'fp5' is not a Codec: "
                          "use one of sign, fp4, int8", found["plain_loop"]["failed"])

        for value, text in (("1", "'1' is not a Codec"),
                            ("mode=plain", "it begins with a codec"),
                            (",k=8", "it begins with a codec"),
                            ("fp4,k=8", 'k=8 belongs to codec="topk"'),
                            ("fp4,levels=3", "levels=3 must be None or 0"),
                            ("fp4,mode=of", "'of' is not a Mode: use one of plain, ef"),
                            ("fp4,compress=all", "one of the options mode, block, k, levels, dense_iterations"),
                            ("fp4,", '"" is not option=value'),
                            ("fp4,block=512,block=512", "block is given twice"),
                            ("fp4,block=-1", 'block="-1" is not a number')):
            with self.subTest(value=value):
                with self.assertRaises(onebit.InvalidArgument) as caught:
                    _ddp_variable.options_of(value)
                self.assertIn(f'environment variable {VARIABLE}: "{value}": ', str(caught.exception))
                self.assertIn(text, str(caught.exception))
                self.assertEqual(list(doctor.mistakes_in(value)), [str(caught.exception)])
        self.assertEqual(list(doctor.mistakes_in("auto,dense_iterations=3,levels=1")), [])

    def test_ranks_without_the_variable_are_named(self):
        job = Job("half", "wrapper_of_half_the_ranks", **{VARIABLE: "fp4"})
        self.assertIn(f"onebit.InvalidUsage: environment variable {VARIABLE}=fp4 is set on rank 0, but not on "
                      "rank 1 of this model's process group: set it on all hosts",
                      job.found[0]["wrapper_of_half_the_ranks"]["failed"])

    def test_values_that_differ_are_named(self):
        job = Job("differing", "refused_hooks", **{VARIABLE: "fp4,levels=1"})
        own = [found["refused_hooks"]["failed"] for found in job.found]
        self.assertIn("differs: fp4,levels=1 on rank 0, int8 on rank 1: set it alike", own[0])
        self.assertIn("differs: int8 on rank 1, fp4,levels=1 on rank 0: set it alike", own[1])

    def test_where_there_is_nothing_to_compress_it_says_so(self):
        job = Job("plain", "plain_loop", ranks=1, **{VARIABLE: "fp4"})
        self.assertEqual(job.report, [f"onebit: {VARIABLE}=fp4, Sequential:",
                                      "onebit: one rank, so there was nothing to send"])
        job = Job("plain", "none", **{VARIABLE: "fp4"})
        self.assertEqual(job.report, [f"onebit: {VARIABLE}=fp4 has compressed nothing: this program has wrapped no "
                                      "model in DistributedDataParallel"])
        self.assertEqual([found["imported"] for found in job.found], [False, False])

    def test_without_the_variable_nothing_is_wrapped(self):
        code = (
            "import sys, torch\n"
            "from torch.nn.parallel import DistributedDataParallel\n"
            "wrapped = hasattr(DistributedDataParallel.__init__, '__wrapped__')\n"
            "print(wrapped, 'onebit' in sys.modules, 'onebit_torch_ddp' in sys.modules)\n"
        )
        for value, expected in (("", "False"), ("0", "False"), (" ", "False"), ("fp4", "True")):
            ended = subprocess.run([sys.executable, "-B", "-c", code], env={**os.environ, VARIABLE: value},
                                   capture_output=True, text=True, check=True)
            self.assertEqual((ended.stdout, ended.stderr), (f"{expected} False True\n", ""))

    def test_the_entry_point_is_that_of_the_wheel(self):
        project = HERE.parents[1] / "pyproject.toml"
        declared = re.search(r'\[project.entry-points."torch.backends"\]\n(\w+) = "(.*)"\n',
                             project.read_text(encoding="utf-8"))
        ours = [each for each in entry_points(group="torch.backends") if each.name == "onebit"]
        self.assertEqual([(each.name, each.value) for each in ours], [declared.groups()])
        load = ours[0].load()
        load()
        load()  # without the variable neither does anything
        self.assertFalse(hasattr(torch.nn.parallel.DistributedDataParallel.__init__, "__wrapped__"))


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__}")
    unittest.main()
