# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""perf/replay: its arithmetic, and small re-enactments in the lab: replay_test.py BUILD"""

import dataclasses
import json
import pathlib
import signal
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "perf" / "studies"), str(ROOT / "perf"), str(ROOT / "tests" / "perf")]

# pylint: disable=wrong-import-position
import lab_case
from comparison.runner import Runner
from replays.published_rows import (ADAM_PHASES, BERT_LARGE, COVENANT, DENSE, ETHERNET, FP4, INFINIBAND, LAMB_PHASES,
                                    ONE_BIT, TOP_K, ZERO_ONE_PHASES, Measured, Schedule, Stage, published_rows)
from replays.replay_jobs import link_rate, schedule_of
from replays.replay_table import Result, row_lines, stage_lines

BUILD = pathlib.Path()
FRAMING = 1514 / 1448


def stage(seconds: float, link_bytes: float) -> Stage:
    return Stage(seconds, link_bytes, seconds / 2, 0.01, 30)


def measured(setting=ETHERNET, dense=2.0, one_bit=0.125) -> Measured:
    """Four hosts, on which one bit sends a sixteenth and Top-k a hundredth of full precision."""
    return Measured(setting, 2 if setting is COVENANT else 4, 1, {
        DENSE: stage(dense, 1600e6), ONE_BIT: stage(one_bit, 100e6), FP4: stage(0.5, 400e6),
        TOP_K: stage(70, 0.04 * COVENANT.elements * FRAMING)})


def counted(phases: tuple) -> Schedule:
    """Stands in for onebit_schedule."""
    return Schedule(1000, 10, 400, 400) if phases == ZERO_ONE_PHASES else Schedule(1000, 200, 800, 1000)


def results(figures=measured()) -> dict[str, Result]:
    return {f"{row.paper}: {row.what}": Result.of(row, dataclasses.replace(
                figures, setting=row.setting, hosts=2 if row.setting is COVENANT else figures.hosts))
            for row in published_rows(counted)}


class ArithmeticTest(unittest.TestCase):
    def test_speed_ups_are_of_steps_with_their_computing(self):
        found = results()
        computing = ETHERNET.computing[4]
        gain = (2 + computing) / (0.125 + computing)
        self.assertAlmostEqual(found["1-bit Adam: Ethernet, BERT-Large: compressed stage"].here, gain)
        for task, share in (("BERT-Large", 0.15), ("SQuAD", 0.25)):
            whole = found[f"1-bit Adam: Ethernet, {task}: whole run"].here
            self.assertAlmostEqual(whole, 1 / (share + (1 - share) / gain))
        # 200 steps in full precision and 800 compressed, against 10 and 400, and 590 that send nothing.
        slow = 0.45644
        self.assertAlmostEqual(found["0/1 Adam: whole run over 1-bit Adam"].here,
                               (slow + 0.2 * 2 + 0.8 * 0.125) / (slow + 0.01 * 2 + 0.4 * 0.125))

    def test_volumes_are_of_bytes_on_the_link(self):
        found = results()
        self.assertAlmostEqual(found["1-bit LAMB: volume"].here, 1 / (0.2 + 0.8 / 16))
        zero_one, adam = 0.01 + 0.4 / 16, 0.2 + 0.8 / 16
        self.assertAlmostEqual(found["0/1 Adam: volume saved of 1-bit Adam's"].here, 100 * (1 - zero_one / adam))
        self.assertAlmostEqual(found["0/1 Adam: volume under Adam's"].here, 1 / zero_one)
        self.assertAlmostEqual(found["0/1 Adam: rounds saved"].here, 60)
        self.assertAlmostEqual(found["Streaming DiLoCo: volume, every 30 steps"].here, 30 * 4)
        self.assertAlmostEqual(found["SparseLoCo: volume of a round"].here, 100)

    def test_other_figures(self):
        found = results()
        self.assertAlmostEqual(found["1-bit Adam: Ethernet: average in fp16"].here, 2000)
        self.assertAlmostEqual(found["1-bit Adam: Ethernet: average in fp16"].published, 2133.24)
        self.assertAlmostEqual(found["SparseLoCo: utilization"].here, 100 * 1200 / 1270)
        byteps = found["BytePS: 518 s become, with one bit"]
        computing = byteps.row.setting.computing[4]
        self.assertAlmostEqual(byteps.here, 518.3 * (computing + 0.125) / (computing + 2))

    def test_a_sentence_comes_with_what_differs_by_more_than_15_percent(self):
        for found in (results(), results(measured(one_bit=0.18)), results(measured(dense=30, one_bit=29))):
            text = " ".join("\n".join(row_lines(list(found.values()))).split())
            for name, result in found.items():
                sentence = f"{name.replace(': ', ', ', 1)}: "
                self.assertEqual(sentence in text, not 0.85 <= result.ratio <= 1.15, (name, result.ratio))
        self.assertIn("published 2x of the others makes 1.74x", text)
        self.assertIn("6.6x leaves 173 ms to the average in one bit; here the average in one bit takes 29000 ms", text)

    def test_links_have_the_published_rate_for_tcp(self):
        self.assertAlmostEqual(link_rate(ETHERNET, 1) * ETHERNET.shrink[1] / FRAMING / 4.1e9, 1)
        self.assertAlmostEqual(link_rate(COVENANT, 1) * COVENANT.shrink[1] / FRAMING / 0.11e9, COVENANT.hurry)

    def test_models_are_so_small_that_16_ranks_have_room_on_one_machine(self):
        for setting in {row.setting.name: row.setting for row in published_rows(counted)}.values():
            self.assertGreaterEqual(setting.shrink[1], 8)
            self.assertGreaterEqual(setting.shrink.get(4, 32), 32)

    def test_stages_are_shown_in_the_size_of_the_lab(self):
        figures = Measured(INFINIBAND, 4, 4, {ONE_BIT: stage(0.25, 512e6)})
        self.assertRegex(stage_lines([figures])[2], r"4 x 4 +\| 1/512 +\| one bit +\| +250 \| +50 % \| +1\.00 \| +30 \| +10")


