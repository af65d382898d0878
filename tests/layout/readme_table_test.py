# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Proves that readme_table.py finds what it should, and nothing else."""

import unittest

import readme_table

MACHINE = "AMD EPYC, 2 cores, GCC 12.2.0; 4 ranks as threads of one process (transport local)"
TABLE = "| per rank | ratio |\n| --- | ---: |\n| 1 MiB | 31.5x |\n| 4 MiB | 31.7x |"


def readme(*parts: str) -> str:
    return "\n\n".join(["text", readme_table.BEGIN, *parts, readme_table.END, "more"])


class ReadmeTableTest(unittest.TestCase):
    def test_accepts_machine_and_figures(self):
        self.assertEqual(readme_table.problems(readme(MACHINE, TABLE)), [])
        self.assertEqual(readme_table.problems(readme(MACHINE.replace("2 cores", "1 core"), TABLE)), [])

    def test_finds_missing_markers(self):
        self.assertEqual(len(readme_table.problems("| 1 MiB | 31.5x |")), 1)
        self.assertEqual(len(readme_table.problems(readme(MACHINE, TABLE) * 2)), 1)

    def test_finds_an_empty_block(self):
        self.assertEqual(len(readme_table.problems(readme())), 1)

    def test_finds_a_missing_machine(self):
        self.assertEqual(len(readme_table.problems(readme(TABLE))), 1)

    def test_finds_a_missing_table(self):
        self.assertEqual(len(readme_table.problems(readme(MACHINE))), 1)


if __name__ == "__main__":
    unittest.main()
