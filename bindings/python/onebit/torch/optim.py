# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""1-bit Adam, 1-bit LAMB and 0/1 Adam as optimizers of PyTorch.

They average gradients, too, so the model needs no DistributedDataParallel:

    optimizer = onebit.torch.optim.OnebitAdam(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
    for batch in batches:  # those of this rank
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()

A model that is wrapped by it anyway, e.g. by a framework or because it has buffers, must not average
gradients a second time: call own_averaging(model). Otherwise a warning says so after three steps.
"""

from __future__ import annotations

import copy
import math
import warnings
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple, Union

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join, Joinable, JoinHook

from .. import _native
from .._communicator import Communicator
from .._errors import InvalidArgument, InvalidUsage
from .._groups import group as calls_together
from .._native import Algorithm, RedOp, StateKind, Variant
from .._optimizer import Optimizer as NativeOptimizer
from .._structures import configured
from .._waits import collective, exporting
from ._membership import Membership
from ._matched_state import MatchedState
from ._memory_order import flat, in_memory, memory_order
from ._own_averaging import OwnGradients, own_averaging
from ._optimizer_state import (
    MOMENTS,
    Blobs,
    ParameterState,
    Part,
    bytes_of,
    compare_over_ranks,
    copied_to,
    digest_of,
)
from ._parameter import Parameter, Place, WrittenBetweenSyncs, check_kind, take_over_writes

__all__ = ["OnebitAdam", "OnebitLamb", "OnebitOptimizer", "ZeroOneAdam", "own_averaging"]

# Options of onebit.Optimizer that its parameters and groups decide.
_DERIVED = {"beta1", "beta2", "segments", "segment_count", "parameter_copy", "parameter_copy_type"}


class OnebitOptimizer(torch.optim.Optimizer, Joinable):
    """The base of OnebitAdam, OnebitLamb and ZeroOneAdam.

    All ranks construct it at the same point of the program with the same arguments, and take over the
    parameters of rank 0, as with DistributedDataParallel. From then on parameters are the same bytes
    on every rank after every step (of 0/1 Adam: after those that synchronise).

    Parameters are float32, or 16 bits with a copy in float32 that steps update. With their names, as
    from `named_parameters()`, ranks and states are compared by name, otherwise by shape.

    The program may write to parameters between steps, also through `data`; with 0/1 Adam not between
    two syncs. To notice it, each step compares parameters of 16 bits with their copy, and those of
    ZeroOneAdam with what the last step left, of which it keeps 4 bytes for each element of float32.
    A parameter that does not require a gradient stays as it is. One that does and whose `grad` is None
    counts as zero, also on ranks where others have a gradient: its momentum and weight decay go on.
    Gradients are undefined after a step.

    Ranks may have unequal numbers of batches within torch.distributed.algorithms.join.Join([optimizer]),
    or Join([model, optimizer]) for a model that DistributedDataParallel wraps, whose own join() does not
    know of the optimizer. A rank without batches goes on making steps: with gradients of zero, and rates
    and weight decays of those that have some.

    Options of a group, as in torch.optim: `lr` and `weight_decay`, which may change between steps,
    `betas` and `eps`, which are those of all groups, and
        non_freeze: exact averages and a live variance in all stages; for embeddings whose gradients
            are sparse.
        exp_avg_mask: for a group of one parameter, a tensor like it: elements where it is 0 have
            no momentum, e.g. rows of position embeddings that no sequence reaches.
        no_trust_ratio: OnebitLamb uses a trust ratio of 1; for biases and norms.
        rare_rows: for embeddings with ZeroOneAdam, because few gradients reach a row. With
            OnebitAdam they train better with `non_freeze`.

    GradScaler works as with other optimizers (PyTorch 2): a gradient that is not finite on one rank
    skips the step on all, unless it is a local one of 0/1 Adam, in which that rank uses zeros. Scales
    may then differ between ranks, which does no harm.

    Attributes:
        state: for each parameter that requires a gradient `step`, `exp_avg` and `exp_avg_sq`, as of
            torch.optim.AdamW: copies as of when they are read. What is written to them before the
            next step is taken over, on all ranks alike. What is added is saved and loaded with them.
        last_step: what the last step did, with the members of onebitStepResult_t: `skipped`, `stage`,
            `step`, `grad_norm`, `bytes_sent`; None before the first.
    """

    param_groups: List[Dict[str, Any]]
    _algorithm: Algorithm
    # GradScaler.step then leaves scale and verdict to step().
    _step_supports_amp_scaling = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: Tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        max_grad_norm: float = 0.0,
        process_group: Optional[dist.ProcessGroup] = None,
        communicator: Optional[Communicator] = None,
        compressor: Optional[Mapping[str, Any]] = None,
        checkpoint: str = "exact",
        deepspeed: Any = None,  # pylint: disable=unused-argument
        cuda_aware: bool = False,  # pylint: disable=unused-argument
        comm_backend_name: str = "",  # pylint: disable=unused-argument
        amsgrad: bool = False,
        eps_inside_sqrt: bool = False,
        **options: Any,
    ) -> None:
        """Joins the ranks. Collective.

        Args:
            params, lr, betas, eps, weight_decay: as for torch.optim.AdamW. `params` may have names,
                also with PyTorch before 2.6: `model.named_parameters()`, or groups of such pairs.
            max_grad_norm: clips gradients to this norm, in dense steps as clip_grad_norm_ does after
                DistributedDataParallel: by the norm of the average; otherwise by that of the rank's
                own gradient. `clip_norm="mean_square"` takes one factor for all ranks in all steps.
            process_group: its ranks average gradients; None: the default group.
            communicator: a Communicator of your own, instead of a process group.
            compressor: options of the onebit.Compressor of the momentum, such as {"block": 1024}.
            checkpoint: the kind of state_dict() for callers that name none, such as PyTorch's savers.
            options: members of onebitOptimizerConfig_t (onebit/optim.h) by their Python names, such
                as `freeze_step` (a number of steps, "automatic", "settled" or "never").
            deepspeed, cuda_aware, comm_backend_name: without effect, so that calls written for
                DeepSpeed's classes work; its other arguments have the names that they have there.

        Raises:
            onebit.Error: the ranks could not join; the text says who was missing and where.
        """
        if isinstance(params, (set, frozenset)):
            raise TypeError(
                "params is a set, whose order differs between ranks: pass a list, or named_parameters()"
            )
        if amsgrad or eps_inside_sqrt:
            raise InvalidArgument(
                "there is neither amsgrad nor eps_inside_sqrt: DeepSpeed refuses or ignores them"
            )
        if self._algorithm == Algorithm.ZERO_ONE_ADAM:
            options.pop("bias_correction", None)  # DeepSpeed's class ignores it
        for name in sorted(_DERIVED & set(options)):
            raise TypeError(f"{name} follows from params and betas, and cannot be given")
        configured(_native.OptimizerConfig, options)  # names are checked here, not at the first step
        self._options = {"clip_norm": "average", **options, "algorithm": self._algorithm}
        self._compressor = compressor
        self._checkpoint = _state_kind(checkpoint)
        self._process_group = process_group
        self._max_grad_norm = max_grad_norm
        self._native: Optional[NativeOptimizer] = None
        self._parameters: List[Parameter] = []
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
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "non_freeze": False,
            "exp_avg_mask": None,
            "no_trust_ratio": False,
            "rare_rows": False,
        }
        super().__init__(params, defaults)
        self._betas_and_eps = self._common_betas_and_eps()
        self._take_rank_0s(Place.all_of(self.param_groups))
        self._has_begun = True

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """Adds a group, whose parameters become those of rank 0. Collective; before the first step, and
        before a state is written or read."""
        self._check_open()
        if self._native is not None:
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
                    flat(tensor).view(torch.uint8), stream=_stream_of(tensor)
                )
        for tensor in tensors:
            if tensor.requires_grad:
                self.state[tensor] = ParameterState(tensor)

    def __getstate__(self) -> Dict[str, Any]:
        raise InvalidUsage(
            f"a {type(self).__name__} cannot be copied or pickled: make a new one, and use state_dict()"
        )

    def close(self) -> None:
        """Waits until all ranks are done and leaves them. Collective. A program that ends leaves by
        itself, without waiting. A `communicator` that was given stays open."""
        self._is_closed = True
        if self._native is not None:
            self._native.close()
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

    def _step(self) -> None:
        native = self._made()
        self._check_unchanged()
        for state in self._states():
            state.write_back()
        learning_rate = self._set_rates(native)
        take_over_writes(self._parameters, native)
        scale = getattr(self, "grad_scale", None)  # of a GradScaler
        inverse_scale = None if scale is None else scale.reciprocal()
        try:
            self._own_gradients.compare(parameter.tensor.grad for parameter in self._parameters)
            for number, parameter in enumerate(self._parameters):
                parameter.hand_over(native, number, inverse_scale)
            self.last_step = native.step(
                None, learning_rate, max_grad_norm=self._max_grad_norm, stream=self._stream()
            )
        except BaseException:
            native.forget_gradients()
            raise
        self._note_writes()

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

    def synchronize(self) -> None:
        """Makes the ranks agree on parameters after local steps of 0/1 Adam, as for an evaluation.
        Collective. What was written to parameters between two syncs is undone, with a warning."""
        native = self._made()
        try:
            take_over_writes(self._parameters, native)
        except WrittenBetweenSyncs as error:
            warnings.warn(f"synchronize() undoes a write: {error}", stacklevel=2)
        native.synchronize()
        self._note_writes()

    def rewarm(self, steps: Union[int, str] = "automatic") -> None:
        """Returns to dense steps, for a second phase of training. On all ranks between the same two
        steps."""
        self._made().rewarm(steps)

    def stats(self) -> _native.OptimizerStats:
        """Counters and facts, with the members of onebitOptimizerStats_t."""
        return self._made().stats()

    # ----------------------------------------------------------------------------------- checkpoints

    def state_dict(  # type: ignore[override]
        self, kind: Union[str, StateKind, None] = None
    ) -> Dict[str, Any]:
        """Groups, and for each parameter `step`, `exp_avg` and `exp_avg_sq`, which are there to be read,
        and "onebit", a part of the exact state of all parameters: they themselves in float32, moments,
        counters and residuals.

        Args:
            kind: "exact": collective, so all ranks call it; the same on all, so that one copy is
                enough. A job of as many ranks continues from it bit for bit, and one of another size
                with nothing lost of what is owed. It takes 28 bytes for each parameter and about 4
                for each parameter and rank. "global": the same without the residuals of each rank:
                28 bytes; with 0/1 Adam it makes the ranks agree before. "rank": local; with the state
                of each rank a job of as many ranks continues bit for bit. None: `checkpoint` of the
                constructor, "exact" if it was not given.
        """
        for hook in self._hooks("state_dict_pre"):
            hook(self)
        native = self._made()
        for state in self._states():
            state.write_back()
        take_over_writes(self._parameters, native)
        chosen = self._checkpoint if kind is None else _state_kind(kind)
        with exporting("state_dict()", self._communicator, chosen):
            blobs = Blobs.exported(native, chosen, self._is_between_syncs(native))
        self._note_writes()
        tensors = [parameter.tensor for parameter in self._parameters]
        parts = dict(zip(tensors, Part.divided(blobs.packed(), self._parameters)))
        states: Dict[Any, Any] = {}
        groups: List[Dict[str, Any]] = []
        numbers: Dict[int, int] = {}
        for group in self.param_groups:
            for tensor in group["params"]:
                number = numbers.setdefault(id(tensor), len(numbers))
                if tensor in parts and number not in states:
                    states[number] = {**self.state[tensor], "onebit": parts[tensor]}
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

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Loads a state from `state_dict`, parameters included: this rank's own, or the same on all.
        Local. Moments that the program has changed in it are taken over. Where parameters have names,
        also in the state, it may have them and groups in another order. A parameter that the state
        has may be frozen by now.

        Raises:
            onebit.Error: it is damaged, or of other parameters, or without names in another order;
                the text names the difference, and nothing was loaded.
        """
        state_dict = dict(state_dict)
        for hook in self._hooks("load_state_dict_pre"):
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        self._check_open()
        own: List[Place] = self._trained()
        if self._native is not None:
            own = [parameter.place for parameter in self._parameters]
        if "onebit" in state_dict:  # of earlier builds
            matched = MatchedState({**state_dict, "state": {}}, self.param_groups, [])
            blobs, blob = None, bytes_of(state_dict["onebit"])
        else:
            matched = MatchedState(state_dict, self.param_groups, [place.tensor for place in own])
            blobs = Blobs.unpacked(matched.packed) if matched.entries else None
            blob = blobs.chosen(self._communicator) if blobs else b""
            own = [entry.place for entry in matched.entries]
        for entry in matched.entries:
            for key in MOMENTS.keys() & entry.values.keys():
                entry.place.check_moment(key, entry.values[key])
        self._import(matched.groups, own, blob)
        for entry, state in zip(matched.entries, self._states()):
            state.replace_added(entry.values)
            if blobs is not None and blobs.agree:
                for key in MOMENTS.keys() & entry.values.keys():
                    state[key] = entry.values[key]
                state.write_back()
        trained = {parameter.tensor for parameter in self._parameters}
        tensors = {key: tensor for tensor, key in matched.keys.items()}
        for key, value in state_dict.get("state", {}).items():
            if key not in tensors:
                self.state[key] = copy.deepcopy(value)
            elif tensors[key] not in trained:
                self.state[tensors[key]] = copied_to(value, tensors[key].device)
        for hook in self._hooks("load_state_dict_post"):
            hook(self)

    def _import(self, groups: List[Dict[str, Any]], places: List[Place], blob: bytes) -> None:
        """Takes over groups and a state of the library, which has the parameters in this order."""
        former_groups, self.param_groups = self.param_groups, groups
        former, former_native = self._parameters, self._native
        try:
            has_order = [id(each.tensor) for each in former] == [id(each.tensor) for each in places]
            if not has_order or any(each.is_changed_by(groups) for each in former):
                self._native = None
            native = self._made(places)
            self._check_unchanged()
            self._set_rates(native)  # not later, when 0/1 Adam may be between two syncs
            if blob:
                native.import_state(torch.frombuffer(bytearray(blob), dtype=torch.uint8))
        except BaseException:
            self.param_groups = former_groups
            if former_native is not None and self._native is not former_native:
                if self._native is not None:
                    self._native.close()
                self._use(former, former_native)
            raise
        if former_native is not None and self._native is not former_native:
            former_native.close()
        self._note_writes()

    # ---------------------------------------------------------------------------------------- parts

    def _made(self, places: Optional[List[Place]] = None) -> NativeOptimizer:
        """The optimizer of the library. It is made when first needed, so that a program may load a
        checkpoint into the model after it has made its optimizer.

        Args:
            places: its parameters, in the order of a state; None: those that require a gradient.
        """
        self._check_open()
        if self._native is not None:
            return self._native
        parameters = [
            Parameter(place, self.param_groups[place.group_index], self._has_syncs)
            for place in (self._trained() if places is None else places)
        ]
        stream = _stream_of(parameters[0].tensor) if parameters else None
        if stream is not None:
            stream.synchronize()  # behind the work that wrote the parameters
        segments = [parameter.segment for parameter in parameters]
        (beta1, beta2), eps = self._betas_and_eps
        native = NativeOptimizer(
            self._communicator,
            None if segments else torch.empty(0),
            segments=segments,
            compressor=self._compressor,
            beta1=beta1,
            beta2=beta2,
            eps=eps,
            **self._options,
        )
        self._use(parameters, native)
        return native

    def _trained(self) -> List[Place]:
        return [place for place in Place.all_of(self.param_groups) if place.tensor.requires_grad]

    def _use(self, parameters: List[Parameter], native: NativeOptimizer) -> None:
        self._parameters, self._native = parameters, native
        trained = {parameter.tensor for parameter in parameters}
        places = Place.all_of(self.param_groups)
        self._left_alone = [place for place in places if place.tensor not in trained]
        for tensor, state in list(self.state.items()):
            if isinstance(state, ParameterState) and tensor not in trained:
                self.state[tensor] = dict(state.added)
                if not state.added:
                    del self.state[tensor]
        for parameter in parameters:
            before = self.state.get(parameter.tensor)
            if not isinstance(before, ParameterState):  # it required no gradient at first
                self.state[parameter.tensor] = ParameterState(parameter.tensor, before)
        for number, state in enumerate(self._states()):
            state.attach(native, number, parameters[number])

    def _stream(self) -> Optional[torch.cuda.Stream]:
        return _stream_of(self._parameters[0].tensor) if self._parameters else None

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

    def _set_rates(self, native: NativeOptimizer) -> float:
        """Tells the optimizer what schedulers have changed, and returns the learning rate to which
        those of groups are related: the greatest."""
        learning_rate = max(float(group["lr"]) for group in self.param_groups)
        for number, parameter in enumerate(self._parameters):
            group = self.param_groups[parameter.place.group_index]
            parameter.set_rates(native, number, group, learning_rate)
        return learning_rate

    def _note_writes(self) -> None:
        for parameter in self._parameters:
            parameter.note_write()
        for state in self._states():
            state.forget()

    def _states(self) -> List[ParameterState]:
        states: List[ParameterState] = []
        for parameter in self._parameters:
            state = self.state.get(parameter.tensor)
            if not isinstance(state, ParameterState):
                raise InvalidUsage(
                    f"state[parameter] of {parameter} was replaced or removed, but the library has it: "
                    "write to its tensors, or make a new optimizer"
                )
            states.append(state)
        return states

    @property
    def _has_syncs(self) -> bool:
        return self._algorithm == Algorithm.ZERO_ONE_ADAM

    def _is_between_syncs(self, native: NativeOptimizer) -> bool:
        if not self._has_syncs or not self._parameters:
            return False
        try:
            native.set_rates(0)  # changes nothing, but is not allowed there
        except InvalidUsage:
            return True
        return False

    def _check_open(self) -> None:
        if self._is_closed:
            raise InvalidUsage(f"this {type(self).__name__} is closed: make a new one")

    def _hooks(self, name: str) -> List[Callable[..., Any]]:
        """What a program has registered; PyTorch before 2.1 has none."""
        return list(getattr(self, f"_optimizer_{name}_hooks", {}).values())


class _StepsWithoutBatches(JoinHook):
    """The work of a rank in Join that has no batches left, in each iteration of the others."""

    def __init__(self, optimizer: OnebitOptimizer) -> None:
        self._optimizer = optimizer

    def main_hook(self) -> None:
        self._optimizer._step_without_batch()  # pylint: disable=protected-access


class OnebitAdam(OnebitOptimizer):
    """1-bit Adam (Tang et al. 2021): AdamW up to step `freeze_step`, with exact averages; afterwards
    the variance is frozen, and one bit per element of the momentum is sent, with error feedback.

    Its dense steps are those of torch.optim.AdamW up to rounding: biases of the moments are corrected
    (`bias_correction=False`: not), unlike in the paper. Freeze late enough for the variance to have
    settled, after a quarter of the steps and 3/(1 - beta2); "automatic" decides by itself, and
    "settled" earlier. Put embeddings into a group with `non_freeze=True`.
    """

    _algorithm = Algorithm.ONE_BIT_ADAM

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, *args: Any, **options: Any) -> None:
        if Variant.of(options.get("variant") or Variant.PAPER) == Variant.PAPER:
            options.setdefault("bias_correction", True)
        super().__init__(params, lr, *args, **options)