class ScheduleTest(unittest.TestCase):
    def test_schedules_are_the_library_s(self):
        with Runner(ROOT) as runner:
            adam, lamb, zero_one = (schedule_of(runner, BUILD, phases)
                                    for phases in (ADAM_PHASES, LAMB_PHASES, ZERO_ONE_PHASES))
        self.assertEqual(adam, Schedule(162000, 24500, 137500, 162000))
        self.assertEqual(lamb, Schedule(6548, 1107, 5441, 6548))
        self.assertEqual(zero_one.steps, 162000)
        self.assertAlmostEqual(1 - zero_one.rounds / zero_one.steps, 0.537, places=3)


class ToolTest(lab_case.LabTestCase):
    def start_tool(self, *arguments: str) -> subprocess.Popen:
        return subprocess.Popen([str(ROOT / "perf" / "replay"), *arguments], text=True, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment)

    def finish(self, lab: subprocess.Popen) -> subprocess.CompletedProcess:
        output, errors = lab.communicate(timeout=250)
        return subprocess.CompletedProcess(lab.args, lab.returncode, output, errors)

    def test_figures_are_those_of_the_links(self):
        path = self.folder / "out.json"
        done = self.finish(self.start_tool("--build", str(BUILD), "--quick", "--rows", "infiniband", "--json", str(path)))
        self.assertEqual(done.returncode, 0, done)
        report = json.loads(path.read_text())
        self.assertEqual((report["format"], report["version"], report["is_quick"]), ("onebit-replay", 1, True))
        self.assertEqual([row["ranks_per_host"] for row in report["rows"]], [1, 1, 1, 4, 4, 4])
        for row in report["rows"]:
            self.assertAlmostEqual(row["ratio"], row["here"] / row["published"])
            self.assertEqual(row["why"] is None, 0.85 <= row["ratio"] <= 1.15, row)
            self.assertIn(f"| {row['row']} ", done.stdout)
        # Each of two hosts sends half of the tensor twice, whatever its ranks are.
        self.assertEqual([setting["ranks_per_host"] for setting in report["settings"]], [1, 4])
        for setting in report["settings"]:
            self.assertEqual(setting["computing_seconds"], 0.14795)
            dense, one_bit = (setting["stages"][name]["link_bytes"] for name in (DENSE, ONE_BIT))
            self.assertTrue(1 < dense / (2 * BERT_LARGE * FRAMING) < 1.25, setting)
            self.assertTrue(10 < dense / one_bit < 16, setting)
            for figures in setting["stages"].values():
                self.assertGreater(figures["messages"], 0)
                self.assertGreater(figures["cpu_seconds"], 0)
            # The links cannot be faster than they are, but for what their buckets hold.
            self.assertGreater(setting["stages"][DENSE]["seconds"], 0.8 * 2 * BERT_LARGE * 8 / 32e9)

    def test_bad_usage_is_said(self):
        for arguments, text in ((["--rows", "nothing like it"], "no row has such a text"), (["--rows", "("], "expression"),
                                (["--ranks-per-host", "3"], "1 or 4"), (["--json", "/nonexistent/x.json"], "--json")):
            with self.subTest(arguments=arguments):
                done = self.finish(self.start_tool("--build", str(BUILD), *arguments))
                self.assertEqual((done.returncode, done.stdout), (2, ""), done)
                self.assertIn(text, done.stderr)
        done = self.finish(self.start_tool("--build", "/nonexistent"))
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("build target onebit_python, or give --build", done.stderr)

    def test_nothing_is_left_after_a_signal(self):
        tool = self.start_tool("--build", str(BUILD), "--rows", "BytePS")
        self.assertIn("ResNet-18", tool.stderr.readline())
        self.assertTrue(lab_case.comes_true(self.has_ranks))
        tool.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(tool).returncode, 128 + signal.SIGTERM)
        # tearDown looks for what is left.

    def has_ranks(self) -> bool:
        return any("replay_rank.py" in process for process in lab_case.marked_processes.living(self.mark))


if __name__ == "__main__":
    lab_case.skip_without_lab()
    BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
