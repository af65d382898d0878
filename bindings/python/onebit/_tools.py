# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The entry point of the programs that the wheel brings."""

from __future__ import annotations

import os
import pathlib
import sys
from typing import NoReturn

PROGRAMS = pathlib.Path(__file__).parent / "bin"


def run() -> NoReturn:
    """Becomes the program that has the name of the script, or the one that is all sweeps, by their names."""
    name = pathlib.Path(sys.argv[0]).name
    program = PROGRAMS / ("sweeps" if name.endswith("_perf") else name)
    os.execv(program, [name, *sys.argv[1:]])
