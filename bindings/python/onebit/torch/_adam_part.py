# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Adam on a part of the parameters, with a variance that is frozen from some step on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from ._shard import Slice, runs

# Elements that share a floor, as they share a scale of signs by default.
_FLOOR_BLOCK = 4096


@dataclass(frozen=True)
class Update:
    """What a step makes of a part, before it is known that it succeeds."""

    m: torch.Tensor
    v: torch.Tensor
    x: torch.Tensor


class AdamPart:
    """Parameters `x` of a rank's part in float32, with the moments `m` and `v` of Adam."""

    def __init__(
        self,
        x: torch.Tensor,
        slices: Sequence[Slice],
        betas: Tuple[float, float],
        eps: float,
        has_correction: bool,
    ) -> None:
        self.x = x
        self.m, self.v = torch.zeros_like(x), torch.zeros_like(x)
        self._slices = slices
        self._beta1, self._beta2 = betas
        self._eps = eps
        self._has_correction = has_correction
        self._denominators: Optional[torch.Tensor] = None  # of a frozen variance

    def updated(
        self, gradient: torch.Tensor, step: int, groups: Sequence[Dict[str, Any]]
    ) -> Update:
        """The part after step number `step`, counted from 1. Changes nothing.

        Args:
            gradient: the average of all ranks.
        """
        m = torch.lerp(self.m, gradient, 1 - self._beta1)
        v, denominators = self.v, self._denominators
        if denominators is None:
            v = (self.v * self._beta2).addcmul_(gradient, gradient, value=1 - self._beta2)
            correction = self._correction(self._beta2, step)
            denominators = (v * correction).sqrt_().add_(self._eps)
        x = m / denominators
        correction = self._correction(self._beta1, step)
        for begin, end, rate, decay in runs(self._slices, groups):
            own = x[begin:end].mul_(-rate * correction)
            own.add_(self.x[begin:end], alpha=1 - rate * decay)
        return Update(m, v, x)

    def commit(self, update: Update) -> None:
        self.m.copy_(update.m)
        self.v.copy_(update.v)
        self.x.copy_(update.x)

    # ----------------------------------------------------------------------------------------- freeze

    def variance_sums(self) -> Dict[int, float]:
        """The sums of v over what the part has of members, by their `begin`."""
        return {each.member.begin: float(each.of(self.v).double().sum()) for each in self._slices}

    def freeze(self, means: Dict[int, float], share: float, frozen_at: int) -> None:
        """Freezes the variance, whose denominators have a floor, as those of onebit/optim.h.

        One bit cannot say 0, so an element gets the scale of its block also where its own gradients
        were much smaller. It would be thrown far away, if it were divided by their size.

        Args:
            means: of v over members, by their `begin`; of their elements on all ranks.
            share: of the root mean square of sqrt(v) over a member, and over the elements that share a
                scale with it where that is larger, which is the floor.
            frozen_at: the last step that changed v.
        """
        correction = self._correction(self._beta2, frozen_at)
        units = torch.ones_like(self.v)
        floors = torch.zeros_like(self.v)
        for each in self._slices:
            each.of(units).fill_(each.member.unit)
            each.of(floors).fill_(share * math.sqrt(correction * means[each.member.begin]))
        # What the elements of a block send has the size of sqrt(v) in the unit in which it travels.
        shared = _block_means(self.v.double() * units.double().square())
        shared = (share * (correction * shared).sqrt() / units).float()
        floors = torch.maximum(floors, shared)
        self._denominators = torch.maximum((self.v * correction).sqrt_(), floors).add_(self._eps)

    @property
    def is_live(self) -> torch.Tensor:
        """The elements that have seen a gradient. The others send none, because one bit cannot say 0, and
        only weight decay moves them."""
        return self.v != 0

    @property
    def moments(self) -> List[torch.Tensor]:
        """What a state has of the part."""
        return [self.m, self.v, self.x]

    @property
    def tensors(self) -> List[torch.Tensor]:
        """All that the part takes memory for."""
        kept = self.moments
        return kept if self._denominators is None else [*kept, self._denominators]

    def _correction(self, beta: float, step: int) -> float:
        """What corrects the bias of a moment of zeros at first."""
        return 1 / (1 - beta**step) if self._has_correction else 1.0


def _block_means(values: torch.Tensor) -> torch.Tensor:
    """For each element the mean over its block."""
    blocks = -(-values.numel() // _FLOOR_BLOCK)
    padded = torch.nn.functional.pad(values, (0, blocks * _FLOOR_BLOCK - values.numel()))
    sums = padded.view(blocks, _FLOOR_BLOCK).sum(1)
    counts = torch.full_like(sums, _FLOOR_BLOCK)
    counts[-1] = values.numel() - (blocks - 1) * _FLOOR_BLOCK
    return (sums / counts).repeat_interleave(_FLOOR_BLOCK)[: values.numel()]
