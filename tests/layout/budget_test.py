# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Proves that budget.py finds what it should, and nothing else."""

import pathlib
import tempfile
import unittest

import budget

TEXT = """# A comment.
functions 2 of 3
settings 1  # another
shared context src/a src/b
"""
FIGURES = {"functions": 2, "settings": 1}
SHARED = {"context": {"src/a", "src/b"}}


def problems(text=TEXT, figures=None, shared=None):
    return budget.problems(budget.Budget(text), FIGURES | (figures or {}), SHARED | (shared or {}))


def paths(*names):
    return [pathlib.PurePosixPath(name) for name in names]


class BudgetTest(unittest.TestCase):
    def test_accepts_what_the_file_says(self):
        self.assertEqual(problems(), [])

    def test_a_figure_that_grows_or_shrinks_must_be_changed_there(self):
        for functions in (1, 3):
            found = problems(figures={"functions": functions})
            self.assertEqual(len(found), 1)
            self.assertIn(f"there are {functions} functions, but", found[0])

    def test_no_figure_may_pass_its_ceiling(self):
        found = problems(TEXT.replace("2 of 3", "4 of 3"), {"functions": 4})
        self.assertEqual(len(found), 1)
        self.assertIn("more than the ceiling of 3", found[0])

    def test_every_figure_has_a_line(self):
        self.assertIn("add the line: headers 5", problems(figures={"headers": 5})[0])

    def test_no_folder_may_pass_its_ceiling_or_stay_far_below_it(self):
        ceilings = budget.Budget("lines src/a 100\nlines src/b 100  # why\n").lines
        self.assertEqual(budget.line_problems(ceilings, {"src/a": 100, "src/b": 80}), [])
        over, under = budget.line_problems(ceilings, {"src/a": 101, "src/b": 79})
        self.assertIn("src/a has 101 lines of code, more than its ceiling of 100", over)
        self.assertIn("src/b has 79 lines of code: lower its ceiling of 100", under)
        new, = budget.line_problems(ceilings, {"src/a": 100, "src/b": 90, "src/c": 1000})
        self.assertIn("add the line: lines src/c 1050", new)
        gone, = budget.line_problems(ceilings, {"src/a": 100})
        self.assertIn("src/b has 0 lines of code", gone)

    def test_lines_of_code_are_counted_by_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            files = {"src/a/x.cc": "1\n\n2\n", "src/b/x.h": "// one\n/* two\n\n   three */\n3  // four\n",
                     "src/a/README.md": "1\n", "perf/common/y.h": "1\n", "perf/studies/a/z.py": "1\n2\n3\n"}
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            code, comments = budget.lines_of(root, paths(*files))
            self.assertEqual(code, {"src/a": 2, "src/b": 1, "perf": 1, "perf/studies": 3, "product": 3})
            self.assertEqual(comments, {"src/a": 0, "src/b": 3, "perf": 0, "perf/studies": 0, "product": 3})

    def test_knows_code_from_comments(self):
        for count, text in ((1, 'f("// text", \'"\');  // a comment'),
                            (2, "a = 1'000'000;  /* here\n and there */ b();"), (3, "a /* b */\n\n* c\n// d\n;"),
                            (0, "// a\n\n  /* b\n * c\n */\n")):
            self.assertEqual(budget.code_lines(text, is_python=False), count, text)
        for count, text in ((2, '"""a\n\nb"""\nimport c\n# d\ne = 1  # f\n'), (4, 'A = """\n# text\n\n"""\n'),
                            (2, 'def f():\n    # a\n    """b\n    c"""\n\n    return "#"\n'),
                            (1, 'r"""a"""\nf("b")\n')):
            self.assertEqual(budget.code_lines(text, is_python=True), count, text)

    def test_the_file_says_how_many_lines_are_comments(self):
        self.assertEqual(budget.Budget("comments 14.6\n").comments, 14.6)

    def test_finds_a_new_shared_name(self):
        found = problems(shared={"group": {"src/a", "src/c"}})
        self.assertEqual([line.split(":")[0] for line in found], ["src/a/group", "src/c/group"])
        found = problems(shared={"context": {"src/a", "src/b", "src/c"}})
        self.assertEqual([line.split(":")[0] for line in found], ["src/c/context"])

    def test_finds_stale_lines(self):
        found = problems(TEXT + "shared group src/a src/c\n")
        self.assertEqual(len(found), 1)
        self.assertIn("no folders share the base name group any more: delete the line", found[0])
        found = problems(TEXT.replace("src/b", "src/b src/c"))
        self.assertEqual(len(found), 1)
        self.assertIn("src/c has no file of the base name context any more: delete it", found[0])

    def test_refuses_lines_it_does_not_understand(self):
        with self.assertRaises(ValueError):
            budget.Budget("functions 2 at 3\n")

    def test_knows_which_names_are_shared(self):
        shared = budget.shared_names(paths(
            "src/a/group.h", "src/a/group.cc", "src/a/group-inl.h", "plugins/p/group.cc",
            "kernels/reference/sum.h", "kernels/cuda/sum.cu", "perf/a/__init__.py",
            "perf/b/__init__.py", "src/a/README.md", "src/b/README.md", "src/a/CMakeLists.txt",
            "src/b/CMakeLists.txt", "src/a/alone.h", "tests/a/alone.h"))
        self.assertEqual(shared, {"group": {"src/a", "plugins/p"}, "alone": {"src/a", "tests/a"}})

    def test_counts_functions_headers_and_settings(self):
        files = {
            "include/onebit/a.h": "ONEBIT_API int onebitA(void);\nint inner(void);\n",
            "include/onebit/b.h": "ONEBIT_API int onebitB(\n    int b);\n",
            "src/s.cc": '{.name = "ONEBIT_ONE", .kind = 1},\n{.name = "ONEBIT_TWO"}\n"ONEBIT_ONE"\n',
            "plugins/p/s.cc": 'plugin::EagerBytesSetting("ONEBIT_P_THREE", "1")\n',
            "tests/t.cc": '{.name = "ONEBIT_TEST"}\n'}
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            self.assertEqual(budget.figures_of(root, paths(*files)),
                             {"functions": 2, "headers": 2, "settings": 3})


if __name__ == "__main__":
    unittest.main()
