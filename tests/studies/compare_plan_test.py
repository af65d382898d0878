# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Sizes, plans, commands and results of perf/compare, without running anything: compare_plan_test.py ROOT"""

import dataclasses
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1))
sys.path[:0] = [str(ROOT / "perf" / "studies"), str(ROOT / "perf")]

# pylint: disable=wrong-import-position
import machine_facts
from comparison import cost
from comparison.links import Cell, Link, layout_text
from comparison.compare_plan import Row, Run, PlanRequest, examples, make_plan
from comparison.compare_results import ResumeError, Results, State
from comparison.runner import Outcome
from comparison.sizes import parse_size, size_text, sweep_flags, sweeps
from comparison.compared_systems import SYSTEMS, Files, Checkout, command, shell_text
from reporting import systems as reported

K, M = 1 << 10, 1 << 20
SHM, SLOW, FAST = Link.parse("shm"), Link.parse("100mbit"), Link.parse("10gbit")
CHECKOUT = Checkout(pathlib.Path("/checkout"), pathlib.Path("build/release"), cores=2, is_root=False)
FILES = Files(pathlib.Path("/files/r.json"), pathlib.Path("/files/l.json"), pathlib.Path("/files/store"))
MACHINE = {"cpu": "c", "cores": 2, "kernel": "k", "date": "d", "commit": "x", "compiler": "g",
           "copy_gbps": 10.0, "cache_bytes": None}


def report(run: Run, time_us: float, nwrong=None, rel_error=5e-8) -> dict:
    """The report that a tool writes."""
    place = {"time": time_us, "alg_bw": 1, "bus_bw": 1, "nwrong": nwrong}
    return {"end_time": "now", "results": [
        {"size": size, "out_of_place": place, "in_place": {**place, "time": None}, "actual_iterations": 4,
         "untimed_calls": 1, "wire_bytes": 100, "levels": 1, "rel_error": rel_error} for size in run.sizes]}


class SizesTest(unittest.TestCase):
    def test_sizes_are_read_as_they_are_written(self):
        for text, size in {"4": 4, "64K": 64 * K, "1m": M, "1G": K * M}.items():
            self.assertEqual(parse_size(text), size)
            self.assertEqual(parse_size(size_text(size)), size)
        for text in ("", "K", "-4", "0", "3", "1.5K", "64KB", "8G"):
            with self.assertRaisesRegex(ValueError, "is not a size"):
                parse_size(text)

    def test_every_size_is_in_one_sweep_that_a_tool_can_make(self):
        for sizes in ([4], [K, 4 * K, 16 * K], [K, 4 * K, 12 * K, 13 * K], [K, 2 * K, 8 * K, 32 * K], []):
            runs = sweeps(sizes)
            self.assertEqual([size for run in runs for size in run], sizes)
            for run in runs:
                flags = dict(zip(*[iter(sweep_flags(run))] * 2))
                size, made = parse_size(flags["-b"]), []
                while size <= parse_size(flags["-e"]):
                    made.append(size)
                    size *= int(flags.get("-f", 1 << 40))
                self.assertEqual(made, run)
        self.assertEqual(len(sweeps([K, 4 * K, 16 * K])), 1)


class LinkTest(unittest.TestCase):
    def test_rates_are_bits_per_second(self):
        self.assertEqual(Link.parse("2.7gbit").rate_bits_per_second, 2_700_000_000)
        self.assertEqual((SHM.kind, SHM.name, SHM.rate), ("shm", "shm", None))
        for text in ("", "fast", "10", "-1gbit", "0mbit", "1 gbit", "1gbit/s"):
            with self.assertRaisesRegex(ValueError, "is not a link"):
                Link.parse(text)


class SystemsTest(unittest.TestCase):
    def test_what_is_compared_is_what_is_reported(self):
        self.assertEqual({name: system.is_dense for name, system in SYSTEMS.items()},
                         {name: system in reported.DENSE for name, system in reported.BY_NAME.items()})


class LayoutTest(unittest.TestCase):
    def test_ranks_are_said_with_their_hosts(self):
        self.assertEqual((Cell(SLOW, 4).layout, Cell(SLOW, 4).ranks), ("4 ranks", 4))
        shared = Cell(SLOW, 4, ranks_per_host=2)
        self.assertEqual((shared.layout, shared.ranks), ("4 hosts x 2 ranks", 8))
        self.assertEqual(layout_text([2, 4], 8), "2, 4 hosts x 8 ranks")


