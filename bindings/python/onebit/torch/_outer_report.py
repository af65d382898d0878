# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The report of an outer optimizer: steps, rounds, bytes, times and residuals so far."""

from __future__ import annotations

import dataclasses
from typing import List


@dataclasses.dataclass(frozen=True)
class OuterReport:
    """The counters of a DiLoCo on this rank so far.

    Attributes:
        steps: inner steps.
        rounds: averages of fragments that have ended, those of buffers not counted.
        skipped_rounds: those of them that were not finite, so that nothing was applied.
        bytes_sent: by this rank since it has joined this communicator, headers included.
        round_bytes: what a rank sends in a round by formula: each fragment once, headers of compressed
            averages included.
        dense_round_bytes: the same in full precision, which every step of DistributedDataParallel sends.
        residual_norms: for each fragment the Euclidean norm of what this rank still owes; none
            without error feedback.
        call_seconds: time in calls, which run beside inner steps with an overlap.
        exposed_seconds: time of step() beyond the inner step: pseudo-gradients, waiting, outer steps.
        seconds: time of step().
    """

    steps: int
    rounds: int
    skipped_rounds: int
    bytes_sent: int
    round_bytes: int
    dense_round_bytes: int
    residual_norms: List[float]
    call_seconds: float
    exposed_seconds: float
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.steps} steps, {self.rounds} averages of fragments, {self.skipped_rounds} of them skipped\n"
            f"sent {self.bytes_sent / 1e6:.1f} MB; a round takes {self.round_bytes / 1e6:.2f} MB, in full "
            f"precision {self.dense_round_bytes / 1e6:.2f} MB, and so does each step of DDP\n"
            f"{self.call_seconds:.2f} s in averages; outer steps held up {self.exposed_seconds:.2f} s of "
            f"{self.seconds:.2f} s"
        )
