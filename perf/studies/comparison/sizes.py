# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Message sizes: their syntax, and which of them one sweep of a tool can visit."""

from __future__ import annotations

import re

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
ELEMENT_BYTES = 4  # all systems sum fp32
MAX_SIZE = 1 << 30


def parse_size(text: str) -> int:
    """Parses '4096', '64K', '1M'. Raises ValueError with what would be right."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text.strip().upper())
    size = int(match[1]) * UNITS[match[2]] if match else 0
    if size <= 0 or size % ELEMENT_BYTES or size > MAX_SIZE:
        raise ValueError(f"{text!r} is not a size: write a multiple of {ELEMENT_BYTES} bytes up to 1G, "
                         "or a number with K, M or G")
    return size


def size_text(size: int) -> str:
    """The text that parse_size reads."""
    for unit in ("G", "M", "K"):
        if size % UNITS[unit] == 0:
            return f"{size // UNITS[unit]}{unit}"
    return str(size)


def sweeps(sizes: list[int]) -> list[list[int]]:
    """Cuts ascending sizes into runs, each with one whole factor from a size to the next, so that a
    run is one sweep (-b, -e, -f)."""
    runs: list[list[int]] = []
    factor = 0
    for size in sizes:
        last = runs[-1] if runs else []
        if last and size % last[-1] == 0 and (len(last) == 1 or size // last[-1] == factor):
            factor = size // last[-1]
            last.append(size)
        else:
            runs.append([size])
    return runs


def buffer_flags(sizes: list[int]) -> list[str]:
    """Flags that give every sweep of a comparison buffers of one size, so a row does not depend on the
    sizes beside it. The part of a buffer that a sweep does not use is never touched and takes up
    addresses only."""
    return ["--buffer-bytes", size_text(max(sizes))]


def sweep_flags(run: list[int]) -> list[str]:
    """The flags for one run of sweeps()."""
    flags = ["-b", size_text(run[0]), "-e", size_text(run[-1])]
    return flags + (["-f", str(run[1] // run[0])] if len(run) > 1 else [])
