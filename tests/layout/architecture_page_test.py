# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Proves that architecture_page.py finds what it should, and nothing else."""

import pathlib
import tempfile
import unittest

import architecture_page
from include_rules import MAY_INCLUDE

SOURCE = """#include <a>

Status Engine::Prepare(std::span<const int> a,
                       int b) {
  return Other(a);
}
void Declared(int a);
Status engine = Called(3);
"""


class PageTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "src").mkdir()
        (self.root / "src" / "engine.cc").write_text(SOURCE)

    def problems(self, station: str, picture: str = architecture_page.picture(MAY_INCLUDE)) -> list[str]:
        return architecture_page.page_problems(self.root, f"```mermaid\n{picture}```\n" + 12 * f"`{station}`\n")

    def test_accepts_functions_that_are_defined(self):
        self.assertEqual(self.problems("src/engine.cc:Prepare"), [])

    def test_finds_functions_that_are_not(self):
        for name in ("Other", "Declared", "Called", "Prepar"):
            station = f"src/engine.cc:{name}"
            self.assertEqual(self.problems(station), 12 * [f"{station}: the file does not define it"])
        self.assertEqual(set(self.problems("src/gone.cc:A")), {"src/gone.cc:A: there is no such file"})

    def test_finds_another_picture_and_a_long_page(self):
        picture = architecture_page.picture(MAY_INCLUDE | {"src/base": ["src/comm"]})
        self.assertIn("its picture is not that", self.problems("src/engine.cc:Prepare", picture)[0])
        self.assertIn("lines, more than 150", self.problems("src/engine.cc:Prepare" + 150 * "\n")[-1])


class ReadmeTest(unittest.TestCase):
    TEXT = "# src/topology\n\nOwns: a.\n\nMay include: `src/base`.\n\nMust never know: b.\n"

    def test_accepts_what_the_table_says(self):
        self.assertEqual(architecture_page.readme_problems("src/topology", self.TEXT), [])

    def test_finds_another_arrow_a_missing_line_and_a_long_page(self):
        for text, problem in ((self.TEXT.replace("src/base", "src/comm"), "May include: `src/base`."),
                              (self.TEXT.replace("Must never", "Never"), "Must never know:"),
                              (self.TEXT + 9 * "\n", "lines, more than 12")):
            found = architecture_page.readme_problems("src/topology", text)
            self.assertEqual(len(found), 1, found)
            self.assertIn(problem, found[0])


if __name__ == "__main__":
    unittest.main()
