# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Entry points of the programs that the wheel brings."""

from __future__ import annotations

import os
import pathlib
import sys
from typing import NoReturn

PROGRAMS = pathlib.Path(__file__).parent / "bin"


def _become(name: str) -> NoReturn:
    os.execv(PROGRAMS / name, [name, *sys.argv[1:]])


def onebit_run() -> NoReturn:
    _become("onebit_run")


def onebit_info() -> NoReturn:
    _become("onebit_info")
