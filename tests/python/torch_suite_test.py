# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The page torch_suite.md names tests that exist, and all that are there for PyTorch's: torch_suite_test.py"""

import pathlib
import re
import unittest

HERE = pathlib.Path(__file__).parent
PAGE = (HERE / "torch_suite.md").read_text(encoding="utf-8")
# All tests of these are answers to PyTorch's.
OURS = ("torch_contract_test", "torch_state_dict_test", "ddp_suite_rank")


def rows(section: str) -> list[list[str]]:
    lines = re.findall(r"^\| (.*) \|$", section, re.MULTILINE)
    return [line.split(" | ") for line in lines if not line.startswith("PyTorch's tests |")]


def tests_of(module: str) -> set[str]:
    """The tests of a file, or the cases of a rank's program."""
    text = (HERE / f"{module}.py").read_text(encoding="utf-8")
    cases = re.search(r"^CASES = \((.*?)\)$", text, re.DOTALL | re.MULTILINE)
    return set(re.findall(r"\w+", cases[1]) if cases else re.findall(r"^    def (test_\w+)\(", text, re.MULTILINE))


class TorchSuiteTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        applies, does_not = PAGE.split("\n## What does not apply\n")
        cls.applies, cls.does_not = rows(applies), rows(does_not)

    def test_each_test_exists(self):
        named = re.findall(r"`(\w+)\.(\w+)`", "\n".join(row[-1] for row in self.applies + self.does_not))
        self.assertGreater(len(named), 60)
        for module, name in named:
            with self.subTest(name=f"{module}.{name}"):
                self.assertIn(name, tests_of(module))

    def test_each_row_answers_a_test_of_pytorch(self):
        for row in self.applies:
            self.assertEqual(len(row), 3, row)
            self.assertRegex(row[0], r"^(`_?test_\w+`(, )?)+$")
            self.assertRegex(row[2], r"^(`\w+\.\w+`(, )?)+$")
        for row in self.does_not:
            self.assertEqual(len(row), 2, row)
            self.assertRegex(row[0], r"^`test_\w+`")

    def test_each_of_ours_has_a_row(self):
        named = set(re.findall(r"`(\w+\.\w+)`", PAGE))
        for module in OURS:
            for name in tests_of(module):
                self.assertIn(f"{module}.{name}", named)


if __name__ == "__main__":
    unittest.main()
