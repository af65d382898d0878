# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Ring attention in int8, by sends and receives: onebit_run -n 4 python ring_attention.py TEXT

Each of n ranks has a piece of a sequence, and all heads. A block is what the queries of one piece get from the keys
of another: an output and, for each query and head, the log of its sum of exponentials, by which blocks are merged.

token_ring (Wang et al., "TokenRing: An Efficient Parallelism Framework for Infinite-Context LLMs via Bidirectional
Communication", 2024, section 3): keys and values stay. Queries go round the ring in one direction, while the blocks
of the step before go back, in the other direction, to the rank whose queries they answer. A piece is one from the
front of the sequence and one from its end, so that all ranks have as much to compute ("zigzag").

light_seq (Li et al., "LightSeq: Sequence Level Parallelism for Distributed Training of Long Context Transformers",
2023, section 3): keys and values of earlier pieces come to the rank that has the queries. The first ranks have few of
them before theirs, so they compute blocks for the last ranks, whose queries they get and to whom they return blocks:
1 + n/2 steps in place of n.

Queries, keys, values and outputs are sent in int8 with a scale for each token and head, 8.5 bits a number here; logs in
full precision, 4 bytes for each token and head, in the same group. Messages of a step are sent together.
"""

import math
from typing import Callable, List, Optional, Tuple

import torch

import onebit
from byte_gpt import CONTEXT, HEADS, WIDTH, Partial, dense_attention, merged, partial_attention, trained_gpt
from example_job import HEADER_BYTES, Report, int8_bytes, int8_floor, main
from rank_links import Links

Attend = Callable[..., Partial]
KINDS = ("queries", "keys and values", "output")


def send_block(links: Links, block: Partial, peer: int) -> None:
    links.send("output", block[0], peer)
    links.comm.send(block[1].contiguous(), peer)


def recv_block(links: Links, like: Partial, peer: int) -> Partial:
    output, logs = links.recv("output", like[0], peer), torch.empty(like[1].shape)
    links.comm.recv(logs, peer)
    return output, logs


def token_ring(links: Links, places: List[torch.Tensor], attend: Attend, q: torch.Tensor, k: torch.Tensor,
               v: torch.Tensor) -> torch.Tensor:
    """The output of this rank's tokens, [tokens, heads, dim] as `q`, `k` and `v`. `places` has the positions of
    each rank's tokens in the sequence; `attend` computes a block, as partial_attention does."""
    rank, ranks = links.comm.rank, links.comm.size
    own = block = attend(q, k, v, places[rank], places[rank])
    for step in range(1, ranks + 1):
        with onebit.group():
            if step < ranks:
                links.send("queries", q, (rank + 1) % ranks)
                arriving = links.recv("queries", q, (rank - 1) % ranks)
            if step > 1:
                send_block(links, block, (rank - step + 1) % ranks)
                answer = recv_block(links, own, (rank + step - 1) % ranks)
        if step > 1:
            own = merged(own, answer)
        if step < ranks:
            q = arriving  # encoded again, it stays as it is: its largest code is 127, so its scale is the same
            block = attend(q, k, v, places[(rank - step) % ranks], places[rank])
    return own[0]


def light_seq(links: Links, places: List[torch.Tensor], attend: Attend, q: torch.Tensor, k: torch.Tensor,
              v: torch.Tensor) -> torch.Tensor:
    """The same, where pieces have the order of the ranks."""
    rank, ranks = links.comm.rank, links.comm.size
    own = attend(q, k, v, places[rank], places[rank])
    kv = torch.stack([k, v])
    for step in range(1, ranks // 2 + 1):
        # Half-way round, ranks would help with what those they help compute themselves.
        has_help = 2 * step != ranks
        helper, helped = rank + step - ranks, rank - step + ranks
        is_helped, helps = has_help and helper >= 0, has_help and rank < step
        with onebit.group():
            if rank + step < ranks:
                links.send("keys and values", kv, rank + step)
            if is_helped:
                links.send("queries", q, helper)
            if rank >= step:
                arriving = links.recv("keys and values", kv, rank - step)
            elif helps:
                arriving = links.recv("queries", q, helped)
        if rank >= step:
            own = merged(own, attend(q, *arriving, places[rank], places[rank - step]))
        with onebit.group():
            if helps:
                block = attend(arriving, k, v, places[helped], places[rank])
                send_block(links, block, helped)
            if is_helped:
                answer = recv_block(links, own, helper)
        if is_helped:
            own = merged(own, answer)
    return own[0]


def example(comm: onebit.Communicator, text: torch.Tensor, report: Report) -> None:
    model = trained_gpt(comm, text)
    recorded = []  # what the attention of each layer gets
    with torch.no_grad():
        model(text[-CONTEXT:], attend=lambda *qkv: recorded.append(qkv) or dense_attention(*qkv))
    dense_out = dense_attention(*recorded[0])
    rank, ranks, tokens, row = comm.rank, comm.size, CONTEXT // comm.size, WIDTH // HEADS
    in_order, halves = (torch.arange(CONTEXT).split(length) for length in (tokens, tokens // 2))
    zigzag = [torch.cat([halves[r], halves[2 * ranks - 1 - r]]) for r in range(ranks)]
    helpers = (ranks - 1) // 2
    is_helped, helps = max(0, rank - ranks + 1 + helpers), max(0, helpers - rank)
    # How many messages of queries, of keys and values, and of outputs a rank sends, how many blocks the busiest rank
    # computes, and how many tensors bring rounding errors, which are independent.
    cases = [
        (token_ring, zigzag, (ranks - 1, 0, ranks - 1), ranks, 2),
        (light_seq, in_order, (is_helped, min(ranks // 2, ranks - 1 - rank), helps), 1 + ranks // 2, 4),
    ]
    for algorithm, places, messages, most_blocks, noises in cases:
        qkv = [tensor[places[rank]] for tensor in recorded[0]]
        floor = int8_floor(torch.stack(qkv).reshape(-1, row)) - 10 * math.log10(noises)
        for codec, least in ((None, 100), ("int8", floor)):
            blocks = []

            def attend(*arguments: torch.Tensor) -> Partial:
                blocks.append(partial_attention(*arguments))
                return blocks[-1]

            what = f"{algorithm.__name__}, {codec or 'full precision'}"
            with report.sends(what, bytes_of(codec, messages, tokens), bytes_of(None, messages, tokens)):
                out = algorithm(Links(comm, KINDS, codec, "plain", row), places, attend, *qkv)
            report.compare(f"{what}: output", out, dense_out[places[rank]], least)
        count = torch.tensor([len(blocks)])
        comm.all_reduce(count, op="max")
        report.check(f"{algorithm.__name__}: blocks of the busiest rank: {count.item()}", count.item() == most_blocks)


def bytes_of(codec: Optional[str], messages: Tuple[int, int, int], tokens: int) -> int:
    """Bytes of some messages of queries, of keys and values, and of outputs with their logs."""

    def size(count: int) -> int:
        return HEADER_BYTES + 4 * count if codec is None else int8_bytes(count, WIDTH // HEADS)

    queries, keys, outputs = messages
    one, logs = tokens * WIDTH, HEADER_BYTES + 4 * tokens * HEADS
    return queries * size(one) + keys * size(2 * one) + outputs * (size(one) + logs)


if __name__ == "__main__":
    main(example, __doc__, ranks=[2, 4, 8])
