# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Optimizers that average gradients over ranks have this in common: how ranks join and begin, groups of
parameters, ranks without batches, and the frame of saved states."""

from __future__ import annotations

import abc
import copy
import math
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple, Union

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join, Joinable, JoinHook

from .. import _native
from .._communicator import Communicator
from .._errors import InvalidArgument, InvalidUsage
from .._groups import group as calls_together
from .._native import RedOp, StateKind
from .._waits import collective
from ._matched_state import MatchedState
from ._membership import Membership
from ._memory_order import flat, in_memory, memory_order
from ._optimizer_state import compare_over_ranks, copied_to, digest_of
from ._own_averaging import OwnGradients
from ._parameter import Place, check_kind


class AveragingOptimizer(torch.optim.Optimizer, Joinable):
    """The base of optimizers whose step averages gradients over ranks and updates the parameters.

    All ranks construct it at the same point of the program, and take over the parameters of rank 0. What
    steps need is made when it is first needed: see `_is_in_use`.
    """

    param_groups: List[Dict[str, Any]]
    # GradScaler.step then leaves scale and verdict to step().
    _step_supports_amp_scaling = True

    def __init__(
        self,
        params: Iterable[Any],
        defaults: Dict[str, Any],
        process_group: Optional[dist.ProcessGroup],
        communicator: Optional[Communicator],
    ) -> None:
        if isinstance(params, (set, frozenset)):
            raise TypeError(
                "params is a set, whose order differs between ranks: pass a list, or named_parameters()"
            )
        self._process_group = process_group
        self._parameters: List[Any] = []  # those that train, each with its `tensor` and `place`
        self._left_alone: List[Place] = []
        self.last_step: Optional[_native.StepResult] = None
        self._is_closed = False
        self._has_begun = False  # groups are complete, so that ranks can compare them
        self._membership: Optional[Membership] = None
        Joinable.__init__(self)
        if communicator is None:
            self._membership = Membership(self, process_group)
            communicator = self._membership.communicator
        self._communicator = communicator
        self._own_gradients = OwnGradients(communicator, type(self).__name__)
        torch.optim.Optimizer.__init__(self, params, defaults)
        self._betas_and_eps = self._common_betas_and_eps()
        self._take_rank_0s(Place.all_of(self.param_groups))
        self._has_begun = True

    @property
    @abc.abstractmethod
    def _is_in_use(self) -> bool:
        """Groups are complete: there is a state, which is one of all parameters."""

    @abc.abstractmethod
    def _begin_state(self, tensor: torch.Tensor) -> None:
        """Puts into `state` what a parameter has before the first step."""

    @abc.abstractmethod
    def _step(self) -> None:
        """Averages the gradients and updates the parameters. Collective."""

    @abc.abstractmethod
    def _end(self) -> None:
        """Frees what steps needed, before the communicator is left."""

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """Adds a group, whose parameters become those of rank 0. Collective; before the first step, and
        before a state is written or read."""
        self._check_open()
        if self._is_in_use:
            raise InvalidUsage(
                "add_param_group: the optimizer is in use, and the state of all parameters is "
                "one; make a new one, or pass all groups from the beginning, some of them with lr = 0"
            )
        super().add_param_group(_named(param_group))
        *others, group = self.param_groups
        try:
            _check_group(group, others)
            places = Place.all_of(self.param_groups)
            own = [place for place in places if place.group_index == len(others)]
            for place in own:
                check_kind(place)
            if self._has_begun:
                with collective("add_param_group()", self._communicator):
                    self._take_rank_0s(own)
        except BaseException:
            self.param_groups.pop()
            raise

    def _take_rank_0s(self, places: List[Place]) -> None:
        """Makes parameters those of rank 0, once all ranks have shown that theirs are the same ones."""
        tensors = [place.tensor for place in places]
        compare_over_ranks(
            self._communicator,
            [
                f"{place if place.name else f'one of shape {tuple(place.tensor.shape)}'} and "
                f"{str(place.tensor.dtype)[len('torch.'):]}{in_memory(memory_order(place.tensor))}"
                f"{'' if place.tensor.requires_grad else ', without a gradient'}"
                for place in places
            ],
            []
            if all(place.name for place in places)
            else [digest_of(tensor) for tensor in tensors],
        )
        with calls_together():
            for tensor in tensors:
                self._communicator.broadcast(
                    flat(tensor).view(torch.uint8), stream=stream_of(tensor)
                )
        for tensor in tensors:
            if tensor.requires_grad:
                self._begin_state(tensor)

    def __getstate__(self) -> Dict[str, Any]:
        raise InvalidUsage(
            f"a {type(self).__name__} cannot be copied or pickled: make a new one, and use state_dict()"
        )

    def close(self) -> None:
        """Waits until all ranks are done and leaves them. Collective. A program that ends leaves by
        itself, without waiting. A `communicator` that was given stays open."""
        self._is_closed = True
        self._end()
        if self._membership is not None:
            self._membership.close()

    @torch.no_grad()
    def step(  # type: ignore[override]
        self, closure: Optional[Callable[[], Any]] = None, **scaled: Any
    ) -> Any:
        """Averages gradients over all ranks and updates the parameters. Collective.

        On a CUDA device it works on the current stream and waits until the ranks have agreed.

        Args:
            closure: computes the loss and gradients anew; its result is returned.

        Raises:
            PeerLost, Timeout and others: the communicator is out of use; the text names the rank.
        """
        if scaled:
            raise InvalidUsage(
                "this GradScaler gives step() an argument, as PyTorch did before 2.0: call "
                "scaler.unscale_(optimizer) on all ranks, and optimizer.step() instead of scaler.step"
            )
        Join.notify_join_context(self)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._join_config.enable:
            self._share_options()
        self._step()
        return loss

    # ------------------------------------------------------------------------- ranks without batches

    @torch.no_grad()
    def _step_without_batch(self) -> None:
        self.zero_grad(set_to_none=True)
        self._share_options(is_joined=True)
        self._step()

    def _share_options(self, is_joined: bool = False) -> None:
        """Gives a rank that has joined, whose schedulers rest, the rates of the others. Collective."""
        names = ("lr", "weight_decay")
        own = [float(group[name]) for group in self.param_groups for name in names]
        shared = torch.tensor(own, dtype=torch.float64)
        if is_joined:
            shared.fill_(-1.0)  # all of the others are greater
        self._communicator.all_reduce(shared, op=RedOp.MAX)
        values = iter(shared.tolist())
        if is_joined:
            for group in self.param_groups:
                group.update((name, next(values)) for name in names)

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """For torch.distributed.algorithms.join.Join."""
        return _StepsWithoutBatches(self)

    @property
    def join_device(self) -> torch.device:
        """For torch.distributed.algorithms.join.Join."""
        device: torch.device = self.param_groups[0]["params"][0].device
        return device

    @property
    def join_process_group(self) -> dist.ProcessGroup:
        """For torch.distributed.algorithms.join.Join."""
        if self._membership is None:
            raise InvalidUsage(
                "Join needs a process group, but the optimizer was made with a communicator: "
                "pass process_group instead"
            )
        group: Any = dist.group.WORLD if self._process_group is None else self._process_group
        return group

    # ----------------------------------------------------------------------------------- checkpoints

    def _written_state(self, entries: Mapping[torch.Tensor, Dict[str, Any]]) -> Dict[str, Any]:
        """A state with an entry for each parameter that trains, and what the program has added."""
        states: Dict[Any, Any] = {}
        groups: List[Dict[str, Any]] = []
        numbers: Dict[int, int] = {}
        for group in self.param_groups:
            for tensor in group["params"]:
                number = numbers.setdefault(id(tensor), len(numbers))
                if tensor in entries and number not in states:
                    states[number] = entries[tensor]
                elif self.state.get(tensor) and number not in states:  # the program's own, if frozen
                    states[number] = dict(self.state[tensor])
            # Masks are the program's; PyTorch's tools look for the key of each option.
            params = [numbers[id(tensor)] for tensor in group["params"]]
            groups.append({**group, "exp_avg_mask": None, "params": params})
        states.update({k: v for k, v in self.state.items() if not isinstance(k, torch.Tensor)})
        result: Dict[str, Any] = {"state": states, "param_groups": groups}
        for hook in self._hooks("state_dict_post"):
            changed = hook(self, result)
            result = result if changed is None else changed
        return result

    def _given_state(self, state_dict: Dict[str, Any]) -> Dict[str, Any]:
        """A state to load, as the program's hooks leave it."""
        state_dict = dict(state_dict)
        for hook in self._hooks("load_state_dict_pre"):
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        self._check_open()
        return state_dict

    def _take_over_added(self, matched: MatchedState, state_dict: Mapping[str, Any]) -> None:
        """Ends a load: takes what the program had added for parameters that do not train, and beside all."""
        trained = {parameter.tensor for parameter in self._parameters}
        tensors = {key: tensor for tensor, key in matched.keys.items()}
        for key, value in state_dict.get("state", {}).items():
            if key not in tensors:
                self.state[key] = copy.deepcopy(value)
            elif tensors[key] not in trained:
                self.state[tensors[key]] = copied_to(value, tensors[key].device)
        for hook in self._hooks("load_state_dict_post"):
            hook(self)

    # ---------------------------------------------------------------------------------------- parts

    def _trained(self) -> List[Place]:
        return [place for place in Place.all_of(self.param_groups) if place.tensor.requires_grad]

    def _stream(self) -> Optional[torch.cuda.Stream]:
        return stream_of(self._parameters[0].tensor) if self._parameters else None

    def _check_unchanged(self) -> None:
        if self._common_betas_and_eps() != self._betas_and_eps:
            raise InvalidUsage(
                f"param_groups have betas and eps other than {self._betas_and_eps}, with which "
                "the optimizer was made: they cannot change; pass OneCycleLR and CyclicLR cycle_momentum=False"
            )
        own = {id(parameter.tensor) for parameter in self._parameters}
        own.update(id(place.tensor) for place in self._left_alone)
        given = {id(tensor) for group in self.param_groups for tensor in group["params"]}
        if given != own:
            came, went = len(given - own), len(own - given)
            raise InvalidUsage(
                f"{came} parameters came into param_groups after the first step, and {went} have gone, but "
                "the state of all parameters is one: make a new optimizer; to replace the values of a "
                "parameter, copy into it"
            )
        for place in self._left_alone:
            if place.tensor.grad is not None:
                raise InvalidUsage(
                    f"{place} has a gradient now, but required none at the first step, so it has "
                    "no moments: make a new optimizer"
                )

    def _common_betas_and_eps(self) -> Tuple[Tuple[float, float], float]:
        first = self.param_groups[0]
        common = (tuple(first["betas"]), first["eps"])
        for index, group in enumerate(self.param_groups):
            if (tuple(group["betas"]), group["eps"]) != common:
                raise InvalidArgument(
                    f"param_groups[{index}] has betas {group['betas']} and eps {group['eps']}, but "
                    f"param_groups[0] {first['betas']} and {first['eps']}: they must be the same"
                )
        return common

    def _check_open(self) -> None:
        if self._is_closed:
            raise InvalidUsage(f"this {type(self).__name__} is closed: make a new one")

    def _hooks(self, name: str) -> List[Callable[..., Any]]:
        """The hooks that a program has registered; PyTorch before 2.1 has none."""
        return list(getattr(self, f"_optimizer_{name}_hooks", {}).values())


