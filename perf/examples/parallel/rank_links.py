# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Sends and receives of tensors between two ranks, compressed; for the examples of this folder."""

from typing import Dict, Optional, Sequence

import torch

import onebit


class Links:
    """Sends and receives float32 tensors. The two ranks of a pair need a compressor each, with the same number,
    for each kind of message: a kind has one shape, and is sent once in a group.

    Args:
        kinds: their names, equal on all ranks.
        codec: None sends full precision.
        mode: "plain", for values that differ from call to call; or "ef", for values that change little: both ranks
            hold what the receiver has, and messages carry by how much the tensor differs from it.
        block: numbers that share a scale, a multiple of 32.
    """

    def __init__(self, comm: onebit.Communicator, kinds: Sequence[str], codec: Optional[str], mode: str, block: int):
        self.comm = comm
        self._kinds = list(kinds)
        self._options = {"codec": codec, "mode": mode, "block": block}
        self._compressors: Dict[int, onebit.Compressor] = {}

    def send(self, kind: str, tensor: torch.Tensor, peer: int) -> None:
        given = tensor.detach().contiguous()
        self.comm.send(given, peer, compressor=self._compressor(kind, given, self.comm.rank, peer))

    def recv(self, kind: str, like: torch.Tensor, peer: int) -> torch.Tensor:
        """A tensor of the shape of `like`, which is there once the call or its group has ended."""
        received = torch.empty(like.shape)
        self.comm.recv(received, peer, compressor=self._compressor(kind, like, peer, self.comm.rank))
        return received

    def _compressor(
        self, kind: str, like: torch.Tensor, sender: int, receiver: int
    ) -> Optional[onebit.Compressor]:
        if self._options["codec"] is None:
            return None
        number = (sender * self.comm.size + receiver) * len(self._kinds) + self._kinds.index(kind)
        if number not in self._compressors:
            self._compressors[number] = onebit.Compressor(
                self.comm, like.numel(), collective="send_recv", tensor_id=number, **self._options
            )
        return self._compressors[number]
