# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the table of faults against the sources, and on a small made-up tree what checks it."""

import dataclasses
import pathlib
import tempfile
import unittest

import fault_table
from fault_table import Fault

LEAST_ROWS = 150
ROOT = pathlib.Path(__file__).resolve().parents[2]


def fault(**members):
    row = {"id": "one", "file": "src/a/b.cc", "code": "x < 1", "fault": "x <= 1", "why": "off by one",
           "caught_by": "a_test ATest.B"}
    return Fault(**(row | members))


class TableTest(unittest.TestCase):
    def test_fits_the_sources(self):
        faults = fault_table.read(ROOT / "tests" / "mutants")
        self.assertEqual("\n".join(fault_table.errors(ROOT, faults)), "")
        self.assertGreaterEqual(len(faults), LEAST_ROWS)


class CheckTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("src/a/b.cc", "// A file.\n#include <x>\n\nbool F(int x) {\n  return x < 1;\n}\n")
        self.write("tests/a/a_test.cc", "TEST(ATest, B) {}\n")

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def errors(self, *faults, folders=()):
        return fault_table.errors(self.root, list(faults), folders)

    def assert_wrong(self, text, *faults, folders=()):
        found = self.errors(*faults, folders=folders)
        self.assertEqual(len(found), 1, found)
        self.assertIn(text, found[0])

    def test_accepts_what_fits(self):
        self.assertEqual(self.errors(fault(), folders=("src/a",)), [])

    def test_names_rows_whose_code_has_changed(self):
        self.assert_wrong("one: src/a/b.cc: its code is not there: y < 1", fault(code="y < 1"))

    def test_names_rows_whose_code_is_no_longer_the_only_one(self):
        self.assert_wrong("is there 3 times", fault(code="x", fault="y"))

    def test_names_rows_whose_file_has_gone(self):
        self.assert_wrong("there is no file src/c.cc", fault(file="src/c.cc"))

    def test_names_rows_whose_test_has_gone(self):
        self.assert_wrong("there is no test Gone", fault(caught_by="a_test ATest.Gone"))
        self.assertEqual(self.errors(fault(caught_by="a_test *ATest.B*:ATest.*")), [])

    def test_names_folders_without_rows(self):
        self.assert_wrong("src/c: has no row", fault(), folders=("src/a", "src/c"))

    def test_names_rows_that_share_a_name(self):
        twin = fault(code="return x < 1;", fault="return true;")
        found = self.errors(fault(), twin)
        self.assertTrue(any("has the id of one" in line for line in found), found)

    def test_names_rows_that_overlap(self):
        self.assert_wrong("overlaps that of", fault(), fault(id="two", code="return x < 1;"))

    def test_names_files_and_tests_with_too_many_rows(self):
        letters = "abcdefghi"
        self.write("src/a/b.cc", "".join(f"{letter} < 1;\n" for letter in letters))
        self.write("tests/a/a_test.cc", "".join(f"TEST(ATest, T{letter}) {{}}\n" for letter in letters))
        rows = [fault(id=letter, code=f"{letter} < 1", caught_by=f"a_test ATest.T{letter}") for letter in letters]
        self.assertEqual(self.errors(*rows[1:]), [])
        self.assert_wrong("src/a/b.cc: 9 rows: at most 8", *rows)
        rows = [dataclasses.replace(row, caught_by="a_test ATest.Ta:ATest.T" + row.id) for row in rows]
        self.assertEqual(self.errors(*rows[1:3]), [])
        self.assert_wrong("a_test ATest.Ta: 3 rows: at most 2", *rows[1:4])

    def test_names_a_table_with_too_many_rows(self):
        numbers = range(fault_table.MOST_ROWS + 1)
        for number in numbers:
            self.write(f"src/a/{number}.cc", "x < 1\n")
        self.write("tests/a/a_test.cc", "".join(f"TEST(ATest, T{number}) {{}}\n" for number in numbers))
        rows = [fault(id=str(number), file=f"src/a/{number}.cc", caught_by=f"a_test ATest.T{number}")
                for number in numbers]
        self.assertEqual(self.errors(*rows[1:]), [])
        self.assert_wrong("421 rows: at most 420", *rows)

    def test_names_rows_that_are_no_expression(self):
        self.assert_wrong("brackets do not match", fault(code="F(int", fault="G(int"))
        self.write("src/a/b.cc", "for (; a && b; ++c) {\n}\n")
        self.assert_wrong("neither statements nor an expression", fault(code="a && b; ++c", fault="d"))
        self.assert_wrong("neither statements nor an expression", fault(code="a &&", fault="!a &&"))
        self.write("src/a/b.cc", "if (a) return b;\n")
        self.assert_wrong("beginning of a statement", fault(code="if (a)", fault="if (b)"))


class ReadTest(unittest.TestCase):
    def read(self, text):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "a.toml").write_text(text)
            return fault_table.read(pathlib.Path(folder))

    def test_reads_rows(self):
        rows = self.read('[[fault]]\nid = "a"\nfile = "b"\ncode = "c"\nfault = ""\nwhy = "d"\n'
                         'caught_by = "e f"\n')
        self.assertEqual(rows, [Fault("a", "b", "c", "", "d", "e f")])

    def test_refuses_other_rows(self):
        good = {"id": "a", "file": "b", "code": "c", "fault": "d", "why": "e", "caught_by": "f g"}
        for change in ({"id": None}, {"more": "x"}, {"caught_by": None}, {"caught_by": "f"},
                       {"fault": "c"}):
            row = {key: value for key, value in (good | change).items() if value is not None}
            text = "[[fault]]\n" + "".join(f'{key} = "{value}"\n' for key, value in row.items())
            with self.assertRaises(fault_table.TableError, msg=text):
                self.read(text)


class SwitchTest(unittest.TestCase):
    def switched(self, text, **members):
        return fault_table.switched_text("src/a/b.cc", text, [fault(**members)])

    def test_an_expression_has_two_branches(self):
        number = fault().number
        self.assertIn(f"return (OnebitMutant({number}U) ? (x <= 1) : (x < 1));",
                      self.switched("return x < 1;\n"))

    def test_statements_have_two_branches(self):
        number = fault().number
        self.assertIn(f"{{ if (OnebitMutant({number}U)) {{  }} else {{ x = 1; }} }}",
                      self.switched("x = 1;\n", code="x = 1;", fault=""))

    def test_a_fault_may_say_itself_where_its_switch_is(self):
        number = fault().number
        self.assertIn(f"if (!OnebitMutant({number}U)) x = 1;",
                      self.switched("x = 1;\n", code="x = 1;", fault="if (!MUTANT) x = 1;"))

    def test_numbers_depend_on_names_alone(self):
        self.assertEqual(fault().number, fault(code="y", file="z").number)
        self.assertNotEqual(fault().number, fault(id="two").number)

    def test_the_header_comes_first(self):
        include = '#include "../../mutant_switch.h"\n'
        self.assertTrue(self.switched("// A\n#include <b>\nx < 1\n")
                        .startswith("// A\n" + include + "#include <b>\n"))
        self.assertTrue(self.switched("// A\n#pragma once\n\nx < 1\n")
                        .startswith("// A\n#pragma once\n" + include))


if __name__ == "__main__":
    unittest.main()
