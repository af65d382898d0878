# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The placement of ranks and the links between them: shared memory of this machine, or links of the lab."""

from __future__ import annotations

import dataclasses

from ethernet_lab.errors import UsageError
from ethernet_lab.rates import Rate


@dataclasses.dataclass(frozen=True)
class Link:
    """Shared memory, or the lab at a rate."""

    rate: str | None  # as tc writes it; None: shared memory
    rate_bits_per_second: int | None

    @property
    def kind(self) -> str:
        """The name in reports."""
        return "shm" if self.rate is None else "lab"

    @property
    def name(self) -> str:
        """The name for --links."""
        return self.rate or "shm"

    @staticmethod
    def parse(text: str) -> Link:
        """Parses 'shm', or a rate like '100mbit' or '2.7gbit'. Raises ValueError."""
        if text == "shm":
            return Link(None, None)
        try:
            bits = Rate.parse(text).bits_per_second
        except UsageError as error:
            raise ValueError(f"{text!r} is not a link: write shm, or a rate ({error})") from error
        if bits is None:
            raise ValueError(f"{text!r} is not a link with a known rate, so its time cannot be planned")
        return Link(text, bits)


@dataclasses.dataclass(frozen=True)
class Cell:
    """The setting of a comparison: a link, and ranks on hosts. On shared memory every rank counts as a host."""

    link: Link
    hosts: int
    ranks_per_host: int = 1

    @property
    def ranks(self) -> int:
        """All of them, which share the cores of this machine."""
        return self.hosts * self.ranks_per_host

    @property
    def layout(self) -> str:
        """The ranks in texts."""
        return layout_text([self.hosts], self.ranks_per_host)


def layout_text(hosts: list[int], ranks_per_host: int) -> str:
    """Ranks, or numbers of hosts and the ranks of each: "4 ranks", "2, 4 hosts x 8 ranks"."""
    counts = ", ".join(map(str, hosts))
    return f"{counts} ranks" if ranks_per_host == 1 else f"{counts} hosts x {ranks_per_host} ranks"
