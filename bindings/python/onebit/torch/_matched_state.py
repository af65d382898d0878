# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Matches the entries of a saved state of an optimizer with its parameters."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from itertools import chain
from typing import Any, Collection, Dict, List, Mapping, Sequence

import torch

from .._errors import InvalidArgument
from ._memory_order import memory_order
from ._optimizer_state import Part, digest_of
from ._parameter import Place
from ._replica import bare_name

# A group keeps these when a state replaces its options.
_KEPT = ("params", "exp_avg_mask", "param_names")


@dataclass(frozen=True)
class Entry:
    """The part of a state that is of one parameter, which was trained."""

    place: Place
    values: Mapping[str, Any]
    part: Part


class MatchedState:
    """A state beside the parameters of an optimizer.

    If both have names, these decide, so parameters and groups may come in another order. Otherwise
    the order does, as for optimizers of PyTorch, and elements tell if it is another one.

    Attributes:
        keys: what the state calls each parameter.
        groups: those of the optimizer, with the options of the state.
        entries: of the parameters that the state has, in the order in which the library had them. Some
            may be frozen by now.
    """

    def __init__(
        self,
        state: Mapping[str, Any],
        groups: Sequence[Dict[str, Any]],
        trained: Collection[torch.Tensor],
    ) -> None:
        """Matches them.

        Args:
            state: what OnebitOptimizer.state_dict has returned.
            groups: those of the optimizer.
            trained: parameters that the state must have.

        Raises:
            onebit.Error, ValueError: it is of other parameters.
        """
        places = Place.all_of(groups)
        needed = {id(tensor) for tensor in trained}
        saved_groups = list(state["param_groups"])
        states = state.get("state", {})
        saved = list(chain.from_iterable(group["params"] for group in saved_groups))
        parts = {
            key: Part.read(states[key]["onebit"], key)
            for key in saved
            if "onebit" in states.get(key, {})
        }
        saved_names = chain.from_iterable(
            group.get("param_names") or [""] * len(group["params"]) for group in saved_groups
        )
        # A tool that puts the model's names into the place of numbers leaves param_names as they are.
        names = {
            key: bare_name(key if isinstance(key, str) else name)
            for key, name in zip(saved, saved_names)
        }
        self.keys = _keys(names, parts, places, needed)
        self.groups = _loaded_groups(saved_groups, groups, self.keys)
        entries: List[Entry] = []
        for place in places:
            key = self.keys.get(place.tensor)
            if key in parts:
                entries.append(Entry(place, states[key], parts[key]))
            elif id(place.tensor) in needed:
                raise InvalidArgument(
                    f"the state has no entry 'onebit' for {place}: another kind of optimizer wrote it, whose "
                    "moments onebit.Optimizer.set_moment takes over, or a tool that drops entries, or the "
                    "parameter did not require a gradient; nothing was loaded"
                )
        self.entries = sorted(entries, key=lambda entry: entry.part.position)
        self._check()

    @property
    def packed(self) -> bytes:
        """The states of the library, as Blobs.packed made them."""
        return b"".join(entry.part.data for entry in self.entries)

    def _check(self) -> None:
        for place, part in ((entry.place, entry.part) for entry in self.entries):
            has_names = part.name and place.name
            if part.shape != list(place.tensor.shape) or (has_names and part.name != place.name):
                raise InvalidArgument(
                    f"parameter {place.number} is {place}, but in the state {part}: pass the "
                    "parameters in the order that they had when it was saved, or with the same "
                    "names; nothing was loaded"
                )
            own_order = memory_order(place.tensor)
            if part.order is not None and part.order != own_order:
                raise InvalidArgument(
                    f"the dimensions of {place} lie in memory in the order {tuple(own_order)}, but when it "
                    f"was saved {tuple(part.order)}: give the model the memory_format that it had; nothing "
                    "was loaded"
                )
        parts = [entry.part for entry in self.entries]
        if any(part.position != k or part.parts != len(parts) for k, part in enumerate(parts)):
            raise InvalidArgument(
                f"the state is of {parts[0].parts} parameters, but the optimizer has {len(parts)} "
                "of them: pass it the same ones; nothing was loaded"
            )
        digests = [digest_of(entry.place.tensor) for entry in self.entries]
        saved = [part.digest for part in parts]
        is_named = all(part.name and entry.place.name for part, entry in zip(parts, self.entries))
        if not is_named and digests != saved and sorted(digests) == sorted(saved):
            k = next(k for k, digest in enumerate(digests) if digest != saved[k])
            raise InvalidArgument(
                f"the model has the parameters of the state in another order: {self.entries[k].place} was "
                f"number {saved.index(digests[k])} when it was saved; pass them in that order; "
                "nothing was loaded"
            )


