# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A run of the study: a model, trained by ranks that take turns in this process, and what it learned."""

import dataclasses
import math
import time

import torch
from torch.nn.functional import cross_entropy

from freeze_free.flat_optimizers import DenseAdamW, FlatAdam, LocalVariance, OnebitAdam, Parameters
from freeze_free.study_models import BETAS, MODELS, Text, flattened, rate_at, trained

# Defaults of the library for a variance that is frozen and for one that is not (varianceFloor of onebit/optim.h).
FROZEN_FLOOR, LIVE_FLOOR = 0.01, 0.1
DENSE, LOCAL, FLOORED, ONEBIT_ADAM = "dense", "lva", "lva-floor", "onebit-adam"


@dataclasses.dataclass(frozen=True)
class Run:
    """The settings that decide the result of a run. `batch` is in sequences per rank and step."""
    model: str
    method: str
    ranks: int
    batch: int
    seed: int
    rate: float
    steps: int

    def name(self) -> str:
        return (f"{self.model}-{self.method}-n{self.ranks}-b{self.batch}-seed{self.seed}-rate{self.rate:.6g}"
                f"-steps{self.steps}")


def optimizer_of(run: Run, parameters: Parameters) -> FlatAdam:
    if run.method == DENSE:
        return DenseAdamW(parameters, run.ranks, BETAS)
    if run.method == ONEBIT_ADAM:
        return OnebitAdam(parameters, run.ranks, BETAS, freeze_step=run.steps // 5, floor=FROZEN_FLOOR)
    return LocalVariance(parameters, run.ranks, BETAS, floor=LIVE_FLOOR if run.method == FLOORED else 0)


class NoiseWatch:
    """How much larger the root of the mean of local variances is than that of the variance of mean gradients."""

    def __init__(self, count: int):
        self._local = torch.zeros(count)
        self._shared = torch.zeros(count)

    def watch(self, gradients: torch.Tensor) -> None:
        self._local.mul_(BETAS[1]).add_(gradients.square().mean(0))
        self._shared.mul_(BETAS[1]).add_(gradients.mean(0).square())

    def median_ratio(self) -> float:
        seen = self._shared > 0
        return (self._local[seen] / self._shared[seen]).sqrt().median().item()


def train(run: Run, text: Text) -> dict:
    """Held-out loss in nats per byte (None if it is not finite), share of bytes guessed, and `diverged_at`, the step
    whose loss was not finite."""
    begin = time.process_time()
    torch.manual_seed(run.seed)
    model = MODELS[run.model](text.symbols)
    parameters = flattened(model)
    optimizer = optimizer_of(run, parameters)
    draw = torch.Generator().manual_seed(run.seed)
    gradients = torch.empty(run.ranks, len(parameters.values))
    noise = NoiseWatch(len(parameters.values))
    losses, diverged_at = [], None
    for step in range(run.steps):
        loss = 0.0
        for rank, (tokens, following) in enumerate(zip(*text.batches(run.ranks, run.batch, draw))):
            loss += _gradient(model, tokens, following, gradients[rank]) / run.ranks
        losses.append(loss)
        if not math.isfinite(loss):
            diverged_at = step
            break
        if run.method == DENSE:
            noise.watch(gradients)
        optimizer.step(gradients, rate_at(step, run.steps, run.rate))
    loss, accuracy = _evaluated(model, *text.held_out())
    return {**dataclasses.asdict(run), "parameters": len(parameters.values),
            "held_out_loss": loss if math.isfinite(loss) else None, "accuracy": accuracy, "diverged_at": diverged_at,
            "first_losses": losses[:10], "largest_loss": max(losses), "last_losses": losses[-10:],
            "noise_ratio": noise.median_ratio() if run.method == DENSE else None,
            "cpu_seconds": time.process_time() - begin}


def _gradient(model: torch.nn.Module, tokens: torch.Tensor, following: torch.Tensor, out: torch.Tensor) -> float:
    for parameter in trained(model):
        parameter.grad = None
    loss = cross_entropy(model(tokens).flatten(0, 1), following.flatten())
    loss.backward()
    torch.cat([parameter.grad.flatten() for parameter in trained(model)], out=out)
    return loss.item()


def _evaluated(model: torch.nn.Module, tokens: torch.Tensor, following: torch.Tensor) -> tuple:
    with torch.no_grad():
        outputs = model(tokens).flatten(0, 1)
    return (cross_entropy(outputs, following.flatten()).item(),
            (outputs.argmax(1) == following.flatten()).float().mean().item())
