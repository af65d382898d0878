# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What perf/compare says on standard error while it runs."""

from __future__ import annotations

import sys


class Progress:
    """Lines that stay, and on a terminal one that the next replaces."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()

    def show(self, text: str) -> None:
        """On a line that the next one replaces."""
        if self._is_terminal:
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    def clear_line(self) -> None:
        """Of what was shown."""
        if self._is_terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        """A line that stays."""
        self.clear_line()
        print(f"compare: {text}", file=sys.stderr, flush=True)
