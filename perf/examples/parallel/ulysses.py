# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Ulysses attention in int8: onebit_run -n 4 python ulysses.py TEXT

Sequence parallelism of DeepSpeed-Ulysses (Jacobs et al., "System Optimizations for Enabling Training of Extreme
Long Sequence Transformer Models", 2023, section 3). Each of n ranks has a piece of a sequence and computes all of
the model on it, except attention: there each has some heads of the whole sequence. An all-to-all before attention
trades tokens for heads, [tokens/n, heads] for [tokens, heads/n] of queries, keys and values, and one behind it
trades back; the backward pass does the same with gradients.

Each message is in int8, with a scale for each token of queries, keys, values or outputs, that is for a row of
heads/n * dim numbers. A rank sends (n-1)/n of its 4 * tokens/n * width numbers a layer and pass, of 8.5 bits here
in place of 32.

Exchange, AllToAll and UlyssesAttention are what to copy. The rest runs a small GPT, trained for some steps on TEXT,
with them and without, and compares outputs and gradients.
"""

import math
from typing import Dict, Optional

import torch
from torch import nn
from torch.autograd.function import once_differentiable

import onebit
from byte_gpt import CONTEXT, LAYERS, WIDTH, Attend, dense_attention, trained_gpt
from example_job import HEADER_BYTES, Report, int8_bytes, int8_floor, main


class Exchange:
    """All-to-alls of tensors [ranks, rows, row], whose part j goes to rank j.

    Args:
        codec: for rows of a multiple of 32 elements, each with a scale of its own; None: full precision, of any
            length and type.
    """

    def __init__(self, comm: onebit.Communicator, codec: Optional[str] = "int8") -> None:
        self.comm = comm
        self._codec = codec
        self._compressors: Dict[torch.Size, onebit.Compressor] = {}

    def __call__(self, parts: torch.Tensor) -> torch.Tensor:
        given = parts.detach().contiguous()
        received = torch.empty_like(given)
        self.comm.all_to_all(given, received, compressor=self._compressor(given))
        return received

    def _compressor(self, parts: torch.Tensor) -> Optional[onebit.Compressor]:
        if self._codec is not None and parts.shape not in self._compressors:
            # Tokens of two calls have nothing in common, so there is no error to feed back: "plain".
            self._compressors[parts.shape] = onebit.Compressor(
                self.comm, parts[0].numel(), parts.dtype, codec=self._codec, mode="plain",
                collective="all_to_all", block=parts.shape[-1],
            )
        return self._compressors.get(parts.shape)


class AllToAll(torch.autograd.Function):
    """Part r of the result is part `rank` of what rank r gave, so gradients go back by an all-to-all, too."""

    @staticmethod
    def forward(ctx, parts: torch.Tensor, exchange: Exchange) -> torch.Tensor:
        ctx.exchange = exchange
        return exchange(parts)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: torch.Tensor):
        return ctx.exchange(gradient), None


class UlyssesAttention:
    """Attention over the sequence whose pieces the ranks have in their order, all of the same length.

    Args:
        attend: attention of some heads over the whole sequence: three tensors [tokens, heads/n, dim] to one.
    """

    def __init__(self, exchange: Exchange, attend: Attend) -> None:
        self._exchange = exchange
        self._attend = attend

    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """The output of this rank's tokens, of the shape of `q`, `k` and `v`: [tokens/n, heads, dim]."""
        ranks = self._exchange.comm.size
        tokens, heads, dim = q.shape
        if heads % ranks:
            raise ValueError(f"{heads} heads cannot be shared out evenly among {ranks} ranks")
        row = heads // ranks * dim
        qkv = torch.stack([q, k, v]).reshape(3 * tokens, ranks, row)
        received = AllToAll.apply(qkv.transpose(0, 1), self._exchange).view(ranks, 3, tokens, heads // ranks, dim)
        out = self._attend(*received.transpose(0, 1).flatten(1, 2))
        returned = AllToAll.apply(out.reshape(ranks, tokens, row), self._exchange)
        return returned.transpose(0, 1).reshape(tokens, heads, dim)


def passed(model: nn.Module, tokens: torch.Tensor, targets: torch.Tensor, attend: Attend, **options):
    """Results of a forward and backward pass over some tokens of the sequence: queries, keys and values of the
    first layer [3, tokens, heads, dim], the output of its attention, and the gradients of all blocks."""
    calls = []

    def recorded(*qkv: torch.Tensor) -> torch.Tensor:
        calls.append((torch.stack(qkv).detach(), attend(*qkv)))
        return calls[-1][1]

    logits = model(tokens, attend=recorded, **options)
    loss = nn.functional.cross_entropy(logits, targets, reduction="sum") / CONTEXT
    gradients = torch.autograd.grad(loss, list(model.blocks.parameters()))
    return (*calls[0], torch.cat([gradient.flatten() for gradient in gradients]))


def example(comm: onebit.Communicator, text: torch.Tensor, report: Report) -> None:
    model = trained_gpt(comm, text)
    inputs, targets = text[-CONTEXT - 1 : -1], text[-CONTEXT:]
    dense_qkv, dense_out, dense_gradients = passed(model, inputs, targets, dense_attention)
    tokens, row = CONTEXT // comm.size, WIDTH // comm.size
    own = torch.arange(comm.rank * tokens, (comm.rank + 1) * tokens)

    parts = dense_qkv[:, own].reshape(3 * tokens, comm.size, row).transpose(0, 1).contiguous()
    floor = int8_floor(parts.flatten(0, 1))
    report.compare("int8: queries, keys and values", Exchange(comm)(parts), Exchange(comm, None)(parts), floor)

    messages = 2 * LAYERS * (comm.size - 1)  # of either size
    dense = messages * (2 * HEADER_BYTES + 4 * 4 * tokens * row)
    int8 = messages * (int8_bytes(3 * tokens * row, row) + int8_bytes(tokens * row, row))
    # Rounding errors are independent: those of four tensors, for each layer and pass, add up to four times one's.
    floors = {None: (120, 100), "int8": (floor - 10 * math.log10(4), floor - 10 * math.log10(4 * 2 * LAYERS))}
    for codec, formula in ((None, dense), ("int8", int8)):
        what = codec or "full precision"
        attend = UlyssesAttention(Exchange(comm, codec), dense_attention)
        with report.sends(f"{what}: forward and backward", formula, dense):
            _, out, gradients = passed(model, inputs[own], targets[own], attend, positions=own)
        comm.all_reduce(gradients)  # each rank has those of its tokens' losses
        report.compare(f"{what}: first attention", out, dense_out[own], floors[codec][0])
        report.compare(f"{what}: gradients of the blocks", gradients, dense_gradients, floors[codec][1])


if __name__ == "__main__":
    main(example, __doc__, ranks=[2, 4])
