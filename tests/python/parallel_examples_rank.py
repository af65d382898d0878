# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A rank that checks what functions of perf/examples/parallel claim, gradients in float64 without a codec:
parallel_examples_rank.py EXAMPLES. Prints the names of the checks that have passed."""

import sys

import torch

import onebit

sys.path.insert(0, sys.argv[1])
import byte_experts  # pylint: disable=wrong-import-position
import byte_gpt  # pylint: disable=wrong-import-position
import moe  # pylint: disable=wrong-import-position
import rank_links  # pylint: disable=wrong-import-position
import ulysses  # pylint: disable=wrong-import-position


class Own(torch.autograd.Function):
    """The part of a tensor that all ranks have which is this rank's; gradients of all parts are gathered."""

    @staticmethod
    def forward(ctx, whole, place, comm):
        ctx.comm, ctx.place, ctx.shape = comm, place, whole.shape
        return whole[place].clone()

    @staticmethod
    def backward(ctx, gradient):
        return summed(ctx.comm, gradient, ctx.place, ctx.shape), None, None


class Gathered(torch.autograd.Function):
    """All ranks' parts; every rank has the same gradient of the whole."""

    @staticmethod
    def forward(ctx, part, place, shape, comm):
        ctx.place = place
        return summed(comm, part, place, shape)

    @staticmethod
    def backward(ctx, gradient):
        return gradient[ctx.place], None, None, None


def summed(comm, part, place, shape):
    whole = torch.zeros(shape, dtype=part.dtype)
    whole[place] += part
    comm.all_reduce(whole)
    return whole


def checks_ulysses(comm):
    """All ranks move the same elements of the whole sequence, so that they make the same calls."""
    tokens, heads, dim = 2 * comm.size, comm.size, 3
    attention = ulysses.UlyssesAttention(ulysses.Exchange(comm, None), byte_gpt.dense_attention)
    own = slice(2 * comm.rank, 2 * comm.rank + 2)

    def attend(*qkv):
        out = attention(*(Own.apply(tensor, own, comm) for tensor in qkv))
        return Gathered.apply(out, own, (tokens, heads, dim), comm)

    qkv = [torch.randn(tokens, heads, dim, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    torch.testing.assert_close(attend(*qkv), byte_gpt.dense_attention(*qkv))
    return torch.autograd.gradcheck(attend, qkv)


def checks_moe(comm):
    """Rank 1 has no tokens, and the last rank's experts get none."""
    lengths = [3, 0, 5, 4]
    experts = byte_experts.Experts().double()
    width = byte_experts.WIDTH
    rows = moe.Rows(comm, width, None)
    layer = moe.ExpertParallel(comm, experts, rows, rows)
    start = sum(lengths[: comm.rank])
    own = slice(start, start + lengths[comm.rank])
    up = experts.up.detach().clone().requires_grad_()
    del experts.up  # so that it can be a tensor whose gradient is that of all ranks

    def outputs(x, up):
        experts.up = Own.apply(up, slice(None), comm)
        part = layer(Own.apply(x, own, comm))
        # Ranks whose experts get no row have a gradient of them, too, and so take part in its sum.
        return Gathered.apply(part + 0 * experts.up.sum(), own, x.shape, comm)

    x = torch.randn(sum(lengths), width, dtype=torch.float64, requires_grad=True)
    found = outputs(x, up)
    experts.up = up
    torch.testing.assert_close(found, experts(x))
    return torch.autograd.gradcheck(outputs, (x, up), fast_mode=True)


def checks_rows_passed_on(comm):
    """Rows that have been through int8 once stay as they are, bit for bit."""
    ring = rank_links.Links(comm, ["rows"], "int8", "plain", 32)

    def moved(rows):
        with onebit.group():
            ring.send("rows", rows, (comm.rank + 1) % comm.size)
            received = ring.recv("rows", rows, (comm.rank - 1) % comm.size)
        return received

    first = moved(torch.randn(4096, 32) * torch.logspace(-30, 30, 4096)[:, None])
    rows = first
    for _ in range(comm.size):
        rows = moved(rows)
    return torch.equal(rows, first)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(7)
    with onebit.init() as comm:
        for check in (checks_ulysses, checks_moe, checks_rows_passed_on):
            assert check(comm), check.__name__
            print(check.__name__, flush=True)


if __name__ == "__main__":
    main()
