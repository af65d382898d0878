# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""perf/studies/convergence: its arithmetic, its tables, and a small study: convergence_tool_test.py TRAIN_TEXT"""

import copy
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

PERF = pathlib.Path(__file__).resolve().parents[2] / "perf"
FOLDER = PERF / "studies" / "convergence"
sys.path[:0] = [str(FOLDER.parent), str(PERF)]

# pylint: disable=wrong-import-position
from convergence.optimizer_study import Malformed, Study, bytes_table, loss_table

BUILD = ""


def run_of(optimizer: str, seed: int, loss: float | None, schedule: str = "BB1.") -> dict:
    """A study of 4 ranks and 1000 parameters; a dense step sends 6000 bytes, a compressed one 190."""
    dense, compressed = (sum(schedule.count(kind) for kind in kinds) for kinds in ("FB", "1B"))
    sync = 190 if schedule.endswith(".") else 0
    sent = 6000 * dense + 190 * compressed + sync
    return {"optimizer": optimizer, "seed": seed, "heldout_loss": loss,
            "diverged_at": 3 if loss is None else None, "skipped_steps": 0, "schedule": schedule,
            "rounds": len(schedule.replace(".", "")), "dense_steps": dense, "compressed_steps": compressed,
            "local_steps": schedule.count("."), "final_sync_bytes": sync, "bytes_sent_per_rank": sent,
            "bytes_expected": sent,
            "config": {"lr": 0.003, "batch": 64, "beta2": 0.99, "warmup": 40, "grad_type": "float"},
            "evaluations": [{"step": 2, "heldout_loss": 3.0, "bytes_sent": sent // 2},
                            {"step": 4, "heldout_loss": loss or 9.0, "bytes_sent": sent}]}


def results_of(*runs: dict) -> dict:
    return {"format": "onebit-convergence", "version": 1, "machine": {"cpu": "a", "compiler": "b"},
            "ranks": 4, "steps": 4, "parameters": 1000, "training_options": [],
            "text": {"bytes": 10, "fnv1a": "0", "heldout_bytes": 1}, "runs": list(runs)}


class ResultsTest(unittest.TestCase):
    def test_losses_are_held_against_the_dense_counterpart(self):
        study = Study(results_of(run_of("adam", 0, 2.0, "FFFF"), run_of("adam", 1, 2.2, "FFFF"),
                                 run_of("zero-one-adam", 0, 2.1), run_of("zero-one-adam", 1, 2.142),
                                 run_of("onebit-lamb", 0, 2.0, "FF11")))
        self.assertAlmostEqual(study.mean_excess("zero-one-adam"), 0.01)
        self.assertEqual(study.compressed(), ["zero-one-adam"])
        self.assertIsNone(study.mean_excess("onebit-lamb"))

    def test_a_run_that_diverged_has_no_mean(self):
        study = Study(results_of(run_of("adam", 0, 2.0, "FFFF"), run_of("onebit-adam", 0, 2.0, "FF11"),
                                 run_of("onebit-adam", 1, None, "FF1")))
        self.assertIsNone(study.mean_excess("onebit-adam"))
        self.assertIsNone(study.loss_range("onebit-adam"))

    def test_bits_are_those_of_the_rounds_in_both_exchanges(self):
        study = Study(results_of(run_of("zero-one-adam", 0, 2.0)))
        run = study.runs("zero-one-adam")[0]
        self.assertEqual(study.formula_bits(run), 1.5 * (32 * 2 + 4) / 4)  # three steps and the last sync
        self.assertEqual(study.counted_bits(run), 8 * (2 * 6000 + 4 * 190) / 1000 / 4)
        run["config"]["grad_type"] = "bfloat16"
        self.assertEqual(study.formula_bits(run), 1.5 * (16 * 2 + 4) / 4)

    def test_gradients_count_in_the_bits_of_their_codec(self):
        run = run_of("adam", 0, 2.0, "gggg") | {"compressed_steps": 4, "bytes_sent_per_rank": 3000,
                                                "bytes_expected": 3000}
        run["config"]["codec"] = "fp4"
        study = Study(results_of(run))
        self.assertEqual(study.formula_bits(run), 1.5 * 4)

    def test_letters_of_deepspeeds_variant_count(self):
        run = run_of("zero-one-adam", 0, 2.0, "iF1u.u")
        run |= {"rounds": 4, "compressed_steps": 3, "local_steps": 2}
        Study(results_of(run))

    def test_contradictions_are_refused(self):
        good = results_of(run_of("zero-one-adam", 0, 2.0))
        Study(good)
        for field, text in (("bytes_sent_per_rank", "by the formula"), ("bytes_expected", "by the formula"),
                            ("rounds", "rounds"), ("dense_steps", "dense_steps"),
                            ("local_steps", "local_steps")):
            bad = copy.deepcopy(good)
            bad["runs"][0][field] += 1
            with self.subTest(field=field), self.assertRaisesRegex(Malformed, text):
                Study(bad)
        good["runs"][0]["bytes_expected"] = None  # steps that do not all send alike have no formula
        Study(good)
        with self.assertRaisesRegex(Malformed, "version 1"):
            Study(good | {"version": 2})


class TablesTest(unittest.TestCase):
    def test_losses_stand_beside_their_spread_and_the_dense_ones(self):
        study = Study(results_of(run_of("adam", 0, 2.0, "FFFF"), run_of("adam", 1, 2.2, "FFFF"),
                                 run_of("onebit-adam", 0, 2.1, "FF11"), run_of("onebit-adam", 1, 2.142, "FF11"),
                                 run_of("lamb", 0, 2.0, "FFFF"), run_of("lamb", 1, None, "FFF")))
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in loss_table(study)]
        self.assertEqual(rows[2:], [
            ["adam", "0.003", "2.0000", "2.2000", "2.1000", "2.0000 to 2.2000", ""],
            ["onebit-adam", "0.003", "2.1000", "2.1420", "2.1210", "2.1000 to 2.1420", "+1.00%"],
            ["lamb", "0.003", "2.0000", "diverged", "diverged", "", ""]])

    def test_bytes_without_a_formula_are_not_said_to_be_checked(self):
        run = run_of("zero-one-adam", 0, 2.0)
        runs = [run_of("adam", 0, 2.0, "FFFF"), run]
        row = "| 4 | 2 | 4 | 1 | 12760 B | 12760 B | 1.88x |"
        self.assertIn(row.replace("| 4 | 2", "| 3 | 2"), " ".join(bytes_table(Study(results_of(*runs)))[3].split()))
        run["bytes_expected"] = None
        self.assertIn("| 12760 B | not checked |", " ".join(bytes_table(Study(results_of(*runs)))[3].split()))


class FilesTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def run_tool(self, *arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, str(FOLDER / "run"), *arguments], capture_output=True, text=True, timeout=100,
                              check=False)

    def test_a_small_study(self):
        text = self.folder / "text"
        text.write_text("".join(f"line {i % 7} of {i % 11}\n" for i in range(2000)))
        small = ["--hidden", "32,16", "--batch", "8", "--warmup", "8", "--text", str(text)]
        arguments = ["--build", BUILD, "--optimizers", "adam,zero-one-adam", "--seeds", "4,5", "--steps", "20",
                     "--ranks", "3", "--out", str(self.folder)]
        done = self.run_tool(*arguments, "--", *small)
        self.assertEqual(done.returncode, 0, done)
        results = json.loads((self.folder / "optimizers.json").read_text())
        self.assertEqual([(run["optimizer"], run["seed"]) for run in results["runs"]],
                         [("adam", 4), ("adam", 5), ("zero-one-adam", 4), ("zero-one-adam", 5)])
        for run in results["runs"]:
            self.assertEqual(run["bytes_sent_per_rank"], run["bytes_expected"])
            self.assertEqual([evaluation["step"] for evaluation in run["evaluations"]], list(range(1, 21)))
        study = Study(results)
        self.assertEqual(done.stdout.splitlines(), [*loss_table(study), "", *bytes_table(study)])
        self.check_charts(done.stderr)

        far = self.run_tool(*arguments, "--within", "0", "--", *small)
        self.assertEqual(far.returncode, 1, far)
        self.assertIn("not within 0 %", far.stderr)

    def check_charts(self, said: str) -> None:
        charts = {"loss-steps.svg": "steps", "loss-bytes.svg": "bytes sent by a rank"}
        if importlib.util.find_spec("matplotlib") is None:
            self.assertIn("no charts: No module named 'matplotlib'; Debian: python3-matplotlib", said)
            charts = {}
        for name, against in charts.items():
            text = (self.folder / name).read_text()
            root = xml.etree.ElementTree.fromstring(text)
            words = ["".join(element.itertext()) for element in root.iter()]
            self.assertIn(f"Held-out loss against {against}", words)
            for optimizer in ("adam", "zero-one-adam"):
                self.assertIn(optimizer, words)

    def test_help_ends_with_status_zero(self):
        done = self.run_tool("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        self.assertIn("--within PERCENT", done.stdout)

    def test_bad_usage_is_said(self):
        for arguments, text in ((["--optimizers", "sgd"], "sgd is not one of"), (["--seeds", "x"], "--seeds"),
                                (["--ranks", "1"], "sends nothing"),
                                (["--within", "2", "--optimizers", "adam,lamb"], "is compressed"),
                                (["--within", "2", "--optimizers", "adam,onebit-adam,onebit-lamb"],
                                 "onebit-lamb needs lamb"),
                                (["--build", "/nonexistent"], "train_text is missing")):
            with self.subTest(arguments=arguments):
                done = self.run_tool(*arguments)
                self.assertEqual((done.returncode, done.stdout), (2, ""), done)
                self.assertIn(text, done.stderr)
        done = self.run_tool("--build", BUILD, "--out", str(self.folder), "--", "--no-such-option")
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("--no-such-option", done.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])


if __name__ == "__main__":
    BUILD = str(pathlib.Path(sys.argv.pop(1)).resolve().parents[1])
    unittest.main()
