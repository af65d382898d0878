# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The parameters of a sharded optimizer as one vector, of which each rank updates a part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from .._errors import InvalidArgument, InvalidUsage
from ._memory_order import flat
from ._parameter import Place, answers, check_type, differ, gradient_of, mask_of, written_elements


class Member:
    """A parameter of the model, which is elements `begin` to `end` of a vector.

    Attributes:
        place: where the optimizer has it.
        left_out: elements that its group's exp_avg_mask leaves out; None: none.
    """

    def __init__(self, place: Place, group: Dict[str, Any], begin: int) -> None:
        check_type(place)
        self.place = place
        self.begin, self.end = begin, begin + place.tensor.numel()
        self._address = place.tensor.data_ptr()
        mask = mask_of(place, group)
        self.left_out: Optional[torch.Tensor] = None
        if mask is not None:
            self.left_out = flat(torch.empty_like(place.tensor, dtype=torch.bool).copy_(mask == 0))

    def __str__(self) -> str:
        return str(self.place)

    @property
    def tensor(self) -> torch.Tensor:
        return self.place.tensor

    @property
    def elements(self) -> torch.Tensor:
        """In the order in which they lie in memory, as the vector has them."""
        return flat(self.tensor)

    def check_place(self) -> None:
        if self.tensor.data_ptr() != self._address:
            raise InvalidUsage(
                f"{self} has moved in memory since the first step: copy into it, instead of replacing "
                "its data"
            )

    def of(self, vector: torch.Tensor) -> torch.Tensor:
        """Its elements of a vector."""
        return vector[self.begin : self.end]

    def shaped(self, vector: torch.Tensor) -> torch.Tensor:
        """A copy of its elements of a vector, in the form of the parameter."""
        values = torch.empty_like(self.tensor, dtype=torch.float32, requires_grad=False)
        flat(values).copy_(self.of(vector))
        return values

    def put(self, vector: torch.Tensor, values: torch.Tensor) -> None:
        """Writes values in the form of the parameter to its elements of a vector."""
        ordered = torch.empty_like(self.tensor, dtype=torch.float32, requires_grad=False)
        self.of(vector).copy_(flat(ordered.copy_(values)))


@dataclass(frozen=True)
class Slice:
    """The elements of a member that are in a rank's part."""

    member: Member
    begin: int  # in the part
    end: int

    def of(self, part: torch.Tensor) -> torch.Tensor:
        return part[self.begin : self.end]


class Vector:
    """Parameters one after the other, padded with zeros to `ranks` parts of the same length; part r is
    rank r's. With fewer elements than ranks the last parts are padding only.

    Attributes:
        held: what the model of every rank computes with, in float32; the same bytes on all.
        scratch: as many elements; with a step's gradients, and then with what becomes `held`.
        slices: those of the own part.
    """

    def __init__(
        self, places: Sequence[Place], groups: Sequence[Dict[str, Any]], rank: int, ranks: int
    ) -> None:
        self.members: List[Member] = []
        for place in places:
            begin = self.members[-1].end if self.members else 0
            self.members.append(Member(place, groups[place.group_index], begin))
        self.count = self.members[-1].end
        self.part = max(-(-self.count // ranks), 1)
        self._begin = rank * self.part
        self.held = torch.zeros(ranks * self.part, device=places[0].tensor.device)
        self.scratch = torch.zeros_like(self.held)
        for member in self.members:
            member.of(self.held).copy_(member.elements)
        self.slices = [
            Slice(
                member,
                max(member.begin, self._begin) - self._begin,
                min(member.end, self._begin + self.part) - self._begin,
            )
            for member in self.members
            if member.begin < self._begin + self.part and member.end > self._begin
        ]

    def own(self, vector: torch.Tensor) -> torch.Tensor:
        """This rank's part of a vector."""
        return vector[self._begin : self._begin + self.part]

    @property
    def own_count(self) -> int:
        """Elements of the own part that are no padding."""
        return max(min(self.count - self._begin, self.part), 0)

    @property
    def is_padded(self) -> bool:
        return self.count != self.held.numel()

    def fill(self, inverse_scale: Optional[torch.Tensor]) -> None:
        """Copies the gradients of all members to `scratch`; those that are not there are zeros."""
        self.scratch[self.count :].zero_()
        for member in self.members:
            own = member.of(self.scratch)
            values = gradient_of(member.place, inverse_scale)
            if values is None or not member.tensor.requires_grad:
                own.zero_()
            else:
                own.copy_(values)
            if member.left_out is not None:
                own.masked_fill_(member.left_out, 0)

    def swap(self) -> None:
        """Makes `scratch` what the models hold."""
        self.held, self.scratch = self.scratch, self.held

    def store(self) -> None:
        """Writes what is held to the model."""
        for member in self.members:
            member.elements.copy_(member.of(self.held))

    def take_over_writes(self, x: torch.Tensor) -> bool:
        """Takes what the program has written to parameters since the last step into `held`, and into `x`,
        the own part in full precision. Tells if there was something.

        Raises:
            InvalidArgument: it is not finite; nothing was taken.
        """
        for member in self.members:
            member.check_place()
        found = answers([differ(member.of(self.held), member.elements) for member in self.members])
        written = [member for member, is_written in zip(self.members, found) if is_written]
        for member in written:
            if not member.elements.isfinite().all():
                raise InvalidArgument(f"{member} has elements that are not finite: write finite ones")
        before = self.own(self.held).clone() if written else None
        for member in written:
            held, now = member.of(self.held), member.elements
            held.copy_(torch.where(written_elements(held, now), now.float(), held))
        if before is not None:
            after = self.own(self.held)
            x.copy_(torch.where(after != before, after, x))
        return len(written) > 0


def runs(
    slices: Sequence[Slice], groups: Sequence[Dict[str, Any]]
) -> List[Tuple[int, int, float, float]]:
    """Begins and ends of neighbours that have the same learning rate and weight decay, with these; both
    are 0 for a parameter that does not require a gradient."""
    found: List[Tuple[int, int, float, float]] = []
    for each in slices:
        group = groups[each.member.place.group_index]
        rates = (0.0, 0.0)
        if each.member.tensor.requires_grad:
            rates = (float(group["lr"]), float(group["weight_decay"]))
        if found and found[-1][2:] == rates and found[-1][1] == each.begin:
            found[-1] = (found[-1][0], each.end, *rates)
        else:
            found.append((each.begin, each.end, *rates))
    return found
