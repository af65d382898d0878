# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The figures of perf/compare that perf/report accepts, and its errors for anything else."""

import pathlib
import tempfile
import unittest

import report_input
from reporting import comparison
from reporting.fields import Malformed
from reporting.systems import BY_NAME, GLOO, ONEBIT_DENSE, ONEBIT_EF

ROW = "compare.json: results[0]"


def without(value: dict, key: str) -> dict:
    return {name: member for name, member in value.items() if name != key}


class MalformedTest(unittest.TestCase):
    def problem(self, value) -> str:
        with self.assertRaises(Malformed) as caught:
            comparison.parsed(value, "compare.json")
        return str(caught.exception)

    def problem_of_row(self, **changes) -> str:
        document = report_input.document()
        document["results"][0] |= changes
        return self.problem(document)

    def test_the_data_file_itself_is_right(self):
        self.assertEqual(len(comparison.parsed(report_input.document(), "").rows), 72)

    def test_other_values_and_formats(self):
        self.assertIn("compare.json: is no object", self.problem([]))
        document = report_input.document()
        self.assertIn("the format is 'onebit'", self.problem(document | {"format": "onebit"}))
        self.assertIn("has version 2, this report reads 1", self.problem(document | {"version": 2}))
        self.assertIn("results is empty", self.problem(document | {"results": []}))
        self.assertIn("compare.json.results: {} is no list", self.problem(document | {"results": {}}))
        self.assertIn("results[0]: is no object", self.problem(document | {"results": [None]}))
        self.assertIn("commands.gloo: 1 is no text", self.problem(document | {"commands": {"gloo": 1}}))
        nested = document | {"commands": {"lab": {"gloo": 1}}}
        self.assertIn("commands.lab.gloo: 1 is no text", self.problem(nested))
        self.assertIn("commands: is no object", self.problem(document | {"commands": []}))

    def test_missing_members_are_named(self):
        document = report_input.document()
        for key in ("format", "version", "machine", "results", "commands"):
            self.assertIn(f"compare.json: has no member '{key}'", self.problem(without(document, key)))
        for key in document["machine"]:
            changed = document | {"machine": without(document["machine"], key)}
            self.assertIn(f"machine: has no member '{key}'", self.problem(changed))
        for key in ("link", "hosts", "system", "size", "time_us", "time_us_min", "time_us_max",
                    "repetitions", "calls"):
            changed = document | {"results": [without(document["results"][0], key)]}
            self.assertIn(f"{ROW}: has no member '{key}'", self.problem(changed))

    def test_values_out_of_range(self):
        for changes, text in [
            ({"link": "wifi"}, 'link: "wifi" is no link'),
            ({"link": "shm"}, "shared memory has no rate"),
            ({"rate_bits_per_second": None}, "though rate is 1gbit"),
            ({"rate_bits_per_second": 0}, "rate_bits_per_second: 0 is no integer"),
            ({"hosts": 1}, "hosts: 1 is no integer of at least 2"),
            ({"hosts": "4"}, 'hosts: "4" is no integer'),
            ({"ranks_per_host": 0}, "ranks_per_host: 0 is no integer of at least 1"),
            ({"ranks_per_host": 2, "link": "shm", "rate_bits_per_second": None},
             "ranks_per_host: 2 is no 1, though every process counts as a host on shared memory"),
            ({"levels": 0}, "levels: 0 is no integer of at least 1"),
            ({"repetitions": True}, "repetitions: true is no integer"),
            ({"system": "nccl"}, "system known here: openmpi"),
            ({"size": 0}, "size: 0 is no integer of at least 4"),
            ({"size": 6}, "size: 6 is no multiple of 4"),
            ({"time_us": None}, "time_us: null is no number"),
            ({"time_us": -1}, "time_us: -1 is no number above zero"),
            ({"time_us": 1e9}, "is no time between time_us_min"),
            ({"time_us": 10**400}, "is no finite number"),
            ({"time_us": float("inf")}, "time_us: Infinity is no finite number"),
            ({"time_us_max": float("nan")}, "time_us_max: NaN is no finite number"),
            ({"repetitions": 0}, "repetitions: 0 is no integer of at least 1"),
            ({"wire_bytes": 1.5}, "wire_bytes: 1.5 is no integer"),
            ({"rel_error": "small"}, 'rel_error: "small" is no number'),
            ({"error": 7}, "error: 7 is no text"),
            ({"state": "lost"}, 'state: "lost" is no state'),
            ({"state": "failed"}, 'state: "failed" is no state of a row whose error is None'),
            ({"failed_repetitions": -1}, "failed_repetitions: -1 is no integer"),
        ]:
            message = self.problem_of_row(**changes)
            self.assertIn(ROW, message)
            self.assertIn(text, message)

    def test_a_row_that_is_there_twice(self):
        document = report_input.document()
        document["results"].append(dict(document["results"][0], time_us_min=1))
        self.assertIn("results[72]: openmpi with 16384 bytes is there twice", self.problem(document))

    def test_files_that_are_no_json(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "compare.json"
            text = report_input.DATA.read_text()
            for content, expected in [
                (b"", "is not JSON"), (text[:-10].encode(), "is not JSON"), (b"\xff\xfe", "is not JSON"),
                (text.replace('"time_us": 300', '"time_us": NaN', 1).encode(), "NaN is not a JSON number"),
                (b"[" * 100_000, "is not JSON"),
            ]:
                path.write_bytes(content)
                with self.assertRaisesRegex(Malformed, expected):
                    comparison.read(path)
            path.unlink()
            with self.assertRaisesRegex(Malformed, "compare.json: No such file"):
                comparison.read(path)


class RowsTest(unittest.TestCase):
    def test_failures_and_wrong_results_are_rows_without_a_time(self):
        group = report_input.group_of(report_input.figures_of(report_input.document()), "lab", 10**9, 2)
        failed, wrong = group.row(GLOO, 64 << 20), group.row(ONEBIT_DENSE, 4 << 20)
        self.assertEqual((failed.times, failed.problem), (None, "ended with status 1"))
        self.assertEqual((wrong.times, wrong.problem), (None, "2 wrong elements in its result"))
        self.assertEqual(group.problems(), [failed, wrong])
        # Neither takes part in a comparison.
        self.assertIs(group.best_dense(64 << 20).system, ONEBIT_DENSE)
        self.assertIs(group.best_dense(4 << 20).system, GLOO)

    def test_a_failed_row_needs_no_figures(self):
        document = report_input.document()
        keys = ("link", "rate", "rate_bits_per_second", "hosts", "system", "size")
        first = document["results"][0]
        document["results"][0] = {key: first[key] for key in keys} | {"error": ""}
        row = comparison.parsed(document, "").rows[0]
        self.assertEqual((row.times, row.problem), (None, "it gave no reason"))

    def test_what_was_not_tried_is_no_failure(self):
        document = report_input.document()
        rows = document["results"]
        rows[0] |= {"error": "left out: slow"}  # as files say it that have no states
        rows[1] |= {"error": "is not built", "state": "absent"}
        rows[2] |= {"error": "no route"}
        rows[3] |= {"failed_repetitions": 2, "failure": "no end", "state": "measured"}
        read = comparison.parsed(document, "").rows
        self.assertEqual([row.state.value for row in read[:4]], ["left out", "absent", "failed", "measured"])
        self.assertEqual([row.failed_repetitions for row in read[2:4]], [0, 2])
        group = report_input.group_of(report_input.figures_of(document), "lab", 10**9, 4)
        self.assertEqual([row.failure for row in group.doubtful()], ["no end"])

    def test_ranks_of_hosts_are_told_apart(self):
        document = report_input.document()
        shared = report_input.on_shared_hosts(document, 2)
        shared["results"] = [row | {"levels": 2} for row in shared["results"]]
        figures = report_input.figures_of(document, shared)
        self.assertEqual(len(figures.groups), 4 + 3)
        self.assertEqual([layout.text for layout in figures.layouts()],
                         ["2 hosts", "4 hosts", "2 hosts x 2 ranks", "4 hosts x 2 ranks"])
        self.assertEqual([layout.text for layout in figures.main_layouts()], ["4 hosts", "4 hosts x 2 ranks"])
        one, two = (report_input.group_of(figures, "lab", 10**9, 4, ranks) for ranks in (1, 2))
        row = two.row(ONEBIT_EF, 64 << 20)
        self.assertEqual((one.row(ONEBIT_EF, 64 << 20).levels, row.levels), (None, 2))
        # 2 (n-1)/n is 1.5 among 4 ranks and 1.75 among 8; a host's link carries 1.5 for either.
        self.assertAlmostEqual(two.bus_gbps(64 << 20, 1.0) / one.bus_gbps(64 << 20, 1.0), 1.75 / 1.5)
        self.assertEqual(two.limit(ONEBIT_EF, 64 << 20).wire_us, one.limit(ONEBIT_EF, 64 << 20).wire_us)

    def test_a_lab_without_a_limit(self):
        document = report_input.document()
        for row in document["results"]:
            if row["rate"] == "10gbit":
                row |= {"rate": "none", "rate_bits_per_second": None}
        group = report_input.group_of(report_input.figures_of(document), "lab", None, 4)
        self.assertEqual(group.limit(ONEBIT_EF, 64 << 20).cause, "memory")

    def test_all_systems_of_the_comparison_are_known(self):
        self.assertEqual(list(BY_NAME), ["openmpi", "openmpi-ring", "mpich", "gloo", "multipass",
                                         "onebit-dense", "onebit-ef", "onebit-fp4"])


class MergeTest(unittest.TestCase):
    def test_later_figures_replace_earlier_ones(self):
        later = report_input.document()
        row = later["results"][0] | {"time_us": 295}
        later |= {"results": [row], "commands": {"openmpi": "mpirun"}}
        merged = report_input.figures_of(report_input.document(), later)
        self.assertEqual(merged.groups[1].time_us(BY_NAME["openmpi"], 16384), 295)
        self.assertEqual(merged.groups[1].time_us(BY_NAME["openmpi"], 262144), 5000)
        self.assertEqual(list(merged.comparison.commands[None]), ["gloo", "onebit-ef", "openmpi"])
        self.assertEqual(len(merged.comparison.machines), 1)  # the same run is not named twice

    def test_a_failure_replaces_no_time(self):
        later = report_input.document()
        later["results"] = [later["results"][0] | {"error": "no route"}]
        first, second = report_input.document(), later
        for documents in ((first, second), (second, first)):
            figures = report_input.figures_of(*documents)
            self.assertEqual(figures.groups[1].time_us(BY_NAME["openmpi"], 16384), 300)

    def test_the_last_reason_counts(self):
        earlier, later = report_input.document(), report_input.document()
        earlier["results"][0] |= {"error": "no route"}
        later["results"] = [later["results"][0] | {"error": "no program"}]
        self.assertEqual(report_input.figures_of(earlier, later).groups[1].problems()[0].problem, "no program")

    def test_other_machines_are_refused(self):
        for key, value in (("cpu", "another"), ("cores", 64)):
            other = report_input.document()
            other["machine"][key] = value
            with self.assertRaisesRegex(Malformed, "file1.json: was taken on another machine"):
                report_input.figures_of(report_input.document(), other)

    def test_the_best_copy_makes_the_limit(self):
        other = report_input.document()
        other["machine"] |= {"copy_gbps": 44.0, "date": "2026-01-02"}
        figures = report_input.figures_of(report_input.document(), other)
        self.assertEqual(figures.limit_of_machine["copy_gbps"], 44.0)
        self.assertEqual(len(figures.comparison.machines), 2)


if __name__ == "__main__":
    unittest.main()
