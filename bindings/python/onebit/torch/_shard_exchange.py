# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""How a vector of parameters travels: gradients to the ranks that own their parts, and parameters back."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Optional

import torch

from .._communicator import Communicator
from .._compressor import Compressor
from .._native import Collective, RedOp, StateKind
from ._compression import Compression
from ._parameter import packed_bits
from ._shard import Vector


@dataclasses.dataclass(frozen=True)
class Codecs:
    """The codecs of gradients and parameters in the compressed stage; None: full precision."""

    gradients: Optional[Compression]
    parameters: Optional[Compression]
    residual_type: Any = None  # of the reduce-scatter

    def scatter(self, communicator: Communicator, part: int, device: torch.device) -> Optional[Compressor]:
        """A compressor of reduce-scatters of parts of so many elements. Local."""
        own = {"collective": Collective.REDUCE_SCATTER, "residual_type": self.residual_type}
        return _made(self.gradients, communicator, part, device, own)

    def gather(self, communicator: Communicator, part: int, device: torch.device) -> Optional[Compressor]:
        """A compressor of all-gathers of parts of so many elements. Local."""
        # One generation: an all-gather that is not finite is followed by another priming.
        own = {"collective": Collective.ALL_GATHER, "transactional": False}
        return _made(self.parameters, communicator, part, device, own)

    def check(self, communicator: Communicator, device: torch.device) -> None:
        """Has the library refuse now what the compressed stage could not begin with. Local."""
        for make in (self.scatter, self.gather):
            compressor = make(communicator, 1, device)
            if compressor is not None:
                compressor.close()


