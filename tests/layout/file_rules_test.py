# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Proves that file_rules.py finds what it should, and nothing else."""

import pathlib
import tempfile
import unittest

import file_rules

LINES = ("SPDX-FileCopyrightText: The onebit authors", "SPDX-License-Identifier: Apache-2.0")
C_BLOCK = f"/* {LINES[0]}\n * {LINES[1]}\n */\n"
CC = f"// {LINES[0]}\n// {LINES[1]}\n"
SHELL = f"# {LINES[0]}\n# {LINES[1]}\n"


class FileRulesTest(unittest.TestCase):
    def violations(self, name, text):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / name).write_text(text)
            return file_rules.violations(pathlib.Path(folder), [pathlib.PurePosixPath(name)])

    def test_accepts_the_lines_in_every_comment_form(self):
        self.assertEqual(self.violations("a.h", C_BLOCK), [])
        self.assertEqual(self.violations("a.cc", CC), [])
        self.assertEqual(self.violations("CMakeLists.txt", SHELL), [])
        self.assertEqual(self.violations("run", "#!/bin/sh\n" + SHELL), [])

    def test_finds_missing_lines(self):
        self.assertIn("SPDX", self.violations("a.cc", "int main() {}\n")[0])
        self.assertIn("SPDX", self.violations("a.cc", "\n" + CC)[0])
        self.assertIn("SPDX", self.violations("run", "#!/bin/sh\necho\n")[0])

    def test_finds_long_files_and_stray_white_space(self):
        self.assertIn("more than 800", self.violations("a.cc", CC + "\n" * 799)[0])
        self.assertEqual(self.violations("a.cc", CC + "int a; \n"),
                         ["a.cc:3: white space at the end of the line"])
        self.assertIn("no newline", self.violations("a.cc", CC + "int a;")[0])

    def test_leaves_data_and_texts_alone(self):
        self.assertEqual(self.violations("golden.json", "{}"), [])
        self.assertEqual(self.violations("README.md", "# x  \n"), [])


if __name__ == "__main__":
    unittest.main()