class PlanTest(unittest.TestCase):
    request = PlanRequest([Cell(SHM, 2), Cell(SLOW, 2), Cell(SLOW, 4), Cell(SLOW, 8), Cell(FAST, 4)],
                list(SYSTEMS), [64 * K, M, 4 * M, 64 * M], 3)

    def test_with_time_enough_every_row_is_measured_in_turns(self):
        plan = make_plan(self.request, 1e6)
        self.assertEqual((plan.repetitions, plan.left_out), (3, []))
        first = [run for run in plan.runs if run.repetition == 1]
        measured = [row for run in first for row in run.rows()]
        self.assertEqual(len(measured), len(set(measured)))
        self.assertEqual(set(measured), set(self.request.rows()))
        order = [run.repetition for run in plan.runs]
        self.assertEqual(order, sorted(order))  # all systems have had a turn before the next begins
        self.assertEqual([run.system.name for run in first if run.cell == Cell(SHM, 2)],
                         [name for name in SYSTEMS for _ in range(2)])

    def test_rows_that_the_wire_decides_are_not_repeated(self):
        again = [row for run in make_plan(self.request, 1e6).runs if run.repetition == 2 for row in run.rows()]
        self.assertNotIn(Row(Cell(SLOW, 4), "gloo", 64 * M), again)
        self.assertIn(Row(Cell(SLOW, 4), "onebit-ef", 64 * M), again)
        self.assertIn(Row(Cell(FAST, 4), "gloo", 64 * M), again)

    def test_systems_in_full_precision_are_repeated_together(self):
        dense = {name for name, system in SYSTEMS.items() if system.is_dense}
        cells = [Cell(Link.parse(f"{rate}mbit"), 4) for rate in range(100, 2000, 100)]
        plan = make_plan(PlanRequest(cells, list(SYSTEMS), [64 * M], 2), 1e6)
        by_cell = {cell: {run.system.name for run in plan.runs if run.repetition == 2 and run.cell == cell}
                   for cell in cells}
        self.assertEqual({frozenset(systems & dense) for systems in by_cell.values()},
                         {frozenset(), frozenset(dense)})
        self.assertTrue(all("onebit-ef" in systems for systems in by_cell.values()))
        # An unavailable system does not stop others from being measured again.
        slow = next(cell for cell in reversed(cells) if not by_cell[cell] & dense)
        absent = frozenset({("lab", "openmpi")})
        plan = make_plan(PlanRequest([slow], ["openmpi", "gloo"], [64 * M], 2, absent), 1e6)
        self.assertEqual([run.repetition for run in plan.runs], [1, 2])

    def test_what_is_counted_on_links_runs_alone(self):
        for run in make_plan(self.request, 1e6).runs:
            if run.repetition == 1 and run.cell.link.kind == "lab" and 64 * M in run.sizes:
                self.assertEqual(run.sizes, (64 * M,))
                self.assertFalse(run.is_checked)
            if run.is_checked:
                self.assertIn(run.cell.link, (SHM, FAST))
                self.assertLessEqual(run.sizes[-1], M)
        self.assertTrue(any(run.is_checked for run in make_plan(self.request, 1e6).runs))

    def test_a_budget_is_kept_and_the_middle_number_of_hosts_goes_last(self):
        whole = make_plan(self.request, 1e6).seconds()
        for share in (0.9, 0.6, 0.3, 0.1):
            plan = make_plan(self.request, share * whole)
            self.assertLessEqual(plan.seconds(), share * whole)
            measured = {row for run in plan.runs for row in run.rows()}
            self.assertEqual(measured | set(plan.left_out), set(self.request.rows()))
        # Slow runs of 8 hosts are dropped first; systems that are compared stay together.
        single = PlanRequest(self.request.cells, self.request.systems, self.request.sizes, 1)
        one = make_plan(single, 1e6).seconds()
        plan = make_plan(self.request, one - 1)
        self.assertEqual({(row.cell.hosts, row.size) for row in plan.left_out}, {(8, 64 * M)})
        self.assertEqual({row.system for row in plan.left_out},
                         {name for name, system in SYSTEMS.items() if system.is_dense})

    def test_absent_systems_are_not_run(self):
        absent = frozenset({("lab", "gloo"), ("shm", "mpich")})
        single = PlanRequest(self.request.cells, self.request.systems, self.request.sizes, 1, absent)
        plan = make_plan(single, 1e6)
        kinds = {(run.cell.link.kind, run.system.name) for run in plan.runs}
        self.assertFalse(kinds & absent)
        self.assertIn(("shm", "gloo"), kinds)

    def test_examples_have_4_hosts_and_the_largest_size(self):
        shown = examples(make_plan(self.request, 1e6).runs)
        self.assertEqual(set(shown), {(kind, system) for kind in ("shm", "lab") for system in SYSTEMS})
        for (kind, _), run in shown.items():
            self.assertEqual((run.cell.link.kind, run.sizes[-1]), (kind, 64 * M))
            self.assertEqual(run.cell.hosts, 4 if kind == "lab" else 2)  # shm has no other here

    def test_the_default_comparison_takes_25_minutes(self):
        cells = [Cell(Link.parse(link), hosts) for link in ("shm", "100mbit", "1gbit", "2.7gbit", "10gbit")
                 for hosts in (2, 4, 8)]
        plan = make_plan(PlanRequest(cells, list(SYSTEMS), [K << 2 * i for i in range(9)], 3), 1500)
        self.assertGreater(plan.seconds(), 600)
        self.assertLessEqual(plan.seconds(), 1500)
        self.assertIn(Row(Cell(SLOW, 4), "gloo", 64 * M), {row for run in plan.runs for row in run.rows()})
        # The most important rows are measured as often as any, for all systems.
        again = {row for run in plan.runs if run.repetition == 3 for row in run.rows()}
        for system in SYSTEMS:
            self.assertIn(Row(Cell(Link.parse("1gbit"), 4), system, 64 * M), again)

    def test_slow_links_are_expected_to_be_slow(self):
        # 64 MiB among 4 hosts at 100 Mbit/s: 8.4 s of wire.
        seconds = cost.call_seconds(SYSTEMS["gloo"], Cell(SLOW, 4), 64 * M)
        self.assertTrue(8.4 < seconds < 12, seconds)

    def test_ranks_of_a_host_share_its_link(self):
        one, four = Cell(SLOW, 4), Cell(SLOW, 4, ranks_per_host=4)
        tensors = {name: cost.tensors_on_link(system, four) for name, system in SYSTEMS.items()}
        # 2 (G-1)/G with G hosts in two levels, 2 (n-1)/n around n ranks, 4 times as much from each rank for itself.
        self.assertEqual({tensors[name] for name in ("onebit-dense", "onebit-ef", "mpich", "openmpi")}, {1.5})
        self.assertEqual({tensors["gloo"], tensors["openmpi-ring"]}, {2 * 15 / 16})
        self.assertEqual(tensors["multipass"], 6)
        self.assertEqual({cost.tensors_on_link(system, one) for system in SYSTEMS.values()}, {1.5})
        self.assertEqual(cost.tensors_on_link(SYSTEMS["gloo"], Cell(SLOW, 4, ranks_per_host=2)), 2 * 7 / 8)
        for name in ("gloo", "multipass"):
            self.assertGreater(cost.call_seconds(SYSTEMS[name], four, 64 * M),
                               1.2 * cost.call_seconds(SYSTEMS[name], one, 64 * M))

    def test_all_ranks_share_the_cores(self):
        seconds = [cost.call_seconds(SYSTEMS["onebit-ef"], Cell(Link.parse("100gbit"), 4, ranks), 64 * M)
                   for ranks in (1, 2, 4)]
        self.assertAlmostEqual(seconds[1] / seconds[0], 2, delta=0.01)
        self.assertAlmostEqual(seconds[2] / seconds[0], 4, delta=0.01)