class Exchange:
    """The reduce-scatter and the all-gather of a vector, in full precision until `compress`.

    Both have error feedback. The reduce-scatter keeps what its packets lack of this rank's gradients of
    all parts. The all-gather sends how a part differs from what all ranks hold of it, and what a packet
    lacks is part of the next difference.
    """

    def __init__(
        self, communicator: Communicator, vector: Vector, stream: Optional[torch.cuda.Stream]
    ) -> None:
        self._communicator = communicator
        self._vector = vector
        self._stream = stream
        self._scatter: Optional[Compressor] = None
        self._gather: Optional[Compressor] = None
        self._carry: Optional[torch.Tensor] = None
        self._units: Optional[torch.Tensor] = None
        self.is_compressed = False

    def open(self, codecs: Codecs) -> None:
        """Makes the compressors, in the same order on all ranks. Local."""
        device = self._vector.held.device
        if self._scatter is None:
            self._scatter = codecs.scatter(self._communicator, self._vector.part, device)
        if self._gather is None:
            self._gather = codecs.gather(self._communicator, self._vector.part, device)
            if self._gather is not None and self._vector.is_padded:
                elements = torch.ones(self._vector.held.numel(), dtype=torch.uint8)
                elements[self._vector.count :] = 0
                self._gather.set_mask(packed_bits(elements))

    def compress(self, units: torch.Tensor) -> None:
        """Begins the compressed stage. Collective; `open` was called.

        Args:
            units: powers of two by which gradients of the own part are multiplied while they travel; 0:
                those elements send none.
        """
        if self._scatter is not None:
            self._units = torch.empty_like(self._vector.held, dtype=torch.bfloat16)
            self._vector.own(self._units).copy_(units)
            self._communicator.all_gather(self._units, stream=self._stream)
            is_live = self._units != 0
            self._scatter.set_mask(None if bool(is_live.all()) else packed_bits(is_live))
        self.prime()
        self.is_compressed = True

    def prime(self) -> None:
        """Makes the all-gather begin at what the models hold. Collective."""
        if self._gather is not None:
            self._gather.prime(self._vector.held, stream=self._stream)

    def owe(self, carry: torch.Tensor) -> None:
        """Adds a vector of gradients that ranks of another number still owed, on all ranks the same, to
        what this rank sends next."""
        self._carry = carry

    def reduce(self) -> torch.Tensor:
        """Averages the gradients in the vector's scratch, and returns the own part, which is in it. If a
        compressed one is not finite on some rank, it is NaN on all. Collective."""
        vector = self._vector
        if self.is_compressed and self._carry is not None:
            vector.scratch.add_(self._carry)
        if self._units is None:
            self._communicator.reduce_scatter(vector.scratch, op=RedOp.AVG, stream=self._stream)
            return vector.own(vector.scratch)
        vector.scratch.mul_(self._units)
        self._communicator.reduce_scatter(
            vector.scratch, op=RedOp.AVG, compressor=self._scatter, stream=self._stream
        )
        return self._in_gradients(vector.own(vector.scratch))

    def _in_gradients(self, part: torch.Tensor) -> torch.Tensor:
        """The own part of what has travelled, in the unit of gradients."""
        assert self._units is not None
        units = self._vector.own(self._units).float()
        return part.div_(units.masked_fill_(units == 0, 1))

    def revert(self) -> None:
        """Takes back a reduce-scatter whose step is skipped. Local, on all ranks."""
        if self._scatter is not None:
            self._scatter.revert()

    def gather(self, part: torch.Tensor) -> bool:
        """Makes what all ranks hold follow the parts that they give. Tells if it has: it has not where a
        compressed part was not finite on some rank. Collective."""
        vector = self._vector
        compressor = self._gather if self.is_compressed else None
        vector.own(vector.scratch).copy_(part)
        self._communicator.all_gather(vector.scratch, compressor=compressor, stream=self._stream)
        if compressor is not None and not bool(vector.scratch[:1].isfinite().all()):
            self.prime()
            return False
        vector.swap()
        return True

    def settle(self) -> None:
        """Ends a step that was not skipped."""
        if self.is_compressed:
            self._carry = None

    def gathered(self, part: torch.Tensor) -> torch.Tensor:
        """The vector of all parts, in full precision. Collective."""
        whole = torch.empty_like(self._vector.held)
        self._vector.own(whole).copy_(part)
        self._communicator.all_gather(whole, stream=self._stream)
        return whole

    def owed(self) -> torch.Tensor:
        """Returns what ranks owe on average: a vector of gradients, the same on all ranks. Collective."""
        owed = torch.zeros(self._vector.part, device=self._vector.held.device)
        if self._scatter is not None and self._units is not None:
            # A call in full precision pays what all owe, and is then taken back.
            zeros = torch.zeros_like(self._vector.held)
            self._scatter.prime(zeros, out=owed, op=RedOp.AVG, stream=self._stream)
            self._scatter.revert()
            self._in_gradients(owed)
        whole = self.gathered(owed)
        return whole if self._carry is None else whole.add_(self._carry)

    def export_residual(self) -> bytes:
        """Returns what this rank owes, for the same rank of as many. Local."""
        return b"" if self._scatter is None else self._scatter.export_state(StateKind.RANK)

    def import_residual(self, residual: bytes) -> None:
        if self._scatter is not None and residual:
            self._scatter.import_state(torch.frombuffer(bytearray(residual), dtype=torch.uint8))

    @property
    def carry(self) -> Optional[torch.Tensor]:
        return self._carry

    @property
    def tensors(self) -> List[torch.Tensor]:
        """The tensors that it holds, beside its compressors."""
        return [each for each in (self._carry, self._units) if each is not None]

    @property
    def compressors(self) -> List[Compressor]:
        """The compressors of the reduce-scatter and of the all-gather, as far as there are any."""
        return [each for each in (self._scatter, self._gather) if each is not None]

    def close(self) -> None:
        for compressor in self.compressors:
            compressor.close()


def _made(
    compression: Optional[Compression], communicator: Communicator, part: int, device: torch.device, own: Dict[str, Any]
) -> Optional[Compressor]:
    if compression is None:
        return None
    return compression.compressor(communicator, part, torch.float32, device=device, **own)
