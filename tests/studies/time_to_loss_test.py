# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""perf/studies/time_to_loss: its arithmetic, and small runs: time_to_loss_test.py TRAIN_TEXT"""

import json
import pathlib
import signal
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
STUDIES = ROOT / "perf" / "studies"
sys.path[:0] = [str(STUDIES), str(ROOT / "perf"), str(ROOT / "tests" / "perf")]

import lab_case  # pylint: disable=wrong-import-position
from time_to_loss_result import METHODS, Run, notes, table  # pylint: disable=wrong-import-position

BUILD = ""
SMALL = ["--hidden", "32,32", "--batch", "16", "--warmup", "4"]


def run_of(optimizer: str, losses: list, final: float | None) -> Run:
    evaluations = [{"step": 10 * i, "seconds": float(i), "heldout_loss": loss}
                   for i, loss in enumerate(losses, start=1)]
    training = {"evaluations": evaluations, "heldout_loss": final, "bytes_sent_per_rank": 7,
                "diverged_at": None if final else 31, "seconds": {"total": 9.0}, "parameters": 930_000,
                "rounds": 50}
    links = [{"sent_bytes": 1}, {"sent_bytes": 5_000_000}]
    return Run("1gbit", optimizer, training, {"links": links, "rate_bits_per_second": 10**9})


class ResultTest(unittest.TestCase):
    def test_the_first_evaluation_at_the_target_counts(self):
        run = run_of("adam", [5.0, 2.0, 2.5, 1.9], 1.9)
        self.assertEqual(run.first_at(2.0)["step"], 20)
        self.assertEqual(run.first_at(1.95)["step"], 40)
        self.assertIsNone(run.first_at(1.8))

    def test_a_loss_that_is_no_number_reaches_nothing(self):
        self.assertEqual(run_of("adam", [None, 1.0], 1.0).first_at(2.0)["step"], 20)

    def test_the_table_says_what_was_never_reached(self):
        target = 2.0
        runs = [run_of("adam", [5.0, 4.0, 2.0], 1.96), run_of("onebit-adam", [1.9], 1.9)]
        text = table([run.as_json(target) for run in runs])
        self.assertRegex(text, r"adam +1\.9600 +2\.0000 +30 +3\.00 s +1\.00x +0\.33x +9\.00 s +50 +5\.0 MB")
        self.assertRegex(text, r"onebit-adam +1\.9000 +2\.0000 +10 +1\.00 s +3\.00x +1\.00x +3\.3x dense")
        runs[1] = run_of("onebit-adam", [3.0, 2.1], None)
        text = table([run.as_json(target) for run in runs])
        self.assertRegex(text, r"onebit-adam +diverged at step 31 +2\.0000 +- +never reached +- ")

    def test_speed_ups_are_within_a_family(self):
        runs = [run_of("adam", [5.0, 4.0, 3.0, 2.0], 2.0).as_json(2.0),
                run_of("onebit-adam", [5.0, 2.0], 2.0).as_json(2.0),
                run_of("zero-one-adam", [2.0], 2.0).as_json(2.0),
                run_of("lamb", [5.0, 4.0, 1.5], 1.5).as_json(1.5),
                run_of("onebit-lamb", [5.0, 1.5], 1.5).as_json(1.5)]
        text = table(runs)
        self.assertRegex(text, r"zero-one-adam .* 1\.00 s +4\.00x +2\.00x +2x 1-bit Adam")
        self.assertRegex(text, r"onebit-lamb .* 2\.00 s +1\.50x +- +2\.8x dense")

    def notes_on(self, *optimizers: str) -> str:
        results = [run_of(optimizer, [1.0], 1.0).as_json(2.0) for optimizer in optimizers]
        return " ".join(" ".join(notes(results, 2)).split())

    def test_published_figures_come_with_what_differs(self):
        text = self.notes_on("adam", "onebit-adam")
        self.assertIn("0.93 million", text)
        self.assertIn("share 2 cores", text)
        self.assertEqual(self.notes_on("adam", "lamb"), "")

    def test_each_paper_has_its_cluster(self):
        text = self.notes_on("adam", "onebit-adam")
        self.assertIn("256 GPUs, Ethernet with an effective 4.1 Gbit/s", text)
        self.assertNotIn("LAMB", text)
        self.assertIn("128 GPUs, Ethernet with an effective 2.7 Gbit/s", self.notes_on("zero-one-adam"))
        self.assertIn("bandwidth not known to us", self.notes_on("onebit-lamb"))

    def test_losses_between_syncs_are_said_to_be_of_no_single_model(self):
        self.assertIn("No single model has that loss", self.notes_on("adam", "zero-one-adam"))
        self.assertNotIn("No single model", self.notes_on("adam", "onebit-adam"))

    def test_allreduces_are_named(self):
        runs = [run_of(optimizer, [1.0], 1.0).as_json(2.0) for optimizer in ("adam", "onebit-adam")]
        self.assertEqual(runs[0]["allreduce"], "onebit dense")
        self.assertIn("onebit 1-bit", runs[1]["allreduce"])


