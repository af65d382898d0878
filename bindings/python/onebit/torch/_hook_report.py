# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What the hook has done so far."""

from __future__ import annotations

import dataclasses
from typing import Dict, Optional


@dataclasses.dataclass(frozen=True)
class Trial:
    """What codec="auto" has measured and chosen.

    Attributes:
        dense_seconds: median time of an iteration whose average was in full precision, over all ranks.
        compressed_seconds: that of one in 4 bits.
        is_compressed: the choice.
    """

    dense_seconds: float
    compressed_seconds: float
    is_compressed: bool

    def __str__(self) -> str:
        return (
            f"auto: {'fp4' if self.is_compressed else 'full precision'}, because an iteration took "
            f"{1e3 * self.dense_seconds:.1f} ms in full precision and {1e3 * self.compressed_seconds:.1f} ms "
            "with fp4"
        )


@dataclasses.dataclass(frozen=True)
class Report:
    """What a State has done so far, on this rank.

    All ranks of a host share its link to other hosts, and figures of a link are of all of them,
    worked out from what this rank sends. Where there is only one host, each rank counts as if it had
    a host of its own. Where hosts have unequal numbers of ranks, these figures are None on ranks that
    send nothing to other hosts in two levels; rank 0 always has them.

    Attributes:
        iterations: backward passes that were averaged.
        dense_iterations: those of them in full precision.
        skipped_iterations: those that were taken back from the residuals, because their average was
            not finite, or by State.revert.
        bytes_sent: by this rank, headers included, inside its host and to others.
        network_bytes: those of them to ranks on other hosts.
        dense_bytes: what the same averages would have sent in full precision in one level, without
            headers.
        host_ranks: ranks that share the link of this rank's host.
        link_bytes: what the averages have put on the link of this rank's host, without headers of
            those in full precision.
        dense_link_bytes: what the same averages would have put there in full precision, in two
            levels.
        seconds: time in averages. They run alongside the backward pass, so a step is longer only by
            what is left of them at its end.
        codec_seconds: the part of `seconds` that compression, reduction and decoding took.
        break_even_bits_per_second: speed of the link of a host below which compression pays: the
            bits that it saved there, divided by the seconds that it computed. None if it has saved
            none, as before anything was compressed.
        residual_norms: for each compressed parameter the Euclidean norm of what this rank still
            owes. With a codec that suits the training it stays at a few norms of the gradient.
        trial: what codec="auto" has measured; None before it has chosen, and with other codecs.
    """

    iterations: int
    dense_iterations: int
    skipped_iterations: int
    bytes_sent: int
    network_bytes: int
    dense_bytes: int
    host_ranks: int
    link_bytes: Optional[int]
    dense_link_bytes: Optional[int]
    seconds: float
    codec_seconds: float
    break_even_bits_per_second: Optional[float]
    residual_norms: Dict[str, float]
    trial: Optional[Trial] = None

    @staticmethod
    def of_nothing() -> Report:
        """The report of a hook whose ranks have not joined yet."""
        return Report(0, 0, 0, 0, 0, 0, 1, 0, 0, 0.0, 0.0, None, {})

    def __str__(self) -> str:
        lines = [
            f"{self.iterations} iterations: {self.dense_iterations} dense, "
            f"{self.skipped_iterations} taken back",
            f"sent {self.bytes_sent / 1e6:.1f} MB, in full precision {self.dense_bytes / 1e6:.1f} MB",
        ]
        if self.trial is not None:
            lines.insert(1, str(self.trial))
        ranks = "1 rank" if self.host_ranks == 1 else f"{self.host_ranks} ranks"
        link_bytes, dense_bytes = self.link_bytes, self.dense_link_bytes
        if link_bytes is not None and dense_bytes is not None and self.host_ranks > 1:
            lines.append(
                f"the link of its host with {ranks} carried {link_bytes / 1e6:.1f} MB, "
                f"in full precision {dense_bytes / 1e6:.1f} MB"
            )
        lines.append(
            f"{self.seconds:.2f} s in averages, {self.codec_seconds:.2f} s of them computing"
        )
        if self.break_even_bits_per_second is not None:
            speed = self.break_even_bits_per_second / 1e9
            lines.append(
                f"compression pays if the link of a host with {ranks} is below {speed:.1f} Gbit/s"
            )
        elif link_bytes is not None and self.residual_norms:
            lines.append(
                f"compression saves nothing on the link of a host with {ranks}: see levels of "
                "onebit.torch.State"
            )
        return "\n".join(lines)
