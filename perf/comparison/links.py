# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The placement of ranks and the links between them: shared memory of this host, or links of the lab."""

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
            raise ValueError(f"{text!r} is no link: write shm, or a rate ({error})") from error
        if bits is None:
            raise ValueError(f"{text!r} is no link: the time on one cannot be planned")
        return Link(text, bits)


@dataclasses.dataclass(frozen=True)
class Cell:
    """The setting of a comparison: a link and a number of ranks, each on a host of its own."""

    link: Link
    hosts: int
