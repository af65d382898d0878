# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Compiles the first C program of the README, runs it as the README says, and compares its output with
the block below it.

    readme_program.py README C_COMPILER INCLUDE_FOLDER LIBRARY_FOLDER [ONEBIT_RUN]

Without ONEBIT_RUN, where a build cannot connect processes, it is only compiled.
"""

import difflib
import pathlib
import subprocess
import sys
import tempfile

from markdown_files import code_blocks


SKIPPED = 77


def main() -> int:
    readme, compiler, include_folder, library_folder = sys.argv[1:5]
    launcher = sys.argv[5:]
    blocks = code_blocks(pathlib.Path(readme).read_text())
    index = next(i for i, (language, _) in enumerate(blocks) if language == "c")
    program = blocks[index][1]
    promised = next(content for language, content in blocks[index + 1:] if language in ("", "text"))

    with tempfile.TemporaryDirectory() as folder:
        source, binary = pathlib.Path(folder, "demo.c"), pathlib.Path(folder, "demo")
        source.write_text(program)
        subprocess.run(
            [compiler, "-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror", source, "-o", binary,
             "-I", include_folder, "-L", library_folder, f"-Wl,-rpath,{library_folder}", "-lonebit"],
            check=True)
        if not launcher:
            print("this build has no onebit_run: the program was not run")
            return SKIPPED
        printed = subprocess.run([*launcher, "-n", "4", binary], check=True, stdout=subprocess.PIPE,
                                 text=True, timeout=60).stdout

    difference = list(difflib.unified_diff(promised.splitlines(), printed.splitlines(),
                                           "README", "program", lineterm=""))
    print("\n".join(difference))
    return 1 if difference else 0


if __name__ == "__main__":
    sys.exit(main())
