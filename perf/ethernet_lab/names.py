# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The name of a lab says who owns it, so that anybody can tell a lab in use from one left behind.

A process number alone is given to others in time; together with the moment of its start it is not.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import secrets

PATTERN = re.compile(r"onebit-lab-(\d+)-(\d+)-([0-9a-f]{4})")


def start_of(pid: int) -> int | None:
    """The start of the process in ticks since boot; None if it does not exist or has ended."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name of the program is in parentheses and may hold anything.
    fields = text.rpartition(")")[2].split()
    state, start = fields[0], fields[19]
    return None if state in "ZX" else int(start)


@dataclasses.dataclass(frozen=True)
class LabName:
    """The name of one lab. `text` prefixes the names of its namespaces and names its folder."""

    owner: int
    owner_start: int
    token: str

    @classmethod
    def of_this_process(cls) -> LabName:
        start = start_of(os.getpid())
        assert start is not None
        return cls(os.getpid(), start, secrets.token_hex(2))

    @classmethod
    def parse(cls, text: str) -> LabName | None:
        """The lab that a namespace or folder belongs to, or None."""
        match = PATTERN.match(text)
        return cls(int(match[1]), int(match[2]), match[3]) if match else None

    @property
    def text(self) -> str:
        return f"onebit-lab-{self.owner}-{self.owner_start}-{self.token}"

    @property
    def has_owner(self) -> bool:
        return start_of(self.owner) == self.owner_start
