# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Prints the progress of perf/compare on standard error."""

from __future__ import annotations

import sys


class Progress:
    """Permanent lines and, on a terminal, one that is overwritten by the next."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()

    def show(self, text: str) -> None:
        """Shows a line that the next one overwrites."""
        if self._is_terminal:
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    def clear_line(self) -> None:
        """Removes the line that is shown."""
        if self._is_terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        """Prints a permanent line."""
        self.clear_line()
        print(f"compare: {text}", file=sys.stderr, flush=True)
