# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Saved states of the hook, and which of their residuals a model takes over."""

from __future__ import annotations

import dataclasses
import operator
import warnings
from typing import Any, Callable, Dict, Iterable, List, Mapping

import torch

from .._errors import InvalidArgument
from .._native import StateKind
from ._memory_order import memory_order
from ._replica import bare_name


@dataclasses.dataclass(frozen=True)
class SavedState:
    """What State.state_dict returns: iterations so far, and residuals by the names of parameters."""

    iteration: int
    residuals: Dict[str, bytes]
    orders: Dict[str, List[int]]  # memory_order of the parameters; of those whose state has it

    @staticmethod
    def parse(state: Any) -> SavedState:
        """Reads a state that may be anything.

        Raises:
            InvalidArgument: what is wrong with it.
        """
        if not isinstance(state, Mapping):
            raise InvalidArgument(f"the state is a {type(state).__name__}, not what state_dict() returns")
        missing = {"iteration", "kind", "residuals"} - state.keys()
        if missing:
            raise InvalidArgument(
                f"the state has no {', '.join(sorted(missing))}: state_dict() returns iteration, kind and "
                "residuals"
            )
        iteration = state["iteration"]
        try:
            if isinstance(iteration, bool) or operator.index(iteration) < 0:
                raise TypeError
        except TypeError:
            raise InvalidArgument(
                f"the state's iteration is {iteration!r}: it must be how many iterations there were"
            ) from None
        try:
            StateKind.of(state["kind"])
        except ValueError as error:
            raise InvalidArgument(f"the state's kind: {error}") from None
        if not isinstance(state["residuals"], Mapping):
            raise InvalidArgument("the state's residuals are not a dictionary from names of parameters")
        residuals = {name: _bytes_of(name, blob) for name, blob in state["residuals"].items()}
        orders = {name: list(order) for name, order in state.get("orders", {}).items()}
        return SavedState(operator.index(iteration), residuals, orders)

    def residuals_of(
        self, parameters: Mapping[str, torch.Tensor], is_compressed: Callable[[str], bool]
    ) -> Dict[str, bytes]:
        """The residuals that a model with these parameters takes over, by its own names.

        Raises:
            InvalidArgument: it has none of the parameters, two residuals are of the same one, or the
                elements of one lay in another order.
        """
        found = self.names_in(parameters, is_compressed, "parameter")
        for name, saved in found.items():
            self._check_order(saved, parameters[name])
        return {name: self.residuals[saved] for name, saved in found.items()}

    def names_in(self, names: Iterable[str], is_compressed: Callable[[str], bool], what: str) -> Dict[str, str]:
        """The residuals that a model takes over: for the name of each the one in the state.

        Args:
            names: those of the model's tensors, each of which belongs to a `what`.

        Raises:
            InvalidArgument: it has none of the state's, or two residuals are of the same one.
        """
        names = list(names)
        own_names = {bare_name(name): name for name in names}
        own_names.update({name: name for name in names})
        found: Dict[str, str] = {}
        unknown: List[str] = []
        unused: List[str] = []
        for saved in self.residuals:
            name = own_names.get(saved, own_names.get(bare_name(saved)))
            if name is None:
                unknown.append(saved)
            elif name in found:
                raise InvalidArgument(f"the state has two residuals of {name}")
            elif is_compressed(name):
                found[name] = saved
            else:
                unused.append(saved)
        if unknown and len(unknown) == len(self.residuals):
            raise InvalidArgument(
                f"the state has residuals of {', '.join(unknown)}, none of which the model has"
            )
        if unknown or unused:
            warnings.warn(
                f"residuals of {', '.join(unknown + unused)} are dropped: the model has no such {what}, or "
                "does not compress it now, because it is frozen or the options leave it out",
                stacklevel=4,
            )
        return found

    def _check_order(self, saved: str, parameter: torch.Tensor) -> None:
        order = memory_order(parameter)
        if self.orders.get(saved, order) != order:
            raise InvalidArgument(
                f"the dimensions of {saved} lie in memory in the order {tuple(order)}, but when its residual "
                f"was saved {tuple(self.orders[saved])}: give the model the memory_format that it had"
            )


def _bytes_of(name: str, blob: Any) -> bytes:
    if not isinstance(blob, torch.Tensor) or blob.dtype != torch.uint8:
        raise InvalidArgument(f"the state's residual of {name} is not a tensor of bytes")
    return bytes(blob.cpu().contiguous().numpy())
