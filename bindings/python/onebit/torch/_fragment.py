# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Parameters that an outer optimizer averages together: their global values, and an average on its way."""

from __future__ import annotations

import dataclasses
from typing import Any, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import torch
from torch._C._distributed_c10d import Work

from .._compressor import Compressor
from .._errors import InvalidArgument
from .._native import StateKind
from ._memory_order import flat, in_memory, memory_order

REBASE = "rebase"


@dataclasses.dataclass(frozen=True)
class OuterRule:
    """How an average changes global values, and these the parameters of a rank.

    Attributes:
        merge: share of its own parameters that a rank keeps; "rebase": it adds to the global values what
            it has done since the average was submitted.
    """

    learning_rate: float
    momentum: float
    nesterov: bool
    merge: Union[float, str]


#: Running statistics become their average.
STATISTICS = OuterRule(1.0, 0.0, False, 0.0)


@dataclasses.dataclass
class Flight:
    """An average that was submitted, and has not been applied yet.

    Attributes:
        step: the inner step after which it was submitted.
        snapshot: the parameters then. A call that has failed begins again from them.
        average: the pseudo-gradient, which the call replaces by its average.
        has_arrived: the average is there.
    """

    step: int
    snapshot: torch.Tensor
    average: torch.Tensor
    work: Optional[Work] = None
    has_arrived: bool = False


