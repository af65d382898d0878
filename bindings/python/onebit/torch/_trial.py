# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The iterations in which codec="auto" finds out if compression makes the training faster."""

from __future__ import annotations

import statistics
from typing import List, Optional

import torch

from .._communicator import Communicator
from ._hook_report import Trial

# Iterations of each kind that count. Single ones differ by what else the machine does.
_TURNS = 7
# The first turn of each kind does not count: it makes the compressors.
_UNCOUNTED = 1
# Compression costs a little of the loss, so it has to save more than the noise of the measurement.
_WORTH = 0.97


class Turns:
    """Iterations in full precision and compressed ones in turns, and how long they take: from their
    first bucket to that of the next, so that all that they wait for is in it."""

    def __init__(self) -> None:
        self._seconds: List[List[float]] = [[], []]  # by is_dense
        self._begin: Optional[float] = None
        self._is_dense = True

    @property
    def is_dense(self) -> bool:
        """The iteration that has begun is one in full precision."""
        return self._is_dense

    def begin(self, now: float) -> bool:
        """Begins an iteration at a time in seconds, and tells if all turns are over instead."""
        if self._begin is not None:
            self._seconds[self._is_dense].append(now - self._begin)
        self._begin = now
        self._is_dense = not self._is_dense
        return len(self._seconds[True]) == _UNCOUNTED + _TURNS

    def choose(self, communicator: Communicator) -> Trial:
        """The choice, the same on all ranks, from the average of their medians. Collective."""
        medians = torch.tensor([statistics.median(each[_UNCOUNTED:]) for each in self._seconds])
        communicator.all_reduce(medians, op="avg")
        compressed, dense = medians.tolist()
        return Trial(dense, compressed, compressed < _WORTH * dense)
