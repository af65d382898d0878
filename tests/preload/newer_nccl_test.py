# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What is said of an NCCL that has functions which the drop-in lacks:

    newer_nccl_test.py DROP_IN NEWER_NCCL [ONEBIT_INFO]

NEWER_NCCL is newer_nccl.c.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

DROP_IN, NEWER, *INFO = map(pathlib.Path, sys.argv[1:])
sys.argv[1:] = []
LACKED = ["ncclFoo", "pncclFoo"]


def run(command: list, **variables: str) -> subprocess.CompletedProcess:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ONEBIT_")}
    return subprocess.run(command, env=environment | variables, capture_output=True, text=True, timeout=60,
                          check=False)


def run_calls(calls: str, nccl: pathlib.Path) -> subprocess.CompletedProcess:
    """Opens the drop-in as vLLM does."""
    program = f"import ctypes; nccl = ctypes.CDLL({str(DROP_IN)!r}); {calls}"
    return run([sys.executable, "-c", program], ONEBIT_NCCL_LIB=str(nccl))


class DropInTest(unittest.TestCase):
    def test_functions_that_it_lacks_are_counted_once(self):
        version = "number = ctypes.c_int(); print(nccl.ncclGetVersion(ctypes.byref(number)), number.value)"
        done = run_calls(f"{version}; {version}; nccl.pncclGetVersion(ctypes.byref(number))", NEWER)
        self.assertEqual((done.returncode, done.stdout), (0, "0 90102\n" * 2), done)
        self.assertRegex(done.stderr, rf"^\S+ onebit WARN this library lacks {len(LACKED)} functions of the NCCL "
                                      rf"behind it: `onebit_info --nccl {NEWER}` lists them\n$")

    def test_nothing_is_said_before_a_call(self):
        self.assertEqual(run_calls("print('opened')", NEWER).stderr, "")


@unittest.skipUnless(INFO, "onebit_info is not built")
class InfoTest(unittest.TestCase):
    def info(self, *options) -> subprocess.CompletedProcess:
        return run([*INFO, *options])

    def test_functions_that_it_lacks_are_listed(self):
        done = self.info("--nccl", NEWER)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(done.stdout.splitlines(), [
            f"{NEWER}: NCCL 9.1.2+cuda99.0", f"{len(LACKED)} of 4 functions are not in the drop-in:",
            *(f"  {name}" for name in LACKED)])
        report = json.loads(self.info("--json", "--nccl", NEWER).stdout)
        self.assertEqual(report, {"path": str(NEWER), "version": "9.1.2+cuda99.0", "functions": 4,
                                  "missing": LACKED})

    def test_the_drop_in_has_all_that_it_has(self):
        done = self.info("--nccl", DROP_IN)
        self.assertEqual(done.returncode, 0, done)
        self.assertRegex(done.stdout, rf"^{DROP_IN}: NCCL \(no version\)\nall \d+ functions are in the drop-in\n$")

    def test_other_files_are_errors(self):
        with tempfile.NamedTemporaryFile("w", suffix=".so") as text:
            text.write("hello")
            text.flush()
            for path, problem in (
                ("/nowhere/libnccl.so.2", "No such file or directory"),
                ("/", "it is not a regular file"),
                (text.name, "it is not a 64-bit library for this system, or it is truncated"),
                (INFO[0], "it is not NCCL and binds none of its functions by name: if it uses NCCL, it opens "
                          "it itself or has it linked in, where nothing sees its calls"),
            ):
                done = self.info("--nccl", path)
                self.assertEqual((done.returncode, done.stderr), (1, f"onebit_info: {path}: {problem}\n"))
        self.assertEqual(self.info("--nccl").returncode, 2)


if __name__ == "__main__":
    unittest.main()