class Fragment:
    """Some parameters of the model, in order, as one array of float32.

    Attributes:
        names: those of the parameters.
        values: the global parameters, the same bytes on all ranks.
        momentum: that of the outer steps; None without one.
        compressor: that of its averages; None in full precision.
        rounds: averages that were applied or skipped; -1 until ranks have agreed on the first values.
        skipped: those that were not finite.
        submitted: the inner step of the last average.
        flight: the average on its way; None if there is none.
    """

    def __init__(self, named: Sequence[Tuple[str, torch.Tensor]], rule: OuterRule) -> None:
        self.names = [name for name, _ in named]
        self.rule = rule
        self._tensors = [tensor for _, tensor in named]
        self.values = self.current()
        self.momentum = torch.zeros_like(self.values) if rule.momentum > 0 else None
        self.compressor: Optional[Compressor] = None
        self.rounds = -1
        self.skipped = self.submitted = 0
        self.flight: Optional[Flight] = None

    @property
    def cuts(self) -> List[int]:
        """The elements at which a parameter begins, but for the first."""
        ends = [end for _, _, end in self._pieces() if end > 0]
        return sorted({end for end in ends if end < len(self.values)})

    @property
    def described(self) -> List[str]:
        """Names, shapes and order in memory of its parameters, for comparisons."""
        return [
            f"'{name}' of shape {tuple(tensor.shape)}{in_memory(memory_order(tensor))}"
            for name, tensor in zip(self.names, self._tensors)
        ]

    def current(self) -> torch.Tensor:
        """A copy of this rank's parameters."""
        return torch.cat([each.to(torch.float32) for each, _, _ in self._pieces()])

    def begin(self, step: int) -> Flight:
        """An average of what this rank has done since the last one, to be submitted."""
        snapshot = self.current()
        self.submitted = step
        self.flight = Flight(step, snapshot, self.pseudo_gradient(snapshot))
        return self.flight

    def pseudo_gradient(self, snapshot: torch.Tensor) -> torch.Tensor:
        """The difference from the global values, which points as a gradient does: an outer step
        subtracts it."""
        # A constant buffer may hold an infinity, whose difference from itself is not a number.
        return (self.values - snapshot).masked_fill_(self.values == snapshot, 0.0)

    def apply(self, flight: Flight) -> None:
        """Makes an outer step with an average that has arrived, and merges."""
        rule, step = self.rule, flight.average
        # Each operation rounds once, on every processor, so that ranks keep equal bytes.
        if self.momentum is not None:
            self.momentum.mul_(rule.momentum).add_(step)
            step = step + self.momentum * rule.momentum if rule.nesterov else self.momentum
        self.values.sub_(step * rule.learning_rate)
        self.merge(flight.snapshot)
        self.rounds += 1
        self.flight = None

    def skip(self) -> None:
        """Drops an average that is not finite."""
        self.rounds += 1
        self.skipped += 1
        self.flight = None

    def merge(self, snapshot: torch.Tensor) -> None:
        """Moves this rank's parameters to the global ones."""
        for tensor, start, end in self._pieces():
            values = self.values[start:end]
            if isinstance(self.rule.merge, str):
                tensor.copy_(values + (tensor.to(torch.float32) - snapshot[start:end]))
            elif self.rule.merge > 0:
                kept = tensor.to(torch.float32) * self.rule.merge
                tensor.copy_(kept.add_(values, alpha=1 - self.rule.merge))
            else:
                tensor.copy_(values)

    def write(self, values: torch.Tensor) -> None:
        """Makes this rank's parameters the values given."""
        for tensor, start, end in self._pieces():
            tensor.copy_(values[start:end])

    def state(self, kind: StateKind) -> Mapping[str, Any]:
        """The values that a checkpoint keeps; an average on its way has arrived."""
        state = {
            "parameters": self.described,
            "values": self.values.clone(),
            "momentum": None if self.momentum is None else self.momentum.clone(),
            "rounds": self.rounds,
            "skipped": self.skipped,
            "submitted": self.submitted,
        }
        if kind == StateKind.RANK:
            state["residual"] = None if self.compressor is None else _tensor_of(self.compressor)
            if self.flight is not None:
                state["flight"] = {
                    "step": self.flight.step,
                    "snapshot": self.flight.snapshot.clone(),
                    "average": self.flight.average.clone(),
                }
        return state

    def load(self, state: Mapping[str, Any]) -> None:
        """Takes over a state that `check` accepts, but for the residual."""
        self.values.copy_(state["values"])
        if self.momentum is not None:
            self.momentum.copy_(state["momentum"])
        self.rounds, self.skipped, self.submitted = (
            int(state[name]) for name in ("rounds", "skipped", "submitted")
        )
        self.flight = None
        flight = state.get("flight")
        if flight is not None:
            device = self.values.device
            snapshot, average = (flight[name].to(device, copy=True) for name in ("snapshot", "average"))
            self.flight = Flight(int(flight["step"]), snapshot, average, has_arrived=True)

    def check(self, state: Any, where: str) -> None:
        """Refuses a state that is not that of such a fragment; `where` names it."""
        if not isinstance(state, Mapping) or not {"parameters", "values", "momentum", "rounds", "skipped",
                                                  "submitted"} <= state.keys():
            raise InvalidArgument(f"{where} is not what state_dict() of a DiLoCo returns")
        for own, saved in zip([*self.described, "none"], [*state["parameters"], "none"]):
            if own != saved:
                raise InvalidArgument(
                    f"{where} has the parameter {saved} where this DiLoCo has {own}: load it into the model "
                    "that it was saved of, with as many fragments"
                )
        if (state["momentum"] is None) != (self.momentum is None):
            here, there = ("none", "one") if self.momentum is None else ("one", "none")
            raise InvalidArgument(f"{where} has {there} outer momentum, and this DiLoCo {here}")
        arrays = [state["values"], *([] if self.momentum is None else [state["momentum"]])]
        flight = state.get("flight")
        arrays += [] if flight is None else [flight["snapshot"], flight["average"]]
        for array in arrays:
            if not isinstance(array, torch.Tensor) or array.shape != self.values.shape:
                raise InvalidArgument(
                    f"{where} has an array that is not a tensor of {len(self.values)} elements: it is damaged"
                )

    def _pieces(self) -> Iterator[Tuple[torch.Tensor, int, int]]:
        """The elements of each parameter, and where they are in arrays."""
        start = 0
        for name, tensor in zip(self.names, self._tensors):
            end = start + tensor.numel()
            yield flat(tensor, f"'{name}'"), start, end
            start = end


def _tensor_of(compressor: Compressor) -> torch.Tensor:
    return torch.frombuffer(bytearray(compressor.export_state(StateKind.RANK)), dtype=torch.uint8)


def divided(sizes: Sequence[int], parts: int) -> List[range]:
    """Cuts a sequence into parts of about the same sum, none of which is empty."""
    total, before, sums = sum(sizes), 0, [0]
    for size in sizes:
        sums.append(sums[-1] + size)
    ranges = []
    for part in range(1, parts + 1):
        # The border nearest to an equal share, which leaves something to the parts that follow.
        candidates = range(before + 1, len(sizes) - (parts - part) + 1)
        wanted = total * part / parts
        end = len(sizes) if part == parts else min(candidates, key=lambda k: abs(sums[k] - wanted))
        ranges.append(range(before, end))
        before = end
    return ranges
