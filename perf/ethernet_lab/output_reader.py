# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Relays the standard output of the job and extracts the library's counters."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import threading
from typing import IO

from ethernet_lab.lab_launcher import is_told_to_stop

LINE = re.compile(rb"#\s+rank (\d+) sent (\d+) bytes in (\d+) messages"
                  rb"(?:, (\d+) bytes of them to other hosts)?\s*$")
MAX_LINE_BYTES = 256  # longer lines are not counters


@dataclasses.dataclass(frozen=True)
class LibraryCount:
    """What a rank's transport reports as sent."""

    rank: int
    sent_bytes: int
    sent_messages: int
    network_bytes: int | None  # sent to other hosts; None: the program did not say


class OutputReader:
    """Reads in a separate thread, because the reader of our output may be slow."""

    def __init__(self, stream: IO[bytes], to: int):
        self._stream = stream
        self._to = to
        self._line = b""
        self.counts: list[LibraryCount] = []
        self.is_closed = False  # nobody reads our output any more
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Relays the rest, until told to stop. Call it when nobody can write any more."""
        while self._thread.is_alive() and not is_told_to_stop():
            self._thread.join(0.05)

    def _run(self) -> None:
        while chunk := os.read(self._stream.fileno(), 1 << 16):
            self._look_for_counts(chunk)
            try:
                while chunk:
                    chunk = chunk[os.write(self._to, chunk):]
            except OSError:
                # The job is pointless now, as for any program in a pipe.
                self.is_closed = True
                os.kill(os.getpid(), signal.SIGTERM)
                self._stream.close()
                return

    def _look_for_counts(self, chunk: bytes) -> None:
        *lines, self._line = (self._line + chunk).split(b"\n")
        self._line = self._line[:MAX_LINE_BYTES]
        for line in lines:
            if match := LINE.match(line):
                self.counts.append(LibraryCount(*(number and int(number) for number in match.groups())))
