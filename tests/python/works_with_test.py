# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The table "What works with it" of docs/python.md: works_with_test.py ONEBIT_RUN GUIDE

Each row names a case, or a test of another program.
"""

import math
import pathlib
import re
import sys
import unittest

from needs_torch import torch
from rank_jobs import Jobs

GUIDE = pathlib.Path(sys.argv.pop(2))
HERE = pathlib.Path(__file__).parent
run_job = Jobs(sys.argv.pop(1), HERE / "works_with_rank.py").run
START = math.log(8)  # the loss before the first step
LEAST = 0.7  # of what full precision gains in a dozen steps


def table_tests() -> list[str]:
    """The last column: what tests each row."""
    section = GUIDE.read_text(encoding="utf-8").split("## What works with it\n")[1].split("\n## ")[0]
    return [row.rsplit("|", 2)[1].strip().strip("`") for row in re.findall(r"^\| (?!with ).*\|$", section, re.MULTILINE)]


class WorksWithTest(unittest.TestCase):
    def test_each_case_learns_as_in_full_precision(self):
        cases = run_job(2)
        self.assertEqual(len(cases), 2)
        for found in cases.values():
            for name, losses in found.items():
                with self.subTest(name=name):
                    if isinstance(losses, str):
                        self.assertLess(torch.__version__, "2", losses)
                        continue
                    gain = START - losses["dense"]
                    self.assertGreater(gain, 0.02)
                    self.assertGreater(START - losses["hook"], LEAST * gain)
                    self.assertGreater(START - losses["optimizer"], LEAST * gain)

    def test_each_row_has_a_test_and_each_case_a_row(self):
        rows = table_tests()
        own = {row for row in rows if "." not in row}
        cases = re.search(r"^CASES = \((.*?)\)$", (HERE / "works_with_rank.py").read_text(), re.DOTALL | re.MULTILINE)
        self.assertEqual(own, set(re.findall(r"\w+", cases[1])))
        for row in sorted(set(rows) - own):
            file, name = row.split(".", 1)
            paths = [folder / f"{file}.py" for folder in (HERE, HERE.parent / "ecosystem")]
            text = "".join(path.read_text(encoding="utf-8") for path in paths if path.exists())
            self.assertRegex(text, rf"def {name}\(", row)


if __name__ == "__main__":
    unittest.main()
