# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The interposer and the drop-in in front of a real NCCL, without a GPU:

    forwarding_test.py PRELOAD DROP_IN CLIENT CLIENT_LIBRARY NCCL [NCCL...]

CLIENT and CLIENT_LIBRARY are nccl_client.c, linked with an NCCL of the name libnccl.so.2. Each NCCL is
the file of a release.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PRELOAD, DROP_IN, CLIENT, CLIENT_LIBRARY, *NCCLS = map(pathlib.Path, sys.argv[1:])
sys.argv[1:] = []


def names(library: pathlib.Path) -> set:
    """The functions of NCCL that a library exports."""
    text = subprocess.run(
        ["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True
    ).stdout
    found = {line.split()[-1] for line in text.splitlines()}
    return {name for name in found if name.startswith(("nccl", "pnccl"))}


def output(command: list, nccl: pathlib.Path, **variables: str) -> str:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("LD_", "ONEBIT_"))
    }
    environment.setdefault("NCCL_DEBUG", "NONE")
    environment["LD_LIBRARY_PATH"] = str(nccl.parent)
    environment.update(variables)
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100,
        check=False,
    )
    return f"{done.stdout}{done.returncode}"


def loaded_locally(library: pathlib.Path) -> list:
    """A command that loads the client as Python loads extensions: its symbols are nobody else's."""
    program = f"import ctypes, os; raise SystemExit(ctypes.CDLL({str(library)!r}, os.RTLD_LOCAL | os.RTLD_NOW).run())"
    return [sys.executable, "-c", program]


class ForwardingTest(unittest.TestCase):
    def test_all_symbols_are_there(self):
        there = names(DROP_IN)
        for nccl in NCCLS:
            self.assertEqual(names(nccl) - there, set(), nccl)

    def test_the_interposer_has_no_symbols_of_its_own(self):
        self.assertEqual(names(PRELOAD) - names(DROP_IN), set())

    def test_results_do_not_depend_on_the_interposer(self):
        for nccl in NCCLS:
            for command in ([CLIENT], loaded_locally(CLIENT_LIBRARY)):
                with self.subTest(nccl=nccl, command=command):
                    without = output(command, nccl)
                    self.assertIn("version: 0 no error", without)
                    self.assertEqual(output(command, nccl, LD_PRELOAD=str(PRELOAD)), without)
                    rules = {"ONEBIT_NCCL_RULES": "default"}
                    self.assertEqual(output(command, nccl, LD_PRELOAD=str(PRELOAD), **rules), without)

    def test_results_do_not_depend_on_the_drop_in(self):
        for nccl in NCCLS:
            for command in ([CLIENT], loaded_locally(CLIENT_LIBRARY)):
                with self.subTest(nccl=nccl, command=command):
                    without = output(command, nccl)
                    found = output(command, DROP_IN, ONEBIT_NCCL_LIB=str(nccl))
                    self.assertEqual(found, without)
                    # The folder after its own has the real one.
                    path = f"{DROP_IN.parent}:{nccl.parent}"
                    self.assertEqual(output(command, nccl, LD_LIBRARY_PATH=path), without)

    def test_a_process_without_nccl_is_left_alone(self):
        self.assertEqual(output(["true"], NCCLS[0], LD_PRELOAD=str(PRELOAD)), "0")
        needed = subprocess.run(
            ["readelf", "-d", PRELOAD], check=True, capture_output=True, text=True
        ).stdout
        libraries = {line.split("[")[1].rstrip("]") for line in needed.splitlines() if "(NEEDED)" in line}
        loaders = {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
        self.assertLessEqual(libraries, {"libc.so.6", "libm.so.6", "libgcc_s.so.1", *loaders})

    def test_a_wrong_file_is_named(self):
        with tempfile.NamedTemporaryFile() as file:
            for nccl, variables in ((NCCLS[0], {"LD_PRELOAD": str(PRELOAD)}), (DROP_IN, {})):
                found = output([CLIENT], nccl, ONEBIT_NCCL_LIB=file.name, **variables)
                self.assertIn(f"ONEBIT_NCCL_LIB: {file.name} is not NCCL: ", found)
        self.assertIn("ncclGetVersion was called, but there is no NCCL behind this library", found)
        self.assertIn("version: 5 no NCCL behind onebit's library", found)


if __name__ == "__main__":
    unittest.main()
