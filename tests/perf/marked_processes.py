# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Finds processes that a test has started, at any depth, by a variable that all inherit."""

import pathlib


def living(mark: str) -> list[str]:
    """Returns the command lines of living processes with "NAME=value" in their environment."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() not in (process / "environ").read_bytes().split(b"\0"):
                continue
            if ") Z " not in (process / "stat").read_text():
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            pass  # it has ended
    return found
