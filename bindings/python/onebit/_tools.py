# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The entry point of the programs in the wheel."""

from __future__ import annotations

import os
import pathlib
import sys
from typing import NoReturn

PROGRAMS = pathlib.Path(__file__).parent / "bin"


def run() -> NoReturn:
    """Replaces this process with the program of the script's name; one program serves all sweeps."""
    name = pathlib.Path(sys.argv[0]).name
    program = PROGRAMS / ("sweeps" if name.endswith("_perf") else name)
    os.execv(program, [name, *sys.argv[1:]])