class OnebitLamb(OnebitOptimizer):
    """1-bit LAMB (Li et al. 2021): LAMB up to step `freeze_step`, then one bit per element of the
    momentum, with trust ratios that follow the variance of what is sent.

    Start with half of LAMB's best learning rate: it may diverge at the full one. Further options, as in
    DeepSpeed: `max_coeff`, `min_coeff`, `coeff_beta`, `factor_max`, `factor_min`, `factor_threshold`.
    Each parameter is a layer with a trust ratio of its own.
    """

    _algorithm = Algorithm.ONE_BIT_LAMB


class ZeroOneAdam(OnebitOptimizer):
    """0/1 Adam (Lu et al. 2023): ranks step on their own and average the sums of their steps at syncs,
    which become rarer, at one bit per element. Call synchronize() before an evaluation.

        optimizer = onebit.torch.optim.ZeroOneAdam(  # whose rate is warmed up over a tenth of the steps
            groups, lr=1e-3, betas=(0.9, 0.99), rate_tied=True,
            lr_warmup_steps=steps // 10, var_freeze_step=steps // 5,
        )

    Further options, as in DeepSpeed: `var_freeze_step`, `var_update_scaler`, `local_step_scaler`,
    `local_step_clipper`; and `lr_warmup_steps`, from which `var_freeze_step` is taken if it is not
    given: one of the two is needed. Ratios between the rates of groups may only change at a sync.
    Put embeddings into a group with `rare_rows=True`.
    """

    _algorithm = Algorithm.ZERO_ONE_ADAM

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, *args: Any, **options: Any) -> None:
        if options.get("var_freeze_step") is None and options.get("lr_warmup_steps") is None:
            raise InvalidArgument(
                "ZeroOneAdam needs var_freeze_step, the step up to which the variance is "
                "refreshed, or lr_warmup_steps, which then takes its place"
            )
        super().__init__(params, lr, *args, **options)


def _state_kind(kind: Union[str, StateKind]) -> str:
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


def _stream_of(tensor: torch.Tensor) -> Optional[torch.cuda.Stream]:
    return torch.cuda.current_stream(tensor.device) if tensor.is_cuda else None
