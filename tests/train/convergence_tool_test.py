# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""perf/convergence: its arithmetic, its files, and a small study: convergence_tool_test.py TRAIN_TEXT"""

import copy
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

PERF = pathlib.Path(__file__).resolve().parents[2] / "perf"
sys.path.insert(0, str(PERF))

# pylint: disable=wrong-import-position
from convergence.charts import LinearAxis
from convergence.defaults import RATES_TRIED, best_rate
from convergence.files import read_folder, write_all
from convergence.convergence_readme import readme
from convergence.convergence_results import Malformed, Study

BUILD = ""
FOLDER = PERF / "convergence"
MOST_CHART_BYTES = 60_000


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

    def test_axes_hold_their_values_between_round_ticks(self):
        for values in ([2.31, 3.18], [0.0, 500.0], [1.0], [0.001, 0.0042]):
            axis = LinearAxis("", values)
            self.assertTrue(all(-1e-9 <= axis.part(value) <= 1 + 1e-9 for value in values), values)
            self.assertTrue(2 <= len(axis.ticks) <= 10, axis.ticks)
            self.assertEqual(len({tick.text for tick in axis.ticks}), len(axis.ticks))


class ReadmeTest(unittest.TestCase):
    def text_of(self, *runs: dict, **changed) -> str:
        return " ".join(readme(Study(results_of(*runs) | changed)).split())

    def test_the_gap_stands_beside_the_spread(self):
        text = self.text_of(run_of("adam", 0, 2.0, "FFFF"), run_of("adam", 1, 2.2, "FFFF"),
                            run_of("onebit-adam", 0, 2.1, "FF11"), run_of("onebit-adam", 1, 2.12, "FF11"),
                            run_of("zero-one-adam", 0, 2.3), run_of("zero-one-adam", 1, 2.25))
        self.assertIn("| 2.0000 to 2.2000 |", text)
        seeds = "within 2% of adam, in the mean over 2 seeds"
        self.assertIn(f"onebit-adam is {seeds}. Their ranges overlap.", text)
        self.assertIn(f"zero-one-adam is NOT {seeds}. Their ranges do not overlap.", text)

    def test_rates_are_explained_only_where_they_are_the_defaults(self):
        run = run_of("adam", 0, 2.0, "FFFF")
        tried = f"{RATES_TRIED['adam'][0.002]:.4f} at 0.002"
        self.assertIn(tried, self.text_of(run))
        other = self.text_of(run, training_options=["--lr", "0.1"])
        self.assertNotIn(tried, other)
        self.assertNotIn("defaults of `train_text`", other)
        self.assertIn("-- --lr 0.1 ```", other)

    def test_bits_are_those_of_the_gradients_type(self):
        run = run_of("adam", 0, 2.0, "FFFF")
        self.assertIn("F is 32 here", self.text_of(run))
        self.assertIn("half of the dense share", self.text_of(run))
        run["config"]["grad_type"] = "half"
        self.assertIn("F is 16 here", self.text_of(run))
        self.assertNotIn("half of the dense share", self.text_of(run))

    def test_bytes_without_a_formula_are_not_said_to_be_checked(self):
        run = run_of("adam", 0, 2.0, "FFFF")
        self.assertNotIn("not checked", self.text_of(run))
        run["bytes_expected"] = None
        self.assertIn("| not checked |", self.text_of(run))
        self.assertIn("It is not checked where", self.text_of(run))

    def test_zero_one_adam_is_explained_only_where_it_is(self):
        dense, zero_one = run_of("adam", 0, 2.0, "FFFF"), run_of("zero-one-adam", 0, 2.0)
        self.assertNotIn("0/1 Adam", self.text_of(dense))
        self.assertIn("0/1 Adam", self.text_of(dense, zero_one))

    def test_the_command_has_what_differs_from_the_defaults(self):
        text = self.text_of(run_of("adam", 0, 2.0, "FFFF"))
        self.assertIn("run --optimizers adam --seeds 0 --steps 4 ```", text)


class FilesTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def run_tool(self, *arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run([str(FOLDER / "run"), *arguments], capture_output=True, text=True, timeout=100,
                              check=False)

    def test_what_is_kept_here_follows_from_the_results(self):
        done = self.run_tool("--check")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        study = read_folder(FOLDER).study
        self.assertEqual(study.compressed(), ["onebit-adam", "zero-one-adam", "onebit-lamb"])
        self.assertGreaterEqual(len(study.seeds), 3)
        for optimizer, losses in RATES_TRIED.items():  # in the same setting, but on another machine
            run = study.runs(optimizer)[study.seeds.index(0)]
            self.assertAlmostEqual(losses[run["config"]["lr"]], run["heldout_loss"], delta=0.04)
            best, least = best_rate(optimizer)
            self.assertLess(min(losses), best)  # so that more of them would not be better
            self.assertLess(best, max(losses))
            self.assertLessEqual(least, losses[run["config"]["lr"]])
        for chart in FOLDER.glob("*.svg"):
            self.assertLess(chart.stat().st_size, MOST_CHART_BYTES, chart)

    def test_stale_files_are_named(self):
        names = read_folder(FOLDER).derived()
        for name in names:
            with self.subTest(name=name):
                folder = shutil.copytree(FOLDER, self.folder / name, ignore=shutil.ignore_patterns("__*"))
                text = (folder / name).read_text()
                (folder / name).write_text(text.replace("1", "2", 1))
                done = self.run_tool("--check", "--out", str(folder))
                self.assertEqual(done.returncode, 1, done)
                self.assertEqual([other for other in names if f"/{other} is not" in done.stderr], [name])

    def test_charts_are_xml_and_tell_optimizers_apart(self):
        write_all(self.folder, Study(results_of(run_of("adam", 0, 2.0, "FFFF"),
                                                run_of("zero-one-adam", 0, 2.1))))
        for name in ("loss-steps.svg", "loss-bytes.svg"):
            text = (self.folder / name).read_text()
            xml.etree.ElementTree.fromstring(text)
            for optimizer in ("adam", "zero-one-adam"):
                self.assertIn(f">{optimizer}</text>", text)
                self.assertIn(f'class="line s-{optimizer}"', text)

    def test_a_small_study(self):
        text = self.folder / "text"
        text.write_text("".join(f"line {i % 7} of {i % 11}\n" for i in range(2000)))
        small = ["--hidden", "32,16", "--batch", "8", "--warmup", "8", "--text", str(text)]
        arguments = ["--build", BUILD, "--optimizers", "adam,zero-one-adam", "--seeds", "4,5", "--steps", "20",
                     "--ranks", "3", "--out", str(self.folder)]
        done = self.run_tool(*arguments, "--", *small)
        self.assertEqual(done.returncode, 0, done)
        results = json.loads((self.folder / "results.json").read_text())
        self.assertEqual([(run["optimizer"], run["seed"]) for run in results["runs"]],
                         [("adam", 4), ("adam", 5), ("zero-one-adam", 4), ("zero-one-adam", 5)])
        for run in results["runs"]:
            self.assertEqual(run["bytes_sent_per_rank"], run["bytes_expected"])
            self.assertEqual([evaluation["step"] for evaluation in run["evaluations"]], list(range(1, 21)))
        table = (self.folder / "README.md").read_text()
        self.assertIn(f"{results['runs'][0]['heldout_loss']:.4f}", table)
        self.assertIn("--hidden 32,16", table)
        self.assertEqual(self.run_tool("--check", "--out", str(self.folder)).returncode, 0)

        far = self.run_tool(*arguments, "--within", "0", "--", *small)
        self.assertEqual(far.returncode, 1, far)
        self.assertIn("not within 0 %", far.stderr)

    def test_help_ends_with_status_zero(self):
        done = self.run_tool("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        self.assertIn("--within PERCENT", done.stdout)

    def test_bad_usage_is_said(self):
        for arguments, text in ((["--optimizers", "sgd"], "sgd is not one of"), (["--seeds", "x"], "--seeds"),
                                (["--ranks", "1"], "sends nothing"),
                                (["--check", "--seeds", "0,1,2"], "--seeds would have no effect"),
                                (["--check", "--within", "0"], "--within would have no effect"),
                                (["--check", "--", "--lr", "1"], "train_text's options would have no effect"),
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
