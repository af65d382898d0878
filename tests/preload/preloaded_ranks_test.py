# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""onebit_run --preload: preloaded_ranks_test.py ONEBIT_RUN PRELOAD LIBONEBIT"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

TOOL, PRELOAD, LIBRARY = (pathlib.Path(path).resolve() for path in sys.argv[1:4])
del sys.argv[1:4]
NAME = PRELOAD.name
# onebit_run itself is the parent of its ranks.
LOADED = f"""import os
def has(process): return {NAME!r} in open(f"/proc/{{process}}/maps").read()
os.write(1, f"{{has(os.getpid())}} {{has(os.getppid())}}\\n".encode())
"""


class PreloadedRanksTest(unittest.TestCase):
    def run_tool(self, *command: str, tool: pathlib.Path = TOOL, **variables: str):
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        return subprocess.run([tool, "-n", "2", *command], env=environment | variables, capture_output=True,
                              text=True, timeout=60, check=False)

    def test_ranks_have_the_whole_path(self):
        program = ["--preload", "sh", "-c", "echo $LD_PRELOAD"]
        self.assertEqual(self.run_tool(*program).stdout, f"{PRELOAD}\n" * 2)
        other = "libc.so.6"  # every process has it anyway
        self.assertEqual(self.run_tool(*program, LD_PRELOAD=other).stdout, f"{PRELOAD}:{other}\n" * 2)
        self.assertEqual(self.run_tool(*program, LD_PRELOAD="").stdout, f"{PRELOAD}\n" * 2)

    def test_ranks_behind_an_agent_have_it_as_well(self):
        done = self.run_tool("--hosts", "127.0.0.1:2", "--preload", "sh", "-c", "echo $LD_PRELOAD")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, f"{PRELOAD}\n" * 2, ""))

    def test_without_the_option_the_variable_stays(self):
        self.assertEqual(self.run_tool("sh", "-c", "echo ${LD_PRELOAD-none}").stdout, "none\n" * 2)

    def test_the_ranks_have_loaded_it_and_their_launcher_has_not(self):
        done = self.run_tool("--preload", "--", sys.executable, "-c", LOADED)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "True False\n" * 2, ""))

    def test_a_library_that_is_not_there_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(LIBRARY, pathlib.Path(folder, "libonebit.so.0"))
            done = self.run_tool("--preload", "true", LD_LIBRARY_PATH=folder)
            self.assertEqual(done.returncode, 1, done)
            self.assertEqual(done.stderr, f"onebit_run: --preload: there is no {folder}/{NAME}: install it in the "
                                          "folder of libonebit\n")

    def test_a_path_that_the_loader_would_cut_is_an_error(self):
        with tempfile.TemporaryDirectory(suffix="a b") as folder:
            shutil.copy(LIBRARY, pathlib.Path(folder, "libonebit.so.0"))
            shutil.copy(PRELOAD, folder)
            done = self.run_tool("--preload", "true", LD_LIBRARY_PATH=folder)
            self.assertEqual(done.returncode, 1, done)
            self.assertIn("has a space or a colon", done.stderr)

    def test_an_installed_one_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            for path, file in (("lib/libonebit.so.0", LIBRARY), (f"lib/{NAME}", PRELOAD), ("bin/onebit_run", TOOL)):
                pathlib.Path(folder, path).parent.mkdir(exist_ok=True)
                shutil.copy(file, pathlib.Path(folder, path))
            # In the place of the run path of an installed tool.
            done = self.run_tool("--preload", "sh", "-c", "echo $LD_PRELOAD",
                                 tool=pathlib.Path(folder, "bin/onebit_run"),
                                 LD_LIBRARY_PATH=f"{folder}/bin/../lib")
            self.assertEqual(done.stdout, f"{folder}/lib/{NAME}\n" * 2, done)


if __name__ == "__main__":
    unittest.main()