class _StepsWithoutBatches(JoinHook):
    """The work of a rank in Join that has no batches left, in each iteration of the others."""

    def __init__(self, optimizer: AveragingOptimizer) -> None:
        self._optimizer = optimizer

    def main_hook(self) -> None:
        self._optimizer._step_without_batch()  # pylint: disable=protected-access


def state_kind(kind: Union[str, StateKind]) -> str:
    if isinstance(kind, StateKind):
        kind = kind.name.lower()
    if kind not in ("exact", "global", "rank"):
        raise InvalidArgument(f"there are states of kind 'exact', 'global' and 'rank', not '{kind}'")
    return kind


def _named(group: Dict[str, Any]) -> Dict[str, Any]:
    """A group whose pairs of name and parameter are divided, as PyTorch does it from 2.6 on."""
    given = group["params"] if isinstance(group, dict) else None
    if given is None or isinstance(given, (torch.Tensor, set)):
        return group
    given = list(given)
    pairs = [each for each in given if isinstance(each, tuple)]
    if not pairs:
        return {**group, "params": given}
    if len(pairs) != len(given):
        raise ValueError("some parameters of a group have names, and others have none")
    names, tensors = [name for name, _ in pairs], [tensor for _, tensor in pairs]
    return {**group, "params": tensors, "param_names": names}


