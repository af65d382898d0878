# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Tests that what the wheel has runs where its tag says: newest_symbols_test.py ROOT C_COMPILER FILE...

FILE... are the programs and libraries of this build that go into the wheel.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT, COMPILER, *FILES = sys.argv[1:]
CHECK = [sys.executable, "-B", f"{ROOT}/tests/layout/newest_symbols.py"]
GLIBC = os.confstr("CS_GNU_LIBC_VERSION")


def check(*files: object) -> subprocess.CompletedProcess:
    return subprocess.run([*CHECK, *map(str, files)], capture_output=True, text=True, check=False)


@unittest.skipUnless(GLIBC == "glibc 2.36", f"wheels are made on Debian 12, which has no {GLIBC}")
class NewestSymbolsTest(unittest.TestCase):
    def test_the_wheel_needs_no_newer_system_than_its_tag_says(self):
        found = check(*FILES)
        self.assertEqual(found.returncode, 0, found.stdout + found.stderr)
        self.assertIn(f"{len(FILES)} programs and libraries", found.stdout)

    def test_a_newer_symbol_is_named_with_its_file(self):
        with tempfile.TemporaryDirectory() as folder:
            library = pathlib.Path(folder) / "libnewer.so"
            subprocess.run([COMPILER, "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)], check=True, text=True,
                           input="unsigned arc4random(void);\nunsigned Draw(void) { return arc4random(); }\n")
            found = check(*FILES, library)
        self.assertEqual(found.returncode, 1)
        self.assertEqual(
            found.stdout,
            f"{library} needs arc4random of GLIBC_2.36, but manylinux_2_34 ends at GLIBC_2.34\n")

    def test_something_must_be_checked(self):
        self.assertEqual(check(f"{ROOT}/LICENSE").returncode, 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
