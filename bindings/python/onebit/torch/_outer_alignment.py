# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""How ranks of an outer optimizer come to the same state, when they begin, and after one was lost or has
joined: then some have applied an average that others have not, or are some inner steps behind."""

from __future__ import annotations

import dataclasses
from typing import List, Optional, Sequence

import torch

from .._communicator import Communicator
from ._fragment import Flight, Fragment


@dataclasses.dataclass(frozen=True)
class _Progress:
    """How far a rank has come with a fragment."""

    rounds: int
    skipped: int
    submitted: int
    is_in_flight: int
    has_arrived: int

    @staticmethod
    def of(fragment: Fragment) -> _Progress:
        flight = fragment.flight
        return _Progress(
            fragment.rounds,
            fragment.skipped,
            fragment.submitted,
            int(flight is not None),
            int(flight is not None and flight.has_arrived),
        )


def align(communicator: Communicator, fragments: Sequence[Fragment], step: int) -> int:
    """Brings all ranks to the state of those that are furthest. Collective.

    Every rank then has the same global values, momenta, step, and averages in flight. Those that no rank
    has received are left to be submitted again: a rank that was not so far submits what it has done by
    now. If this fails, each fragment of a rank is as before or as after it.

    Returns:
        The inner step that ranks have made, or count as made.
    """
    width = len(dataclasses.fields(_Progress))
    own = [step]
    for fragment in fragments:
        own += dataclasses.astuple(_Progress.of(fragment))
    table = torch.zeros(communicator.size, len(own), dtype=torch.int64)
    table[communicator.rank] = torch.tensor(own)
    communicator.all_gather(table.view(-1))
    for number, fragment in enumerate(fragments):
        columns = table[:, 1 + width * number : 1 + width * (number + 1)]
        _align_fragment(communicator, fragment, [_Progress(*row) for row in columns.tolist()])
    return int(table[:, 0].max())


def _align_fragment(communicator: Communicator, fragment: Fragment, ranks: List[_Progress]) -> None:
    furthest = max(each.rounds for each in ranks)
    source = next(rank for rank, each in enumerate(ranks) if each.rounds == furthest)
    if any(each.rounds < max(furthest, 0) for each in ranks):
        values = _received(communicator, fragment.values, source)
        momentum = fragment.momentum
        if momentum is not None and furthest > 0:  # otherwise it is zero
            momentum = _received(communicator, momentum, source)
        _follow(fragment, values, momentum, furthest)
        fragment.skipped = ranks[source].skipped
    submitted = max(each.submitted for each in ranks)
    flying = [
        rank
        for rank, each in enumerate(ranks)
        if each.is_in_flight and each.rounds == furthest and each.submitted == submitted
    ]
    if flying:
        flight = fragment.flight if communicator.rank in flying else None
        flight = fragment.begin(submitted) if flight is None else flight
        arrived: Optional[int] = next((rank for rank in flying if ranks[rank].has_arrived), None)
        if arrived is not None:
            flight.average = _received(communicator, flight.average, arrived)
            flight.has_arrived = True
        else:
            flight.average = fragment.pseudo_gradient(flight.snapshot)
    else:
        fragment.flight = None
    fragment.submitted = submitted


def _follow(
    fragment: Fragment, values: torch.Tensor, momentum: Optional[torch.Tensor], furthest: int
) -> None:
    """Takes over global values, unless this rank has them."""
    if fragment.rounds == furthest and furthest >= 0:
        return
    is_new = fragment.rounds < 0
    flight: Optional[Flight] = fragment.flight
    fragment.values, fragment.momentum = values, momentum
    fragment.rounds, fragment.flight = max(furthest, 0), None
    if is_new:
        fragment.write(values)
    else:
        fragment.merge(fragment.current() if flight is None else flight.snapshot)


def _received(communicator: Communicator, tensor: torch.Tensor, source: int) -> torch.Tensor:
    """A copy of the tensor that a rank has."""
    copy = tensor.clone()
    stream = torch.cuda.current_stream(tensor.device) if tensor.is_cuda else None
    communicator.broadcast(copy, source, stream=stream)
    return copy
