# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""AdamW, 1-bit Adam, and AdamW with one-bit momentum and the mean of local variances, for ranks that are rows of one
tensor and hold the same parameters."""

import abc
import dataclasses

import torch

from freeze_free.sign_average import BLOCK, SignAverage


@dataclasses.dataclass
class Parameters:
    """Parameters of a model in one vector, each of which begins at one of `starts`; and their weight decay."""
    values: torch.Tensor
    starts: list
    decay: torch.Tensor


class FlatAdam(abc.ABC):
    """AdamW's update from a momentum and a variance that ranks share; how they come about differs.

    The variance is corrected for its bias when it is renewed. `floor` is the share of the root mean square of sqrt(v)
    over each 4096 elements of a parameter below which no sqrt(v) counts, and elements with v = 0 stay where they are,
    as in the library; with 0 neither applies.
    """

    def __init__(self, parameters: Parameters, ranks: int, betas: tuple, eps: float = 1e-8, floor: float = 0):
        self.parameters = parameters
        self.ranks = ranks
        self.beta1, self.beta2 = betas
        self.eps = eps
        self.floor = floor
        self.steps = 0
        self.momentum = torch.zeros_like(parameters.values)
        self.variance = torch.zeros_like(parameters.values)
        ends = [*parameters.starts[1:], len(parameters.values)]
        self._floor_blocks = [(begin, min(begin + BLOCK, end))
                              for start, end in zip(parameters.starts, ends) for begin in range(start, end, BLOCK)]

    def step(self, gradients: torch.Tensor, rate: float) -> None:
        """Moves the parameters by gradients of all ranks, a row each."""
        self.steps += 1
        self.average(gradients)
        update = self.momentum / (1 - self.beta1**self.steps) / self.denominators()
        if self.floor:
            update[self.variance == 0] = 0
        update.addcmul_(self.parameters.decay, self.parameters.values)
        self.parameters.values.sub_(update, alpha=rate)

    @abc.abstractmethod
    def average(self, gradients: torch.Tensor) -> None:
        """Renews momentum and variance."""

    def denominators(self) -> torch.Tensor:
        """sqrt(v), not below the floor, plus eps."""
        root = self.variance.sqrt()
        if self.floor:
            for begin, end in self._floor_blocks:
                part = root[begin:end]
                part.clamp_(min=self.floor * (torch.linalg.vector_norm(part).item() / (end - begin)**0.5))
        return root.add_(self.eps)

    def momenta(self, gradients: torch.Tensor) -> torch.Tensor:
        """The momentum as the gradient of each rank alone would leave it."""
        return torch.lerp(gradients, self.momentum.expand_as(gradients), self.beta1)

    def unbiased(self, variance: torch.Tensor) -> torch.Tensor:
        """A variance that began with zeros, corrected by the number of steps it has seen: all so far."""
        return variance / (1 - self.beta2**self.steps)


class DenseAdamW(FlatAdam):
    """AdamW with gradients averaged in full precision."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self._biased_variance = torch.zeros_like(self.variance)

    def average(self, gradients: torch.Tensor) -> None:
        mean = gradients.mean(0)
        self.momentum.lerp_(mean, 1 - self.beta1)
        self._biased_variance.mul_(self.beta2).addcmul_(mean, mean, value=1 - self.beta2)
        self.variance = self.unbiased(self._biased_variance)


class OnebitAdam(DenseAdamW):
    """1-bit Adam (Tang et al. 2021, algorithm 1): AdamW for `freeze_step` steps, and then one-bit momentum with the
    variance as it was."""

    def __init__(self, *arguments, freeze_step: int, **options):
        super().__init__(*arguments, **options)
        self.freeze_step = freeze_step
        self._sign = SignAverage(len(self.momentum), self.ranks, self.parameters.starts)

    def average(self, gradients: torch.Tensor) -> None:
        if self.steps <= self.freeze_step:
            super().average(gradients)
        else:
            self.momentum = self._sign.average(self.momenta(gradients))


class LocalVariance(FlatAdam):
    """AdamW with one-bit momentum from the first step on. Each rank keeps the variance of its own gradients, which
    no compression has touched; all take the mean of these at each of the first `first` steps and at every `every`-th
    step. `wire` is the type in which variances travel."""

    def __init__(self, *arguments, first: int = 8, every: int = 32, wire: torch.dtype = torch.bfloat16, **options):
        super().__init__(*arguments, **options)
        self.first = first
        self.every = every
        self.wire = wire
        self._own_variances = torch.zeros(self.ranks, len(self.momentum))
        self._sign = SignAverage(len(self.momentum), self.ranks, self.parameters.starts)

    def average(self, gradients: torch.Tensor) -> None:
        self.momentum = self._sign.average(self.momenta(gradients))
        self._own_variances.mul_(self.beta2).addcmul_(gradients, gradients, value=1 - self.beta2)
        if self.steps <= self.first or self.steps % self.every == 0:
            mean = self._own_variances.to(self.wire).float().mean(0)
            self.variance = self.unbiased(mean.to(self.wire).float())  # a mean is fp32, and is rounded once
