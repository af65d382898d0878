# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A convnet with biased convolutions in front of BatchNorm, trained by ranks that are threads.

The gradient of such a bias is rounding noise, because BatchNorm takes out what the bias adds, so its
moments are many orders of magnitude smaller than those of its neighbours in the optimizer.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, NamedTuple, Tuple

import torch

import onebit
from onebit.torch.optim import OnebitAdam, OnebitLamb, ShardedOnebitAdam, ZeroOneAdam
from rank_threads_case import run_ranks

BATCH = 32  # images of a rank and step
RATE = 3e-3

Data = Tuple[torch.Tensor, torch.Tensor]


class Outcome(NamedTuple):
    """Held-out loss and accuracy, and the largest magnitude of a parameter."""

    loss: float
    accuracy: float
    largest: float


def model(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)

    def layer(inputs: int, outputs: int, stride: int = 1) -> Tuple[torch.nn.Module, ...]:
        return (
            torch.nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1),
            torch.nn.BatchNorm2d(outputs),
            torch.nn.ReLU(),
        )

    return torch.nn.Sequential(
        *layer(1, 16),
        *layer(16, 32, 2),
        *layer(32, 32, 2),
        torch.nn.Flatten(),
        torch.nn.Linear(128, 10),
    )


def generated_images(seed: int) -> Tuple[Data, Data]:
    """Ten classes of smooth patterns, shifted and noisy: 1,024 images to train on, 512 held out."""
    generator = torch.Generator().manual_seed(1000 + seed)
    patterns = torch.nn.functional.interpolate(
        torch.randn(10, 1, 4, 4, generator=generator), (8, 8), mode="bilinear"
    )

    def images(count: int) -> Data:
        labels = torch.randint(10, (count,), generator=generator)
        shifts = torch.randint(-1, 2, (count,), generator=generator).tolist()
        shifted = [torch.roll(patterns[k], s, 2) for k, s in zip(labels.tolist(), shifts)]
        noise = torch.randn(count, 1, 8, 8, generator=generator)
        return torch.stack(shifted) + 0.7 * noise, labels

    return images(1024), images(512)


def digits(seed: int) -> Tuple[Data, Data]:
    """The handwritten digits that scikit-learn ships (Debian: python3-sklearn)."""
    from sklearn.datasets import load_digits  # pylint: disable=import-outside-toplevel

    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    x = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8)[order] / 8 - 1
    y = torch.tensor(labels)[order]
    return (x[360:], y[360:]), (x[:360], y[:360])


def optimizers(steps: int) -> Dict[str, Callable[..., torch.optim.Optimizer]]:
    """By name: what makes one from parameters and a communicator, with the settings of
    docs/settings.md."""
    betas = (0.9, 0.95)
    return {
        "AdamW": lambda given, comm, **options: torch.optim.AdamW(given, RATE, betas),
        "OnebitAdam": lambda given, comm, **options: OnebitAdam(
            given, RATE, betas, communicator=comm, freeze_step=steps // 4, **options
        ),
        "ShardedOnebitAdam": lambda given, comm, **options: ShardedOnebitAdam(
            given, RATE, betas, communicator=comm, freeze_step=steps // 4, **options
        ),
        "ZeroOneAdam": lambda given, comm, **options: ZeroOneAdam(
            given,
            RATE,
            (0.9, 0.99),
            communicator=comm,
            rate_tied=True,
            lr_warmup_steps=steps // 10,
            var_freeze_step=steps // 5,
            **options,
        ),
        "OnebitLamb": lambda given, comm, **options: OnebitLamb(
            given,
            RATE,
            betas,
            communicator=comm,
            lr_warmup_steps=steps // 10,
            freeze_step=steps // 4,
            **options,
        ),
        "Lamb": lambda given, comm, **options: OnebitLamb(
            given, RATE, betas, communicator=comm, freeze_step="never", **options
        ),
    }


def train(
    name: str,
    ranks: int,
    seed: int,
    steps: int,
    data: Callable[[int], Tuple[Data, Data]],
    **options: Any,
) -> Outcome:
    """Trains on all ranks and returns what rank 0 reached. Ranks draw images of their own; running
    means of BatchNorm are those of rank 0."""
    (images, labels), held_out = data(seed)
    torch.set_num_threads(1)
    # Made one after the other, because threads share the generator of random numbers.
    nets = [model(seed) for _ in range(ranks)]

    def rate(step: int) -> float:
        return min(1.0, (step + 1) / (steps // 10)) * (0.5 + 0.5 * math.cos(math.pi * step / steps))

    def run(comm: onebit.Communicator) -> Outcome:
        net = nets[comm.rank]
        optimizer = optimizers(steps)[name](net.parameters(), comm, **options)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
        generator = torch.Generator().manual_seed(100 * seed + comm.rank)
        for _ in range(steps):
            chosen = torch.randint(len(labels), (BATCH,), generator=generator)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(images[chosen]), labels[chosen]).backward()
            if name == "AdamW":
                for parameter in net.parameters():
                    comm.all_reduce(parameter.grad, op="avg")
            optimizer.step()
            scheduler.step()
        if name == "ZeroOneAdam":
            optimizer.synchronize()
        net.eval()
        with torch.no_grad():
            output = net(held_out[0])
            loss = float(torch.nn.functional.cross_entropy(output, held_out[1]))
        accuracy = float((output.argmax(1) == held_out[1]).float().mean())
        return Outcome(loss, accuracy, max(float(p.abs().max()) for p in net.parameters()))

    return run_ranks(ranks, run)[0]