class ToolTest(lab_case.LabTestCase):
    def start_tool(self, *arguments: str) -> subprocess.Popen:
        return subprocess.Popen([str(STUDIES / "time_to_loss"), "--build", BUILD, *arguments], text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env=self.environment)

    def test_figures_are_those_of_the_runs(self):
        path = self.folder / "out.json"
        done = self.finish(self.start_tool(
            "--hosts", "2", "--rates", "1gbit,200mbit", "--optimizers", "onebit-adam,adam", "--steps", "40", "--eval-every", "10",
            "--factor", "1.2", "--freeze", "10", "--json", str(path), "--", *SMALL))
        self.assertEqual(done.returncode, 0, done)
        report = json.loads(path.read_text())
        self.assertEqual((report["format"], report["version"]), ("onebit-time-to-loss", 1))
        results = report["results"]
        self.assertEqual([(result["rate"], result["optimizer"]) for result in results],
                         [(rate, optimizer) for rate in ("1gbit", "200mbit")
                          for optimizer in ("adam", "onebit-adam")])
        for result in results:
            self.assertEqual(len(result["evaluations"]), 10)
            self.assertEqual(result["target_loss"], 1.2 * results[0]["final_loss"])
            at = next(e for e in result["evaluations"] if e["heldout_loss"] <= result["target_loss"])
            self.assertEqual((result["step_at_target"], result["seconds_to_target"]),
                             (at["step"], at["seconds"]))
            self.assertGreater(result["link_bytes"], result["bytes_sent_per_rank"])
            self.assertIn(f"{at['seconds']:.2f} s", done.stdout)
            self.assertIn(f"allreduce of {result['optimizer']}: {result['allreduce']}\n", done.stdout)
        # The rate changes times, but not the training itself.
        for fast, slow in zip(results[:2], results[2:]):
            self.assertEqual(fast["final_loss"], slow["final_loss"])
        self.assertLess(results[1]["bytes_sent_per_rank"], results[0]["bytes_sent_per_rank"] / 2)

    def test_every_optimizer_has_the_target_of_its_family(self):
        path = self.folder / "out.json"
        done = self.finish(self.start_tool("--hosts", "2", "--rates", "1gbit", "--steps", "20", "--eval-every", "50",
                                           "--json", str(path), "--", *SMALL))
        self.assertEqual(done.returncode, 0, done)
        results = {result["optimizer"]: result for result in json.loads(path.read_text())["results"]}
        self.assertEqual(list(results), list(METHODS))
        for optimizer, result in results.items():
            dense = results["lamb" if "lamb" in optimizer else "adam"]
            self.assertEqual(result["target_loss"], 1.02 * dense["final_loss"])
            if optimizer not in ("zero-one-adam", "diloco-fp4"):
                self.assertEqual(result["rounds"], 20)
            self.assertIn(f"allreduce of {optimizer}: ", done.stdout)
        self.assertLess(results["zero-one-adam"]["rounds"], 20)
        self.assertLess(results["diloco-fp4"]["bytes_sent_per_rank"], results["adam"]["bytes_sent_per_rank"] / 8)
        self.assertLess(results["adam-fp4"]["bytes_sent_per_rank"], results["adam"]["bytes_sent_per_rank"] / 4)

    def test_a_failed_run_is_shown(self):
        older = self.folder / "older.json"
        older.write_text("{}")
        done = self.finish(self.start_tool("--hosts", "2", "--steps", "4", "--json", str(older), "--",
                                           "--no-such-option"))
        self.assertEqual((done.returncode, done.stdout), (2, ""), done)
        self.assertEqual(older.read_text(), "{}")
        self.assertIn("--no-such-option", done.stderr)
        done = self.finish(self.start_tool("--hosts", "2", "--rates", "1gbit", "--steps", "20", "--",
                                           *SMALL, "--lr", "1e6"))
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("adam diverged at step", done.stderr)

    def test_bad_usage_is_said(self):
        for arguments, text in ((["--factor", "0.5"], "1 ... 10"), (["--steps", "x"], "--steps"),
                                (["--optimizers", "sgd"], "sgd is not one of"),
                                (["--optimizers", "onebit-lamb,adam"], "onebit-lamb needs lamb"),
                                (["--optimizers", "adam,zero-one-adam", "--freeze", "9"], "--freeze is for"),
                                (["--build", "/nonexistent"], "train_text is missing"),
                                (["--json", "/nonexistent/x.json"], "/nonexistent/x.json")):
            with self.subTest(arguments=arguments):
                done = self.finish(self.start_tool(*arguments))
                self.assertEqual((done.returncode, done.stdout), (2, ""), done)
                self.assertIn(text, done.stderr)

    def test_nothing_is_left_after_a_signal(self):
        tool = self.start_tool("--hosts", "2", "--steps", "100000", "--eval-every", "50", "--", *SMALL)
        self.assertIn("running", tool.stderr.readline())
        self.wait_for_file(pathlib.Path(self.folder / self.training_folder() / "training.json"))
        tool.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(tool).returncode, 128 + signal.SIGTERM)
        # tearDown looks for what is left.

    def training_folder(self) -> str:
        return next(path.name for path in self.folder.iterdir() if "time-to-loss" in path.name)


if __name__ == "__main__":
    lab_case.skip_without_lab()
    BUILD = str(pathlib.Path(sys.argv.pop(1)).resolve().parents[1])
    unittest.main()
