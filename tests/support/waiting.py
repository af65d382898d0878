# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Waits for what other processes do."""

import pathlib
import time
from collections.abc import Callable


def comes_true(is_so: Callable[[], object], seconds: float = 60) -> bool:
    """Looks until it is so, at most for a time that only something that hangs takes."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def pid_of_rank(launcher: int, rank: int) -> int:
    """Waits until a launcher has started its rank."""
    found = []

    def look() -> list[int]:
        for child in pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
            if f"RANK={rank}".encode() in pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
                found.append(int(child))
        return found

    assert comes_true(look), f"rank {rank} did not start"
    return found[0]
