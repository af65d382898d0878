# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A small GPT of bytes whose attention is a parameter, so that an example can compute it on many ranks."""

import math
from typing import Callable, Optional, Tuple

import torch
from torch import nn

import onebit
from example_job import trained

CONTEXT, WIDTH, HEADS, LAYERS = 256, 128, 4, 2

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
Partial = Tuple[torch.Tensor, torch.Tensor]  # output [..., queries, heads, dim] and logs [..., queries, heads]


def partial_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rows: torch.Tensor,
                      columns: torch.Tensor) -> Partial:
    """Causal attention of queries at positions `rows` to keys at positions `columns`.

    Args:
        q: [..., rows, heads, dim].
        k, v: [..., columns, heads, dim].

    Returns:
        the output, [..., rows, heads, dim], and the log of the sum of exponentials, [..., rows, heads]: 0 and
        -inf for a query that precedes all keys.
    """
    scores = torch.einsum("...rhd,...chd->...rhc", q, k) / math.sqrt(q.shape[-1])
    future = columns[None, :] > rows[:, None]
    scores = scores.masked_fill(future[:, None, :], -math.inf)
    log_sum = scores.logsumexp(-1)
    weights = (scores - log_sum.clamp(min=torch.finfo(q.dtype).min)[..., None]).exp()
    return torch.einsum("...rhc,...chd->...rhd", weights, v), log_sum


def merged(one: Partial, other: Partial) -> Partial:
    """The attention of queries over the keys of both; each query must have seen a key in one of them."""
    logs = torch.logaddexp(one[1], other[1])
    outputs = [output * (log_sum - logs).exp()[..., None] for output, log_sum in (one, other)]
    return outputs[0] + outputs[1], logs


def dense_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal attention over a whole sequence, [..., tokens, heads, dim]."""
    positions = torch.arange(q.shape[-3])
    return partial_attention(q, k, v, positions, positions)[0]


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor, attend: Attend) -> torch.Tensor:
        qkv = self.qkv(self.norms[0](x))
        q, k, v = qkv.reshape(*x.shape[:-1], 3, HEADS, WIDTH // HEADS).unbind(-3)
        x = x + self.out(attend(q, k, v).flatten(-2))
        return x + self.mlp(self.norms[1](x))


class ByteGPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(256, WIDTH)
        self.position = nn.Parameter(0.02 * torch.randn(CONTEXT, WIDTH))
        self.blocks = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256)

    def forward(self, tokens: torch.Tensor, positions: Optional[torch.Tensor] = None,
                attend: Attend = dense_attention) -> torch.Tensor:
        """Logits [..., tokens, 256] of bytes [..., tokens] that stand at `positions`; None: from 0 on."""
        x = self.token(tokens) + self.position[torch.arange(tokens.shape[-1]) if positions is None else positions]
        for block in self.blocks:
            x = block(x, attend)
        return self.head(self.norm(x))


def trained_gpt(comm: onebit.Communicator, text: torch.Tensor) -> ByteGPT:
    """A model that has learned some of a text of bytes, equal on all ranks."""
    model = ByteGPT()

    def loss(generator: torch.Generator) -> torch.Tensor:
        starts = torch.randint(len(text) - CONTEXT, (2,), generator=generator)
        sequences = torch.stack([text[start : start + CONTEXT + 1] for start in starts])
        logits = model(sequences[:, :-1])
        return nn.functional.cross_entropy(logits.flatten(0, 1), sequences[:, 1:].flatten())

    trained(model, comm, loss)
    return model