class CommandTest(unittest.TestCase):
    def line(self, system: str, link: Link, hosts: int, files: Files | None = FILES, ranks_per_host: int = 1) -> str:
        cell = Cell(link, hosts, ranks_per_host)
        return " ".join(command(SYSTEMS[system], cell, ["-b", "1K"], CHECKOUT, files))

    def test_each_system_has_its_launcher(self):
        starts = {"onebit-ef": "build/release/perf/all_reduce_perf --procs 4 -b 1K --mode ef",
                  "gloo": "build/release/perf/onebit_run -n 4 build/release/perf/studies/baselines/allreduce_gloo",
                  "mpich": "mpirun.mpich ", "openmpi": "mpirun.openmpi --oversubscribe "}
        for system, start in starts.items():
            self.assertTrue(self.line(system, SHM, 4).startswith(start), self.line(system, SHM, 4))
            self.assertIn("-J /files/r.json", self.line(system, SHM, 4))
        lab = "perf/lab run --hosts 4 --rate 10gbit --build build/release --json /files/l.json -- build/release/perf/"
        self.assertTrue(self.line("onebit-dense", FAST, 4).startswith(lab + "all_reduce_perf -b 1K"))
        self.assertTrue(self.line("gloo", FAST, 4).startswith(lab + "studies/baselines/allreduce_gloo -b 1K"))
        self.assertIn("mpirun --mpi mpich --hosts 4", self.line("mpich", FAST, 4))
        self.assertIn("--mpi-arg=coll_tuned_allreduce_algorithm --mpi-arg=4",
                      self.line("openmpi-ring", FAST, 4))

    def test_hosts_of_the_lab_may_have_several_ranks(self):
        for system, (start, setting) in {
                "onebit-ef": ("perf/lab run ", "--transport socket"), "gloo": ("perf/lab run ", "--interface eth0"),
                "openmpi": ("perf/lab mpirun --mpi openmpi ", "mpi_yield_when_idle"),
                "mpich": ("perf/lab mpirun --mpi mpich ", "MPIR_CVAR_POLLS_BEFORE_YIELD")}.items():
            line = self.line(system, FAST, 2, ranks_per_host=2)  # more ranks than cores
            self.assertTrue(line.startswith(f"{start}--hosts 2 --ranks-per-host 2 --rate 10gbit "), line)
            self.assertIn(setting, line)
            self.assertNotIn("--ranks-per-host", self.line(system, FAST, 2))

    def test_ranks_that_share_cores_wait_politely(self):
        for system, setting in {"openmpi": "mpi_yield_when_idle",
                                "mpich": "MPIR_CVAR_POLLS_BEFORE_YIELD"}.items():
            for link in (SHM, FAST):
                self.assertIn(setting, self.line(system, link, 4))
                self.assertNotIn(setting, self.line(system, link, 2))

    def test_what_is_shown_has_no_file_of_ours(self):
        for system in SYSTEMS:
            for link in (SHM, FAST):
                self.assertNotIn("/files", self.line(system, link, 4, None))

    def test_what_is_shown_can_be_pasted(self):
        for link in (SHM, FAST):
            text = shell_text(command(SYSTEMS["gloo"], Cell(link, 4), ["-b", "1K"], CHECKOUT, None))
            self.assertTrue(text.endswith(' --store "$(mktemp -d)"'), text)
        self.assertEqual(shell_text(["a b", "c"]), "'a b' c")


