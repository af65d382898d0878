# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""torchrun on this host and on hosts of perf/lab: the study of a GPT under DDP and HSDP, with a small
model."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "perf" / "studies"), str(ROOT / "perf")]

from ddp.ddp_results import HOSTS, read_file, wire_bytes  # pylint: disable=wrong-import-position

STUDY = ROOT / "perf" / "studies" / "ddp" / "study"
# Its matrices have more elements than one exchange takes, which sends more bytes than the formula says.
SMALL = ["--steps", "12", "--width", "128", "--layers", "2", "--batch", "4"]
FREEZE = ["--freeze-step", "4"]
AVERAGES = ("dense", "fp4", "onebit-adam")
HEADERS = 4096  # bytes of a step's messages without codes and scales, at most


class StudyTest(unittest.TestCase):
    def study(self, part: str, *options: str) -> tuple:
        """The runs of a study by their ways to average, and the page made of them."""
        with tempfile.TemporaryDirectory() as folder:
            command = [str(STUDY), part, "--python", sys.executable, "--text", str(ROOT / "src/codec/FORMAT.md")]
            command += ["--out", folder, *SMALL, *options]
            result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            runs = read_file(pathlib.Path(folder))[part]["runs"]
            return {run["average"]: run for run in runs}, (pathlib.Path(folder) / "README.md").read_text("utf-8")

    def test_learning(self):
        runs, page = self.study("learn", "--seeds", "1", *FREEZE)
        self.assertEqual(sorted(runs), sorted(AVERAGES))
        for average, run in runs.items():
            self.assertEqual(run["steps_alike"], 12, average)
            self.assertLess(abs(run["held_out_loss"] / runs["dense"]["held_out_loss"] - 1), 0.05, average)
            if average != "dense":
                least = wire_bytes(run, average, 4)
                self.assertGreaterEqual(run["bytes_of_last_step"], least)
                self.assertLess(run["bytes_of_last_step"], 1.05 * least + HEADERS)
        self.assertIn("after 36 of 36 steps", " ".join(page.split()))

    def test_lab(self):
        runs, page = self.study("lab", *FREEZE)
        self.assertEqual(sorted(runs), sorted([*AVERAGES, "nothing"]))
        for average in AVERAGES:
            self.assertEqual(runs[average]["steps_alike"], 12, average)
        # The ranks that send nothing end with models of their own.
        self.assertEqual(runs["nothing"]["steps_alike"], 0)
        self.assertIn("exposed communication", page)

    def test_hsdp(self):
        runs, page = self.study("hsdp", "--seeds", "1")
        codecs = {"hsdp": "dense", "hsdp-fp4": "fp4", "hsdp-backend": "int8"}
        self.assertEqual(sorted(runs), sorted(codecs))
        for average, codec in codecs.items():
            run = runs[average]
            self.assertEqual(run["steps_alike"], 12, average)
            self.assertLess(abs(run["held_out_loss"] / runs["hsdp"]["held_out_loss"] - 1), 0.05, average)
            # The ranks of a host send a model's shards; the link counts headers, too.
            sent = run["bytes_of_last_step"] / wire_bytes(run, codec, HOSTS["hsdp"])
            self.assertLess(abs(sent - 1), 0.15, average)
        self.assertIn("after 36 of 36 steps", " ".join(page.split()))


if __name__ == "__main__":
    unittest.main(verbosity=2)
