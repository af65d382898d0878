# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Dispatch and combine of a mixture of experts: onebit_run -n 4 python moe.py TEXT

Expert parallelism (Lepikhin et al., "GShard", 2021, section 2.2), with messages as in DeepSeek-V3 (2024, section
3.3.3): each of n ranks has some experts. A token goes to the 2 experts that its router chooses, wherever they are
(dispatch), and their outputs come back, to be added up with the router's weights (combine). How many tokens a rank
sends to each other one depends on the data: here one rank has no tokens, and the experts of another get none.

What goes to experts is sent in int8 with a scale for each token, 8.1 bits a number here: tokens in the forward pass,
gradients of the experts' outputs in the backward pass. What comes back and is added up is sent in bf16: outputs, and
gradients of tokens. Counts, 8 bytes for each rank and expert, are sent first.

Rows, MoveRows and ExpertParallel are what to copy. The rest compares them with a layer in which every rank has all
experts, in a small model that was trained for some steps on TEXT.
"""

import math
from typing import List, Optional, Tuple

import torch
from torch.autograd.function import once_differentiable

import onebit
from byte_experts import BYTES, CHOSEN, EXPERTS, WIDTH, ExpertModel, Experts, trained_experts
from example_job import HEADER_BYTES, Report, int8_bytes, int8_floor, main


class Rows:
    """All-to-alls of tokens, [rows, width], of which each rank gets some: those for rank 0 first.

    Args:
        codec: "int8" has a scale for each row, "bf16" none; None: full precision, of any type.
    """

    def __init__(self, comm: onebit.Communicator, width: int, codec: Optional[str]) -> None:
        self._comm, self._width, self._compressor = comm, width, None
        if codec is not None:
            self._compressor = onebit.Compressor(
                comm, 0, codec=codec, mode="plain", collective="all_to_allv", block=width if codec == "int8" else None
            )

    def __call__(self, rows: torch.Tensor, sent: List[int], received: List[int]) -> torch.Tensor:
        """Sends sent[r] rows to rank r, for every r, and returns the received[r] rows that come from each."""
        given = rows.detach().contiguous()
        result = given.new_empty(sum(received), self._width)
        counts = ([rows * self._width for rows in ranks] for ranks in (sent, received))
        self._comm.all_to_all_v(given, next(counts), result, next(counts), compressor=self._compressor)
        return result


class MoveRows(torch.autograd.Function):
    """Sends rows by `there`, and their gradients back by `back`."""

    @staticmethod
    def forward(ctx, rows: torch.Tensor, sent: List[int], received: List[int], there: Rows, back: Rows):
        ctx.counts, ctx.back = (received, sent), back
        return there(rows, sent, received)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: torch.Tensor):
        return ctx.back(gradient, *ctx.counts), None, None, None, None


class ExpertParallel:
    """A layer of experts of which each rank uses its share only: the first ones on rank 0. All ranks must make its
    forward and backward passes, also those without tokens."""

    def __init__(self, comm: onebit.Communicator, experts: Experts, to_experts: Rows, from_experts: Rows) -> None:
        if EXPERTS % comm.size:
            raise ValueError(f"{EXPERTS} experts cannot be shared out evenly among {comm.size} ranks")
        self._comm, self._experts = comm, experts
        self._ways = (to_experts, from_experts)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The outputs of this rank's tokens [tokens, WIDTH], of which it may have none."""
        ranks = self._comm.size
        weights, chosen = self._experts.routed(x)
        order = chosen.flatten().argsort(stable=True)  # by expert, and so by rank
        counts = torch.bincount(chosen.flatten(), minlength=EXPERTS).view(ranks, -1)
        arriving = torch.empty_like(counts)
        self._comm.all_to_all(counts, arriving)
        sent, received = counts.sum(1).tolist(), arriving.sum(1).tolist()
        to_experts, from_experts = self._ways
        rows = MoveRows.apply(x[order // CHOSEN], sent, received, to_experts, from_experts)
        first = self._comm.rank * EXPERTS // ranks
        own = torch.arange(first, first + EXPERTS // ranks).repeat(ranks)
        outputs = self._experts.applied(rows, own.repeat_interleave(arriving.flatten()))
        returned = MoveRows.apply(outputs, received, sent, from_experts, to_experts)
        slots = returned[order.argsort()].view(-1, CHOSEN, WIDTH)
        return (slots * weights[..., None]).sum(1)


def passed(model: ExpertModel, layer, x: torch.Tensor, targets: torch.Tensor):
    """The layer's outputs, and gradients of the sum of losses: of its inputs `x`, and of its parameters."""
    x = x.detach().requires_grad_()
    outputs = layer(x)
    parameters = list(model.experts.parameters())
    gradients = torch.autograd.grad(model.loss(x, outputs, targets), [x, *parameters], allow_unused=True)
    of_parameters = [torch.zeros_like(p) if g is None else g for g, p in zip(gradients[1:], parameters)]
    return outputs, gradients[0], torch.cat([gradient.flatten() for gradient in of_parameters])


def example(comm: onebit.Communicator, text: torch.Tensor, report: Report) -> None:
    model = trained_experts(comm, text)
    rank, ranks = comm.rank, comm.size
    lengths = [0 if r == 1 else 64 + 32 * r for r in range(ranks)]
    windows = text[-sum(lengths) - BYTES :].unfold(0, BYTES + 1, 1)
    x, targets = model.embedded(windows[:, :BYTES]).detach(), windows[:, BYTES]
    dense_outputs, dense_x, dense_parameters = passed(model, model.experts, x, targets)
    chosen = model.experts.routed(x)[1].split(lengths)
    rows = torch.stack([torch.bincount(c.flatten() * ranks // EXPERTS, minlength=ranks) for c in chosen])
    is_ragged = not rows[1].any() and not rows[:, -1].any()
    report.check(f"rows from each rank to each: {rows.tolist()}", is_ragged)

    sent, received = (
        [number for peer, number in enumerate(numbers.tolist()) if peer != rank]
        for numbers in (rows[rank], rows[:, rank])
    )
    counts = (ranks - 1) * (HEADER_BYTES + 8 * EXPERTS // ranks)
    dense = counts + 2 * sum(HEADER_BYTES + 4 * WIDTH * number for number in sent + received)
    few = counts + 2 * sum(int8_bytes(WIDTH * number, WIDTH) for number in sent)
    few += 2 * sum(HEADER_BYTES + 2 * WIDTH * number for number in received)
    # Rounding errors of messages are independent: two tensors reach an output, and four a gradient.
    floor = int8_floor(x)
    least = (floor - 10 * math.log10(2), floor - 10 * math.log10(4))
    own = slice(sum(lengths[:rank]), sum(lengths[: rank + 1]))
    cases = (("full precision", None, None, dense, (120, 100)), ("int8 and bf16", "int8", "bf16", few, least))
    for what, to_experts, from_experts, formula, (of_outputs, of_gradients) in cases:
        layer = ExpertParallel(comm, model.experts, Rows(comm, WIDTH, to_experts), Rows(comm, WIDTH, from_experts))
        with report.sends(f"{what}: forward and backward", formula, dense):
            outputs, of_x, of_parameters = passed(model, layer, x[own], targets[own])
        comm.all_reduce(of_parameters)  # each rank has those of its experts, and the router's for its tokens
        report.compare(f"{what}: outputs", outputs, dense_outputs[own], of_outputs)
        report.compare(f"{what}: gradients of tokens", of_x, dense_x[own], of_gradients)
        report.compare(f"{what}: gradients of parameters", of_parameters, dense_parameters, of_gradients)


if __name__ == "__main__":
    main(example, __doc__, ranks=[4])