class ResultsTest(unittest.TestCase):
    cell = Cell(FAST, 4)
    rows = PlanRequest([cell], ["gloo"], [K, 4 * K], 3).rows()

    def run_of(self, repetition: int, *sizes: int) -> Run:
        return Run(self.cell, SYSTEMS["gloo"], repetition, sizes, False, 0.1)

    def results(self) -> Results:
        return Results(dict(MACHINE), {"sizes": [K, 4 * K]})

    def test_medians_and_extremes_of_repetitions(self):
        results = self.results()
        for repetition, time_us in enumerate((30, 10, 20), start=1):
            run = self.run_of(repetition, K, 4 * K)
            self.assertIsNone(results.add(run, Outcome(1, report(run, time_us), None, None)))
        content = results.as_json(self.rows)
        self.assertEqual((content["format"], content["version"]), ("onebit-compare", 1))
        entry = content["results"][0]
        self.assertEqual(entry, {
            "link": "lab", "rate": "10gbit", "rate_bits_per_second": 10**10, "hosts": 4, "ranks_per_host": 1,
            "system": "gloo", "size": K, "time_us": 20, "time_us_min": 10, "time_us_max": 30,
            "repetitions": 3, "calls": 4, "wire_bytes": 100, "link_bytes": None, "levels": None,
            "rel_error": 5e-8, "nwrong": None, "error": None,
            "state": "measured", "failed_repetitions": 0, "failure": None})

    def test_link_bytes_are_those_of_a_call_of_the_busiest_host(self):
        lab = {"links": [{"sent_bytes": 5000}, {"sent_bytes": 5500}]}
        alone, together = self.run_of(1, 4 * K), self.run_of(1, K, 4 * K)
        for run, expected in ((alone, 1100), (together, None)):
            results = self.results()
            results.add(run, Outcome(1, report(run, 1), lab, None))
            self.assertEqual(results.as_json(self.rows)["results"][-1]["link_bytes"], expected)

    def test_link_bytes_are_those_of_the_repetition_with_the_most_calls(self):
        results = self.results()
        for repetition, calls, sent in ((1, 2, 9000), (2, 8, 18000), (3, 2, 9900)):
            run = self.run_of(repetition, 4 * K)
            done = report(run, 1)
            done["results"][0]["actual_iterations"] = calls
            results.add(run, Outcome(1, done, {"links": [{"sent_bytes": sent}]}, None))
        self.assertEqual(results.as_json(self.rows)["results"][0]["link_bytes"], 2000)  # untimed calls count, too

    def test_ranks_of_hosts_are_told_apart(self):
        results = self.results()
        cells = [Cell(FAST, 4, ranks) for ranks in (1, 2)]
        rows = PlanRequest(cells, ["onebit-ef"], [K], 1).rows()
        runs = [Run(cell, SYSTEMS["onebit-ef"], 1, (K,), False, 0.1) for cell in cells]
        self.assertNotEqual(runs[0].key, runs[1].key)
        for run, time_us in zip(runs, (10, 20), strict=True):
            done = report(run, time_us, rel_error=0.9)
            done["results"][0]["levels"] = run.cell.ranks_per_host
            results.add(run, Outcome(1, done, None, None))
        entries = results.as_json(rows)["results"]
        self.assertEqual([(entry["hosts"], entry["ranks_per_host"], entry["levels"], entry["time_us"])
                          for entry in entries], [(4, 1, 1, 10), (4, 2, 2, 20)])
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "c.json"
            results.save(path, rows)
            again = Results.resume(path, dict(MACHINE), {"sizes": [K, 4 * K]})
            self.assertEqual(again.as_json(rows)["results"], entries)
            with self.assertRaisesRegex(ResumeError, "was begun with --ranks-per-host None, not 2"):
                Results.resume(path, dict(MACHINE), {"ranks-per-host": 2})

    def test_failures_have_their_text_and_good_samples_outweigh_them(self):
        results = self.results()
        run = self.run_of(1, K, 4 * K)
        half = report(self.run_of(1, K), 7)
        self.assertEqual(results.add(run, Outcome(1, half, None, "exit status 3: boom")),
                         "exit status 3: boom")
        good, bad = results.as_json(self.rows)["results"]
        self.assertEqual((good["time_us"], good["error"]), (7, None))
        self.assertEqual((bad["time_us"], bad["repetitions"], bad["error"]), (None, 0, "exit status 3: boom"))
        self.assertEqual((good["state"], good["failed_repetitions"]), ("measured", 0))
        self.assertEqual((bad["state"], bad["failed_repetitions"]), ("failed", 1))
        self.assertFalse(results.has(run))

    def test_a_failure_after_a_good_sample_is_kept(self):
        results = self.results()
        first, second = self.run_of(1, K), self.run_of(2, K)
        results.add(first, Outcome(1, report(first, 7), None, None))
        results.add(second, Outcome(1, None, None, "no end after 9 s"))
        entry = results.as_json(self.rows)["results"][0]
        self.assertEqual((entry["time_us"], entry["state"], entry["error"]), (7, "measured", None))
        self.assertEqual((entry["failed_repetitions"], entry["failure"]), (1, "no end after 9 s"))

    def test_a_command_that_fails_after_its_last_row_makes_all_rows_doubtful(self):
        results = self.results()
        run = self.run_of(1, K, 4 * K)
        results.add(run, Outcome(1, report(run, 7), None, "exit status 9: at the end"))
        self.assertEqual([entry["failed_repetitions"] for entry in results.as_json(self.rows)["results"]],
                         [1, 1])

    def test_an_example_replaces_another_command_and_nothing_replaces_it(self):
        results = self.results()
        for text, is_example in (("first", False), ("second", False)):
            results.show_command(self.run_of(1, K), text, is_example)
        self.assertEqual(results.commands, {"lab": {"gloo": "first"}})
        for text, is_example in (("example", True), ("later", False)):
            results.show_command(self.run_of(1, K), text, is_example)
        self.assertEqual(results.as_json(self.rows)["commands"], {"lab": {"gloo": "example"}})

    def test_a_failure_counts_before_what_was_not_tried(self):
        results = self.results()
        run = self.run_of(1, K)
        results.leave_out(run.rows(), State.LEFT_OUT, "left out: slow")
        self.assertEqual(results.as_json(self.rows)["results"][0]["state"], "left out")
        results.add(run, Outcome(1, None, None, "boom"))
        results.leave_out(run.rows(), State.LEFT_OUT, "left out: slow")
        entry = results.as_json(self.rows)["results"][0]
        self.assertEqual((entry["state"], entry["error"]), ("failed", "boom"))

    def test_wrong_elements_are_an_error(self):
        results = self.results()
        run = self.run_of(1, K)
        results.add(run, Outcome(1, report(run, 7, nwrong=3), None, "exit status 1: wrong"))
        entry = results.as_json(self.rows)["results"][0]
        self.assertEqual((entry["nwrong"], entry["error"]), (6, "6 wrong elements"))
        self.assertEqual(entry["state"], "failed")

    def test_a_result_that_is_no_sum_is_an_error(self):
        for system, error, is_wrong in (("gloo", 9e-6, False), ("gloo", 2e-5, True), ("onebit-ef", 0.9, False),
                                        ("onebit-ef", 1.3, True), ("multipass", 1.3, True),
                                        ("onebit-dense", 0.9, True), ("gloo", float("nan"), True),
                                        ("onebit-fp4", 0.2, False), ("onebit-fp4", 0.6, True)):
            results = self.results()
            run = dataclasses.replace(self.run_of(1, K), system=SYSTEMS[system])
            results.add(run, Outcome(1, report(run, 7, rel_error=error), None, None))
            entry = results.as_json(run.rows())["results"][0]
            self.assertEqual(entry["state"], "failed" if is_wrong else "measured", (system, error))
            self.assertEqual("relative error" in (entry["error"] or ""), is_wrong)

    def test_a_file_is_continued_and_failures_are_tried_again(self):
        results = self.results()
        done, failed = self.run_of(1, K), self.run_of(1, 4 * K)
        results.add(done, Outcome(1, report(done, 7), None, None))
        results.add(failed, Outcome(1, report(failed, 8, nwrong=1), None, "wrong"))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "c.json"
            results.save(path, self.rows)
            self.assertEqual([entry.name for entry in path.parent.iterdir()], ["c.json"])
            again = Results.resume(path, dict(MACHINE), {"sizes": [K, 4 * K]})
            self.assertTrue(again.has(done))
            self.assertFalse(again.has(failed))
            self.assertEqual([sample["size"] for sample in again.samples], [K])
            for other in (dict(MACHINE, commit="y"), dict(MACHINE, cores=3)):
                with self.assertRaisesRegex(ResumeError, "cannot be compared"):
                    Results.resume(path, other, {"sizes": [K, 4 * K]})
            with self.assertRaisesRegex(ResumeError, "--sizes"):
                Results.resume(path, dict(MACHINE), {"sizes": [K]})
            path.write_text("[]", encoding="utf-8")
            with self.assertRaisesRegex(ResumeError, "not the file of a comparison"):
                Results.resume(path, dict(MACHINE), {})


class MachineTest(unittest.TestCase):
    def test_facts(self):
        facts = machine_facts.facts(ROOT, pathlib.Path("build/none"))
        self.assertEqual(set(facts), set(MACHINE))
        self.assertGreater(facts["copy_gbps"], 0.1)
        self.assertTrue(facts["cache_bytes"] is None or facts["cache_bytes"] >= 1 << 10, facts)
        self.assertEqual(facts["compiler"], "unknown")
        self.assertGreater(facts["cores"], 0)


if __name__ == "__main__":
    unittest.main()
