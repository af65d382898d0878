# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Proves that page_figures.py finds what it should, and nothing else."""

import unittest

import page_figures

MACHINE = "AMD EPYC, 2 cores, GCC 12.2.0; 4 ranks as threads of one process (transport local)"
TABLE = "| per rank | ratio |\n| --- | ---: |\n| 1 MiB | 31.5x |\n| 4 MiB | 31.7x |"
SUMMARY = "| hosts | dense | onebit | |\n| --- | ---: | ---: | ---: |\n| 64 MiB | 883 ms | 77.6 ms | 11.4x |"
MEASURED = {"64 MiB", "883", "77.6"}


def page(*parts: str) -> str:
    return "\n\n".join(["text", page_figures.BEGIN, *parts, page_figures.END, "more"])


class QuickstartTest(unittest.TestCase):
    def test_accepts_machine_and_figures(self):
        self.assertEqual(page_figures.quickstart_problems(page(MACHINE, TABLE)), [])
        one_core = MACHINE.replace("2 cores", "1 core")
        self.assertEqual(page_figures.quickstart_problems(page(one_core, TABLE)), [])

    def test_finds_missing_markers(self):
        self.assertEqual(len(page_figures.quickstart_problems("| 1 MiB | 31.5x |")), 1)
        self.assertEqual(len(page_figures.quickstart_problems(page(MACHINE, TABLE) * 2)), 1)

    def test_finds_an_empty_block(self):
        self.assertEqual(len(page_figures.quickstart_problems(page())), 1)

    def test_finds_a_missing_machine(self):
        self.assertEqual(len(page_figures.quickstart_problems(page(TABLE))), 1)

    def test_finds_a_missing_table(self):
        self.assertEqual(len(page_figures.quickstart_problems(page(MACHINE))), 1)


class SummaryTest(unittest.TestCase):
    def test_accepts_measured_figures(self):
        self.assertEqual(page_figures.summary_problems(SUMMARY, MEASURED), [])

    def test_finds_a_figure_that_was_not_measured(self):
        problem, = page_figures.summary_problems(SUMMARY, MEASURED - {"77.6"})
        self.assertIn("77.6 is in no table", problem)

    def test_finds_a_wrong_quotient(self):
        problem, = page_figures.summary_problems(SUMMARY.replace("11.4x", "11.5x"), MEASURED)
        self.assertIn("is 11.4x, not 11.5x", problem)

    def test_finds_what_is_no_time(self):
        self.assertEqual(len(page_figures.summary_problems(SUMMARY.replace("883 ms", "883"), MEASURED)), 1)

    def test_finds_a_missing_table(self):
        self.assertEqual(len(page_figures.summary_problems("text", MEASURED)), 1)


if __name__ == "__main__":
    unittest.main()
