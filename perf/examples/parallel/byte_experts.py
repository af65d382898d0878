# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A small model of bytes with a mixture of experts."""

import math
from typing import Tuple

import torch
from torch import nn

import onebit
from example_job import trained

WIDTH, EXPERTS, CHOSEN, BYTES = 128, 8, 2, 8


class Experts(nn.Module):
    """A layer of experts, each a perceptron, and the router that chooses among them."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS)
        self.up = nn.Parameter(torch.randn(EXPERTS, WIDTH, 2 * WIDTH) / WIDTH**0.5)
        self.down = nn.Parameter(torch.randn(EXPERTS, 2 * WIDTH, WIDTH) / WIDTH**0.5)
        # The last experts are out of service: no token goes to them.
        self.register_buffer("offers", torch.arange(EXPERTS) < EXPERTS - EXPERTS // 4)

    def routed(self, x: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        """Weights and numbers of the experts of each token, [tokens, CHOSEN]."""
        scores = self.router(x).masked_fill(~self.offers, -math.inf)
        return scores.softmax(-1).topk(CHOSEN)

    def applied(self, rows: torch.Tensor, experts: torch.Tensor) -> torch.Tensor:
        """The output of expert experts[i] for row i, [rows, WIDTH]."""
        order = experts.argsort(stable=True)
        # The result depends on the rows even where there are none, so that all ranks take part in the backward pass.
        outputs = [rows[:0]]
        for expert in experts.unique().tolist():
            hidden = nn.functional.gelu(rows[experts == expert] @ self.up[expert])
            outputs.append(hidden @ self.down[expert])
        return torch.cat(outputs)[order.argsort()]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The layer where all experts are, [tokens, WIDTH] to the same: all compute all tokens, and weights choose."""
        weights, chosen = self.routed(x)
        outputs = [nn.functional.gelu(x @ up) @ down for up, down in zip(self.up, self.down)]
        weights = torch.zeros(len(x), EXPERTS, dtype=x.dtype).scatter(1, chosen, weights)
        return (torch.stack(outputs, 1) * weights[..., None]).sum(1)


class ExpertModel(nn.Module):
    """Predicts a byte from the BYTES before it."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(256, WIDTH // BYTES)
        self.experts = Experts()
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256)

    def embedded(self, before: torch.Tensor) -> torch.Tensor:
        """The input of the layer of experts, [tokens, WIDTH], for bytes [tokens, BYTES]."""
        return self.token(before).flatten(1)

    def loss(self, x: torch.Tensor, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The sum of losses in nats, with outputs of the layer for its inputs `x`."""
        return nn.functional.cross_entropy(self.head(self.norm(x + outputs)), targets, reduction="sum")


def trained_experts(comm: onebit.Communicator, text: torch.Tensor) -> ExpertModel:
    """A model that has learned some of a text of bytes, equal on all ranks."""
    model = ExpertModel()
    windows = text.unfold(0, BYTES + 1, 1)

    def loss(generator: torch.Generator) -> torch.Tensor:
        batch = windows[torch.randint(len(windows), (256,), generator=generator)]
        x = model.embedded(batch[:, :BYTES])
        return model.loss(x, model.experts(x), batch[:, BYTES]) / len(batch)

    trained(model, comm, loss)
    return model
