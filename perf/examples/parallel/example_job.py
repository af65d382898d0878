# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The common part of the examples of this folder: a job of ranks that train a small model on a text, and a report
that compares what an example computed and sent with a dense computation and with a formula.

    onebit_run -n 4 python EXAMPLE.py TEXT

TEXT is any text file of 16 KiB or more, such as src/codec/FORMAT.md.
"""

import contextlib
import math
import pathlib
import sys
from typing import Callable, Iterator, Optional, Sequence

import torch
from torch import nn

import onebit

LEAST_BYTES = 16384  # of a text
HEADER_BYTES = 64  # of every message (src/codec/FORMAT.md, section 3)


def int8_bytes(count: int, row: int) -> int:
    """Bytes of a message of `count` elements in int8 with a bf16 scale for each `row` of them (FORMAT.md,
    section 15)."""
    return HEADER_BYTES + 16 * math.ceil(2 * math.ceil(count / row) / 16) + count


def int8_floor(rows: torch.Tensor) -> float:
    """The least SNR in dB of `rows` [rows, elements] in int8: an error is at most half of a step, and a step
    max |row| / 127, rounded to the 8 bits of a bf16 scale."""
    steps = rows.abs().amax(1) * (1 + 2**-8) / 127
    return 10 * math.log10(rows.square().sum() / (steps / 2).square().sum() / rows.shape[1])


class Report:
    """Prints what is compared, and remembers what is off. All ranks make the same calls."""

    def __init__(self, comm: onebit.Communicator):
        self._comm = comm
        self._failures = 0

    def compare(
        self, what: str, found: Optional[torch.Tensor], dense: Optional[torch.Tensor], floor: float
    ) -> None:
        """Compares `found` with `dense`, over all ranks that have something: the SNR, 10 log10(sum dense^2 / sum
        (found - dense)^2), must reach the least `floor` of any rank, in dB."""
        error = values = torch.zeros(1, dtype=torch.float64)
        if found is not None:
            assert found.shape == dense.shape, f"{what}: {found.shape} cannot be compared with {dense.shape}"
            values = dense.detach().double()
            error = found.detach().double() - values
        sums = torch.stack([values.square().sum(), error.square().sum()])
        largest = torch.cat([error.abs().flatten(), torch.zeros(1, dtype=torch.float64)]).max().reshape(1)
        least = torch.tensor([floor], dtype=torch.float64)
        self._comm.all_reduce(sums)
        self._comm.all_reduce(largest, op="max")
        self._comm.all_reduce(least, op="min")
        signal, noise = sums.tolist()
        snr = math.inf if noise == 0 < signal else 10 * math.log10(signal / noise) if signal > 0 else -math.inf
        self._note(
            f"{what}: SNR {snr:.1f} dB (at least {least.item():.1f}), largest error {largest.item():.2g}",
            snr >= least.item(),
        )

    @contextlib.contextmanager
    def sends(self, what: str, formula: int, dense: int) -> Iterator[None]:
        """Counts the bytes that the calls of a block `with` send. Each rank must send what its `formula` says; `dense`
        is what it sends in full precision."""
        before = self._comm.stats().bytes_sent
        yield
        counts = torch.tensor([self._comm.stats().bytes_sent - before, formula, dense])
        is_right = torch.tensor([int(counts[0] == counts[1])])
        self._comm.all_reduce(counts)
        self._comm.all_reduce(is_right, op="min")
        sent, by_formula, full = counts.tolist()
        self._note(
            f"{what}: {sent} bytes, by the formula {by_formula}, dense {full} ({full / max(sent, 1):.2f}x)",
            bool(is_right),
        )

    def check(self, what: str, is_right: bool) -> None:
        """Notes a claim, equal on all ranks, that must be true."""
        self._note(what, is_right)

    def _note(self, line: str, is_right: bool) -> None:
        self._failures += not is_right
        if self._comm.rank == 0:
            print(line if is_right else f"{line}  <-- OFF", flush=True)

    def end(self) -> None:
        """Ends the program with status 1 if anything was off."""
        if self._failures:
            sys.exit(f"rank {self._comm.rank}: {self._failures} results are off")


def trained(model: nn.Module, comm: onebit.Communicator, loss: Callable[[torch.Generator], torch.Tensor],
            steps: int = 20) -> None:
    """Trains `model` by `steps` of AdamW on rank 0, whose parameters all ranks get. `loss` draws its batches by the
    generator that it is given."""
    if comm.rank == 0:
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        generator = torch.Generator().manual_seed(0)
        for _ in range(steps):
            optimizer.zero_grad()
            loss(generator).backward()
            optimizer.step()
        optimizer.zero_grad()
    for parameter in model.parameters():
        comm.broadcast(parameter.data)


def main(
    example: Callable[[onebit.Communicator, torch.Tensor, Report], None], doc: Optional[str], ranks: Sequence[int]
) -> None:
    """Runs an example on this rank, with the bytes of the text that the command line names; `ranks` are the numbers
    of ranks that it can have."""
    if len(sys.argv) != 2:
        sys.exit(doc)
    try:
        content = pathlib.Path(sys.argv[1]).read_bytes()
    except OSError as error:
        sys.exit(str(error))
    if len(content) < LEAST_BYTES:
        sys.exit(f"{sys.argv[1]} has {len(content)} bytes: give a text of at least {LEAST_BYTES}")
    text = torch.frombuffer(bytearray(content), dtype=torch.uint8).long()
    torch.set_num_threads(1)  # ranks share the cores
    torch.manual_seed(1)  # all ranks begin with the same parameters
    with onebit.init() as comm:
        if comm.size not in ranks:
            sys.exit(f"there are {comm.size} ranks: start {' or '.join(map(str, ranks))} of them")
        report = Report(comm)
        example(comm, text, report)
        report.end()
