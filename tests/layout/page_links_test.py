# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Proves that page_links.py finds what it should, and nothing else."""

import pathlib
import tempfile
import unittest

import page_links


class PageLinksTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.page = pathlib.Path(folder.name) / "page.md"
        (self.page.parent / "other.md").write_text("# Some `code`, and more?\n```\n# no heading\n```\n")

    def problems(self, text: str) -> list[str]:
        return page_links.problems(self.page, text)

    def test_accepts_files_headings_and_addresses(self):
        self.page.write_text("# Here\n")
        self.assertEqual(self.problems("[a](other.md), [b](other.md#some-code-and-more), [c](#here), [d](.)"), [])
        self.assertEqual(self.problems("[a](https://example.org/absent.md#b)"), [])
        self.assertEqual(self.problems("```\narray[i](absent)\n```\n"), [])

    def test_finds_an_absent_file(self):
        self.assertEqual(self.problems("[a](absent.md)"), ["absent.md: there is no such file"])

    def test_finds_an_absent_heading(self):
        for link in ("other.md#some", "other.md#no-heading"):
            self.assertEqual(self.problems(f"[a]({link})"), [f"{link}: there is no such heading"])

    def test_finds_links_to_files_on_a_page_that_stands_alone(self):
        self.page.write_text("# Here\n")
        text = "[a](other.md), [b](https://example.org), [c](#here)"
        found = page_links.problems(self.page, text, stands_alone=True)
        self.assertEqual(len(found), 1)
        self.assertRegex(found[0], "^other.md: it is dead on PyPI")


if __name__ == "__main__":
    unittest.main()