def _check_group(group: Dict[str, Any], others: List[Dict[str, Any]]) -> None:
    """Refuses options of a group that no step could use, and parameters that would be updated twice."""
    for name in ("lr", "weight_decay", "eps"):
        value = group[name]
        if isinstance(value, torch.Tensor) and value.numel() != 1:
            raise InvalidArgument(f"{name} is a tensor of {value.numel()} elements, but must have one")
        number, is_divisor = float(value), name == "eps"
        if not math.isfinite(number) or number < 0 or (is_divisor and number == 0):
            raise InvalidArgument(
                f"{name} is {number:g}, but must be finite and {'> 0' if is_divisor else '>= 0'}"
            )
    betas = [float(beta) for beta in group["betas"]]
    if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
        raise InvalidArgument(f"betas are {group['betas']}, but must be two numbers in [0, 1)")
    if len({id(tensor) for tensor in group["params"]}) != len(group["params"]):
        raise InvalidArgument("a group has a parameter twice, and would update it twice: pass it once")
    if others and ("param_names" in group) != ("param_names" in others[0]):
        raise InvalidArgument("parameters of some groups have names, and those of others have none")


def stream_of(tensor: torch.Tensor) -> Optional[torch.cuda.Stream]:
    return torch.cuda.current_stream(tensor.device) if tensor.is_cuda else None
