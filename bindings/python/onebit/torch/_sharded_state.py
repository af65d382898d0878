# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The entry "onebit" in the state_dict() of a sharded optimizer: how far it has come, and of a state of one
rank all that this rank has."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Dict, List

import torch

from .._errors import Corrupt, InvalidArgument, Mismatch

_FORMAT = "sharded"


@dataclass(frozen=True)
class ShardedState:
    """A state of all ranks, or of one of them.

    Attributes:
        kind: "global" or "rank".
        rank, ranks: that of the state, and how many there were.
        step, skipped: steps so far, and those that were skipped.
        frozen_at: the last step that changed the variance; 0: it is live.
        arrays: of one rank for each vector, by the names of its tensors; none in a state of all ranks, whose
            tensors belong to parameters.
    """

    kind: str
    rank: int
    ranks: int
    step: int
    skipped: int
    frozen_at: int
    arrays: List[Dict[str, bytes]] = field(default_factory=list)

    def packed(self) -> bytes:
        header = asdict(self)
        header["format"] = _FORMAT
        header["arrays"] = [{name: len(data) for name, data in each.items()} for each in self.arrays]
        pieces = [data for each in self.arrays for data in each.values()]
        return b"".join([json.dumps(header).encode(), b"\n", *pieces])

    @staticmethod
    def unpacked(data: bytes) -> ShardedState:
        """Raises Corrupt or InvalidArgument if it is none."""
        head, _, rest = data.partition(b"\n")
        try:
            header = json.loads(head)
            kind = header.pop("format", None)
        except (ValueError, AttributeError) as error:
            raise Corrupt(f"the optimizer's state is damaged: {error}") from error
        if kind != _FORMAT:
            raise InvalidArgument(
                "the state is that of another optimizer of onebit.torch.optim: load it into one of its class; "
                "nothing was loaded"
            )
        try:
            position = 0
            arrays: List[Dict[str, bytes]] = []
            for lengths in header.pop("arrays"):
                arrays.append({})
                for name, length in lengths.items():
                    arrays[-1][name] = rest[position : position + length]
                    position += length
            if position != len(rest):
                raise ValueError(f"it has {len(rest)} bytes instead of {position}")
            return ShardedState(**header, arrays=arrays)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Corrupt(f"the optimizer's state is damaged: {error}") from error

    def check_rank(self, rank: int, ranks: int) -> None:
        """Refuses a state of one rank that is not this one."""
        if self.kind == "rank" and (self.rank, self.ranks) != (rank, ranks):
            raise Mismatch(
                f"the state is that of rank {self.rank} of {self.ranks}, and this is rank {rank} of {ranks}: load "
                "this rank's own, or a state of kind 'global', which fits any number of ranks; nothing was loaded"
            )


def bytes_of_tensor(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.detach().cpu().contiguous().numpy().tobytes())


def copy_bytes(data: bytes, tensor: torch.Tensor) -> None:
    """Writes what bytes_of_tensor gave.

    Raises:
        Mismatch: it is of another length.
    """
    size = tensor.numel() * tensor.element_size()
    if len(data) != size:
        raise Mismatch(
            f"the state has a tensor of {len(data)} bytes where this rank has {size}: groups have other options "
            "(non_freeze), or parameters other sizes; nothing was loaded"
        )
    if size > 0:
        tensor.copy_(torch.frombuffer(bytearray(data), dtype=tensor.dtype).view(tensor.shape))
