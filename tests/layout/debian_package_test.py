# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Tests debian_package.py."""

import unittest

from debian_package import build_packages, changelog_problems, symbol_problems

SYMBOLS = """libonebit.so.0 libonebit0 #MINVER#
* Build-Depends-Package: libonebit-dev
 ONEBIT_0@ONEBIT_0 0.1.0
 onebitOld@ONEBIT_0 0.1.0
 onebitNew@ONEBIT_0 0.2.0
"""
EXPORTED = {"onebitOld@ONEBIT_0", "onebitNew@ONEBIT_0"}


class SymbolsTest(unittest.TestCase):
    def test_accepts_what_is_exported(self):
        self.assertEqual(symbol_problems(SYMBOLS, "0.2.1", EXPORTED), [])

    def test_names_a_function_that_is_missing(self):
        self.assertEqual(symbol_problems(SYMBOLS, "0.2.1", EXPORTED | {"onebitNewer@ONEBIT_0"}),
                         ["exported, so add the line:  onebitNewer@ONEBIT_0 0.2.1"])

    def test_names_a_function_that_is_gone(self):
        self.assertEqual(symbol_problems(SYMBOLS, "0.2.1", {"onebitNew@ONEBIT_0"}),
                         ["not exported, so delete the line: onebitOld@ONEBIT_0"])

    def test_functions_without_version_are_others(self):
        self.assertEqual(len(symbol_problems(SYMBOLS, "0.2.1", {"onebitOld", "onebitNew"})), 4)

    def test_rejects_a_function_of_a_later_version(self):
        [problem] = symbol_problems(SYMBOLS, "0.1.0", EXPORTED)
        self.assertIn("onebitNew@ONEBIT_0 is said to be there since 0.2.0", problem)

    def test_node_and_soname_have_the_major_version(self):
        self.assertEqual(len(symbol_problems(SYMBOLS, "1.0.0", EXPORTED)), 3)


class OtherFilesTest(unittest.TestCase):
    def test_changelog_begins_with_the_version(self):
        self.assertEqual(changelog_problems("onebit (0.1.0-2) bookworm; urgency=medium\n", "0.1.0"), [])
        self.assertEqual(len(changelog_problems("onebit (0.1.0-1) bookworm; urgency=medium\n", "0.2.0")), 1)

    def test_packages_are_those_of_a_native_build(self):
        control = ("Source: onebit\nBuild-Depends: debhelper-compat (= 13), g++, qemu-user <cross>,\n"
                   " libucx-dev (>= 1.13), python3:any\n\nPackage: x\nDepends: y\n")
        self.assertEqual(build_packages(control), {"debhelper", "g++", "libucx-dev", "python3"})


if __name__ == "__main__":
    unittest.main()
