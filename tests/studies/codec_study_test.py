# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""perf/studies/convergence --study codecs: the search for rates, its arithmetic, its words, and a small study:
codec_study_test.py TRAIN_TEXT"""

import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest

PERF = pathlib.Path(__file__).resolve().parents[2] / "perf"
FOLDER = PERF / "studies" / "convergence"
sys.path[:0] = [str(FOLDER.parent), str(PERF)]

# pylint: disable=wrong-import-position
from convergence.codec_study import DENSE, FIRST_RATES, RATES, CodecStudy, best_of, next_rate
from convergence.codec_tables import codec_tables, worst_share
from convergence.optimizer_study import Malformed

BUILD = ""


def rates_tried(loss_of) -> dict[float, float | None]:
    """All rates that the search tries for a row of these losses."""
    tried = {}
    while (rate := next_rate(tried)) is not None:
        assert rate not in tried, tried
        tried[rate] = loss_of(rate)
    return tried


def study_of(losses: dict[str, list[float | None]], seeds: int = 3) -> CodecStudy:
    """A study of the mlp with losses by row and seed, all at the middle one of the first rates."""
    best = FIRST_RATES[1]
    runs = []
    for row, by_seed in losses.items():
        for seed, loss in enumerate(by_seed):
            runs.append((row, seed, best, loss))
        runs += [(row, 0, rate, None) for rate in RATES if rate != best]
    return CodecStudy({
        "format": "onebit-codec-convergence", "version": 1, "machine": {"cpu": "a", "compiler": "b"},
        "ranks": 4, "steps": 7, "seeds": list(range(seeds)), "training_options": [], "rows": list(losses),
        "text": {"bytes": 10, "fnv1a": "0", "heldout_bytes": 1},
        "models": {"mlp": {"parameters": 1000, "heldout_positions": 9,
                           "config": {"batch": 64, "context": 16, "warmup": 40, "beta1": 0.9, "beta2": 0.99}}},
        "runs": [{"model": "mlp", "row": row, "seed": seed, "lr": rate, "heldout_loss": loss,
                  "diverged_at": None if loss else 3, "skipped_steps": 0, "bytes_sent_per_rank": 5000000,
                  "bytes_expected": 5000000} for row, seed, rate, loss in runs]})


def text_of(study: CodecStudy) -> str:
    return " ".join("\n".join(codec_tables(study)).split())


class RateTest(unittest.TestCase):
    def test_the_search_ends_with_a_worse_rate_on_either_side(self):
        for best in RATES:
            tried = rates_tried(lambda rate, best=best: 2 + abs(math.log(rate / best)))
            self.assertEqual(best_of(tried), best)
            index = RATES.index(best)
            for neighbour in RATES[max(0, index - 1):index + 2]:
                self.assertIn(neighbour, tried)
        self.assertEqual(len(rates_tried(lambda rate: 2 + abs(math.log(rate / FIRST_RATES[1])))), 3)

    def test_a_rate_that_diverges_is_worse_than_any_other(self):
        tried = rates_tried(lambda rate: None if rate > 0.001 else 3 - rate)
        self.assertEqual(best_of(tried), 0.001)
        self.assertEqual(best_of(rates_tried(lambda rate: None)), RATES[0])  # nothing left to try


class CodecStudyTest(unittest.TestCase):
    def test_differences_are_paired_by_seed(self):
        study = study_of({DENSE: [2.0, 2.5, 3.0], "fp4-ef": [2.1, 2.6, 3.4]})
        mean, error = study.difference("mlp", "fp4-ef")
        self.assertAlmostEqual(mean, 0.2)
        self.assertAlmostEqual(error, math.sqrt(0.03) / math.sqrt(3))  # 0.1, 0.1 and 0.4
        self.assertAlmostEqual(worst_share(study, "fp4-ef"), 0.2 / 2.5)

    def test_a_row_is_complete_with_all_seeds_at_its_best_rate(self):
        study = study_of({DENSE: [2.0, 2.5, 3.0], "fp4-ef": [2.1, 2.6]})
        self.assertEqual(study.rows("mlp"), [DENSE])
        self.assertEqual(study.next_run("mlp", "fp4-ef"), (2, FIRST_RATES[1]))
        self.assertEqual(study.next_run("mlp", "int8-ef"), (0, FIRST_RATES[0]))

    def test_bytes_that_are_not_those_of_the_formula_are_refused(self):
        results = study_of({DENSE: [2.0, 2.5, 3.0]}).results
        results["runs"][0]["bytes_expected"] += 1
        with self.assertRaisesRegex(Malformed, "mlp, adam, seed 0: .* by the formula it is 5000001"):
            CodecStudy(results)
        with self.assertRaisesRegex(Malformed, "version 1"):
            CodecStudy(results | {"version": 2})


class TablesTest(unittest.TestCase):
    def test_rows_are_sorted_by_what_they_lose(self):
        study = study_of({DENSE: [2.0, 2.0, 2.0], "int8-plain": [2.001, 1.999, 2.0],
                          "fp4-plain": [2.03, 2.031, 2.029], "sign-ef": [2.2, 2.21, 2.22],
                          "int2-ef": [2.0, None, 2.0], "onebit-adam": [2.3, 2.3, 2.3]})
        text = text_of(study)
        self.assertIn("within 1% of dense gradients on every model: int8-plain (mlp +0.00%, not resolved).", text)
        self.assertIn("Costs 1% to 2% on some model: fp4-plain (mlp +1.50%).", text)
        self.assertIn("more than 2% worse on some model: sign-ef (mlp +10.50%), int2-ef (mlp diverged).", text)
        self.assertIn("a variance that is frozen: onebit-adam (mlp +15.00%).", text)
        self.assertIn("| +0.0300 ± 0.0006 |", text)

    def test_error_feedback_is_compared_with_none(self):
        study = study_of({DENSE: [2.0, 2.0, 2.0], "fp4-plain": [2.1, 2.11, 2.12], "fp4-ef": [2.0, 2.01, 2.02],
                          "int2-ef": [2.0, 2.0, 2.0]})
        self.assertIn("* fp4-ef minus fp4-plain: mlp -0.1000 ± 0.0000.", text_of(study))
        self.assertNotIn("int2-plain", text_of(study))

    def test_one_seed_resolves_nothing(self):
        study = study_of({DENSE: [2.0], "fp4-plain": [2.1]}, seeds=1)
        self.assertIn("fp4-plain (mlp +5.00%, not resolved)", text_of(study))


class ToolTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        text = self.folder / "text"
        text.write_text("".join(f"line {i % 7} of {i % 11}\n" for i in range(200)))
        self.training = ["--batch", "2", "--warmup", "2", "--text", str(text)]

    def run_tool(self, *arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, str(FOLDER / "run"), *arguments], capture_output=True, text=True, timeout=100,
                              check=False)

    def train(self, rows: str, *arguments: str, steps: int = 3) -> subprocess.CompletedProcess:
        return self.run_tool("--study", "codecs", "--build", BUILD, "--out", str(self.folder / "out"), "--rows",
                             rows, "--seeds", "4,5", "--steps", str(steps), "--ranks", "2", *arguments, "--",
                             *self.training)

    def test_a_study_goes_on_where_it_ended(self):
        out = self.folder / "out"
        self.assertEqual(self.train("adam", "--models", "transformer").returncode, 0)
        first = json.loads((out / "codecs.json").read_text())
        done = self.train("adam,int2-plain", "--models", "transformer,mlp", "--within", "900")
        self.assertEqual(done.returncode, 0, done)
        self.assertNotIn("training transformer, adam", done.stderr)
        results = json.loads((out / "codecs.json").read_text())
        self.assertEqual(results["runs"][:len(first["runs"])], first["runs"])
        self.assertEqual({(run["model"], run["row"], run["seed"]) for run in results["runs"]},
                         {(model, row, seed) for model in ("mlp", "transformer")
                          for row in ("adam", "int2-plain") for seed in (4, 5)})
        for run in results["runs"]:
            self.assertEqual(run["bytes_sent_per_rank"], run["bytes_expected"])
        study = CodecStudy(results)
        for model in ("mlp", "transformer"):
            self.assertEqual(study.rows(model), ["adam", "int2-plain"])
        self.assertEqual(done.stdout, "\n".join([*codec_tables(study), ""]))

        other = self.train("adam", steps=4)
        self.assertEqual(other.returncode, 1, other)
        self.assertIn("steps of the earlier results is 3, not 4: delete the file", other.stderr)

    def test_bad_usage_is_said(self):
        for arguments, text in ((["--study", "codec"], "--study"), (["--rows", "fp5"], "fp5 is not one of adam"),
                                (["--rows", "adam"], "--rows has no effect with --study optimizers"),
                                (["--study", "codecs", "--optimizers", "adam"], "--optimizers has no effect"),
                                (["--study", "codecs", "--rows", "fp4-ef", "--within", "2"], "--rows need adam")):
            with self.subTest(arguments=arguments):
                done = self.run_tool(*arguments)
                self.assertEqual((done.returncode, done.stdout), (2, ""), done)
                self.assertIn(text, done.stderr)


if __name__ == "__main__":
    BUILD = str(pathlib.Path(sys.argv.pop(1)).resolve().parents[1])
    unittest.main()
