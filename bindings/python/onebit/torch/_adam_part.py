# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Adam on a part of the parameters, with a variance that is frozen from some step on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from ._shard import Slice, runs


@dataclass(frozen=True)
class Update:
    """The results of a step for a part, before it is known that the step succeeds."""

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

        Args:
            means: of v over members, by their `begin`; of their elements on all ranks.
            share: of the root mean square of sqrt(v) over a member, which is the floor.
            frozen_at: the last step that changed v.
        """
        correction = self._correction(self._beta2, frozen_at)
        denominators = (self.v * correction).sqrt_()
        for each in self._slices:
            floor = share * math.sqrt(correction * means[each.member.begin])
            each.of(denominators).clamp_(min=floor)
        self._denominators = denominators.add_(self._eps)

    def units(self, has_units: bool) -> torch.Tensor:
        """Powers of two by which gradients are multiplied while they travel, so that they are about as large
        as each other; without units 1. Those of elements that have never seen a gradient are 0, because
        one bit cannot say 0."""
        assert self._denominators is not None
        units = torch.ones_like(self.v)
        if has_units:
            units = self._denominators.log2().round_().neg_().exp2_()
        return units.masked_fill_(self.v == 0, 0)

    @property
    def moments(self) -> List[torch.Tensor]:
        """The tensors of the part that a state has."""
        return [self.m, self.v, self.x]

    @property
    def tensors(self) -> List[torch.Tensor]:
        """All that the part takes memory for."""
        kept = self.moments
        return kept if self._denominators is None else [*kept, self._denominators]

    def _correction(self, beta: float, step: int) -> float:
        """The factor that corrects the bias of a moment that began as zeros."""
        return 1 / (1 - beta**step) if self._has_correction else 1.0
