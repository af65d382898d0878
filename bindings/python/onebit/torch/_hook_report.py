# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What the hook has done so far."""

from __future__ import annotations

import dataclasses
from typing import Dict, Optional


@dataclasses.dataclass(frozen=True)
class Report:
    """What a State has done so far, on this rank.

    Attributes:
        iterations: backward passes that were averaged.
        dense_iterations: those of them before compression began.
        skipped_iterations: those that were taken back from the residuals, because their average was
            not finite, or by State.revert.
        bytes_sent: by this rank, headers included.
        dense_bytes: what the same averages would have sent in full precision, without headers.
        seconds: time in averages. They run beside the backward pass, so a step is longer only by
            what is left of them at its end.
        codec_seconds: the part of `seconds` that compression, reduction and decoding took.
        break_even_bits_per_second: speed of a link below which compression pays: the bits that it
            saved, divided by the seconds that it computed. None before anything was compressed.
        residual_norms: for each compressed parameter the Euclidean norm of what this rank still
            owes. With a codec that suits the training it stays at a few norms of the gradient.
    """

    iterations: int
    dense_iterations: int
    skipped_iterations: int
    bytes_sent: int
    dense_bytes: int
    seconds: float
    codec_seconds: float
    break_even_bits_per_second: Optional[float]
    residual_norms: Dict[str, float]

    def __str__(self) -> str:
        lines = [
            f"{self.iterations} iterations: {self.dense_iterations} dense, "
            f"{self.skipped_iterations} taken back",
            f"sent {self.bytes_sent / 1e6:.1f} MB, in full precision {self.dense_bytes / 1e6:.1f} MB",
            f"{self.seconds:.2f} s in averages, {self.codec_seconds:.2f} s of them computing",
        ]
        if self.break_even_bits_per_second is not None:
            speed = self.break_even_bits_per_second / 1e9
            lines.append(f"compression pays on links below {speed:.1f} Gbit/s")
        return "\n".join(lines)
