# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The link of a host, over which its ranks send to other hosts."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, List, Optional, Sequence

import torch.distributed as dist

from .._communicator import Communicator
from .._compressor import Compressor


@dataclasses.dataclass(frozen=True)
class HostLink:
    """What all ranks of this rank's host put on its link, worked out from what this rank sends.

    Where all ranks are on one host, each counts as if it had a host of its own.

    Attributes:
        hosts: how many there are.
        sharing: ranks on this host.
        rails: ranks on the host that has the fewest. With two levels so many of each host send to
            other hosts, those with the lowest numbers.
        is_on_rail: this rank is one of them.
    """

    hosts: int
    sharing: int
    rails: int
    is_on_rail: bool

    @staticmethod
    def of(communicator: Communicator, process_group: Optional[dist.ProcessGroup]) -> HostLink:
        """The load of the link of this rank's host. Collective."""
        hosts: List[Any] = [None] * communicator.size
        dist.all_gather_object(hosts, communicator.stats().host, group=process_group)
        return HostLink.among(hosts, communicator.rank)

    @staticmethod
    def among(hosts: Sequence[int], rank: int) -> HostLink:
        """The load of the link of the host of `rank`, where hosts[r] is the number of the host of rank r."""
        ranks = collections.Counter(hosts)
        if len(ranks) == 1:
            return HostLink(len(hosts), 1, 1, True)
        rails = min(ranks.values())
        local_rank = hosts[:rank].count(hosts[rank])
        return HostLink(len(ranks), ranks[hosts[rank]], rails, local_rank < rails)

    def dense_bytes(self, tensor_bytes: int) -> int:
        """What an average in full precision puts on the link, without headers: in two levels a host
        sends the others their parts of the tensor, and later the average of its own part."""
        return 2 * (self.hosts - 1) * tensor_bytes // self.hosts

    def bytes_of(self, compressor: Compressor) -> int:
        """What a call of the compressor puts on the link, headers included; if this rank is on a
        rail."""
        stats = compressor.stats()
        if self.sharing == 1:
            return stats.wire_bytes
        return stats.network_bytes * (self.rails if stats.levels == 2 else self.sharing)
