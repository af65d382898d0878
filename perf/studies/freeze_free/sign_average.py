# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The library's average of one bit per element with error feedback, for ranks that are rows of one tensor:
codec 2 of src/codec/FORMAT.md, sections 2 and 6 to 8, up to the rounding of its sums."""

import math

import torch

BLOCK = 4096
CHUNK_ALIGNMENT = 64


def blocks_of(count: int, ranks: int, cuts: list) -> list:
    """The borders of blocks, which restart at the chunk of each rank and at each cut."""
    chunk = CHUNK_ALIGNMENT * math.ceil(count / (ranks * CHUNK_ALIGNMENT))
    runs = sorted({0, *cuts, *range(0, count, chunk), count})
    return [(begin, min(begin + BLOCK, end))
            for start, end in zip(runs, runs[1:]) for begin in range(start, end, BLOCK)]


class SignAverage:
    """Residuals of all workers and servers, for tensors whose parameters begin at `cuts`."""

    def __init__(self, count: int, ranks: int, cuts: list):
        self._blocks = blocks_of(count, ranks, cuts)
        self._worker = torch.zeros(ranks, count)
        self._server = torch.zeros(count)

    def average(self, rows: torch.Tensor) -> torch.Tensor:
        """The result on all ranks for the mean of `rows`, one of which each rank has. A single rank sends nothing and
        keeps its values."""
        if len(rows) == 1:
            return rows[0].clone()
        sent = self._compressed(self._worker.add_(rows))
        self._worker.sub_(sent)
        result = self._compressed(self._server.add_(sent.mean(0)))
        self._server.sub_(result)
        return result

    def _compressed(self, values: torch.Tensor) -> torch.Tensor:
        """Values whose sign is left, with the root mean square of their block."""
        result = torch.empty_like(values)
        for begin, end in self._blocks:
            part = values[..., begin:end]
            scale = torch.linalg.vector_norm(part, dim=-1, keepdim=True) / math.sqrt(end - begin)
            result[..., begin:end] = torch.where(part < 0, -scale, scale)
        return result
