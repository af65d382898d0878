# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The rows of spans that a trace has for each rank."""

import dataclasses

CALLS = "calls"  # the row of what a rank does in its calls


@dataclasses.dataclass(frozen=True)
class Span:
    """Times are microseconds."""

    name: str
    category: str
    begin: float
    end: float
    call: int
    peer: int | None
    failed: bool
    args: dict[str, object]

    @property
    def duration(self) -> float:
        return self.end - self.begin


@dataclasses.dataclass
class Row:
    """`messages` may overlap; `spans` nest."""

    rank: int
    communicator: str
    name: str
    spans: list[Span] = dataclasses.field(default_factory=list)
    messages: list[Span] = dataclasses.field(default_factory=list)