def _keys(
    saved: Mapping[Any, str],
    parts: Mapping[Any, Part],
    places: Sequence[Place],
    needed: Collection[int],
) -> Dict[torch.Tensor, Any]:
    """The keys of parameters in a state: by names, if all have them in both, or by their order."""
    key_of = {part.name: key for key, part in parts.items()}
    trained = [place.name for place in places if id(place.tensor) in needed]
    has_names = bool(parts) and all(key_of)
    if parts and has_names != all(trained) and not any(isinstance(key, str) for key in saved):
        having, lacking = ("state", "optimizer") if has_names else ("optimizer", "state")
        warnings.warn(
            f"parameters have names in the {having}, but not in the {lacking}: they are taken in their "
            "order; pass named_parameters() to the optimizer before saving and loading",
            stacklevel=4,
        )
    own = {place.name: place.tensor for place in places if place.name in key_of}
    is_complete = len(own) == len(key_of) == len(parts) and key_of.keys() >= set(trained)
    if not has_names or not is_complete:
        return dict(zip((place.tensor for place in places), saved))
    found = {tensor: key_of[name] for name, tensor in own.items()}
    # The state has what the program added to parameters that were frozen.
    others = {name: key for key, name in saved.items() if key not in parts}
    rest = [place for place in places if place.name not in own]
    if others.keys() >= {place.name for place in rest}:
        found.update((place.tensor, others[place.name]) for place in rest)
    else:
        keys = [key for key in saved if key not in parts]
        found.update(zip((place.tensor for place in rest), keys))
    return found


def _loaded_groups(
    saved: Sequence[Mapping[str, Any]],
    groups: Sequence[Dict[str, Any]],
    keys: Mapping[torch.Tensor, Any],
) -> List[Dict[str, Any]]:
    if len(saved) != len(groups):
        raise ValueError(
            f"the state has {len(saved)} parameter groups, but the optimizer has {len(groups)}"
        )
    group_of = {key: number for number, group in enumerate(saved) for key in group["params"]}
    loaded: List[Dict[str, Any]] = []
    for index, ours in enumerate(groups):
        there = {group_of[keys[tensor]] for tensor in ours["params"] if tensor in keys}
        number = min(there, default=index)
        group = saved[number]
        if len(group["params"]) != len(ours["params"]):
            raise ValueError(
                f"group {number} of the state has {len(group['params'])} parameters, but group "
                f"{index} of the optimizer has {len(ours['params'])}"
            )
        if len(there) > 1:
            raise InvalidArgument(
                f"group {index} of the optimizer has parameters of groups {sorted(there)} of the "
                "state: make the same groups as in the state; nothing was loaded"
            )
        # Tools that call parameters by the model's names have put them, but not their names, into our order.
        has_model_names = any(isinstance(key, str) for key in group["params"])
        dropped = {"params", "param_names"} if has_model_names else {"params"}
        options = {key: value for key, value in group.items() if key not in dropped}
        kept = {key: ours[key] for key in _KEPT if key in ours}
        loaded.append({**ours, **copy.deepcopy(options), **kept})
    return loaded
