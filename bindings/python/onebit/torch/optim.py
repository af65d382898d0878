# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""1-bit Adam, whole or sharded, 1-bit LAMB and 0/1 Adam as optimizers of PyTorch.

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

import warnings
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple, Union

import torch
import torch.distributed as dist

from .. import _native
from .._communicator import Communicator
from .._errors import InvalidArgument, InvalidUsage
from .._native import Algorithm, StateKind, Variant
from .._optimizer import Optimizer as NativeOptimizer
from .._structures import configured
from .._waits import exporting
from ._averaging_optimizer import AveragingOptimizer, state_kind, stream_of
from ._matched_state import MatchedState
from ._own_averaging import own_averaging
from ._optimizer_state import MOMENTS, Blobs, ParameterState, Part, bytes_of
from ._parameter import Parameter, Place, WrittenBetweenSyncs, take_over_writes
from ._sharded_adam import ShardedOnebitAdam, ShardedStats

__all__ = [
    "OnebitAdam",
    "OnebitLamb",
    "OnebitOptimizer",
    "ShardedOnebitAdam",
    "ShardedStats",
    "ZeroOneAdam",
    "own_averaging",
]

# Options of onebit.Optimizer that its parameters and groups decide.
_DERIVED = {"beta1", "beta2", "segments", "segment_count", "parameter_copy", "parameter_copy_type"}


class OnebitOptimizer(AveragingOptimizer):
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

    _algorithm: Algorithm
    _parameters: List[Parameter]

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
        self._checkpoint = state_kind(checkpoint)
        self._max_grad_norm = max_grad_norm
        self._native: Optional[NativeOptimizer] = None
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
        super().__init__(params, defaults, process_group, communicator)

    @property
    def _is_in_use(self) -> bool:
        return self._native is not None

    def _begin_state(self, tensor: torch.Tensor) -> None:
        self.state[tensor] = ParameterState(tensor)

    def _end(self) -> None:
        if self._native is not None:
            self._native.close()

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
        chosen = self._checkpoint if kind is None else state_kind(kind)
        with exporting("state_dict()", self._communicator, chosen):
            blobs = Blobs.exported(native, chosen, self._is_between_syncs(native))
        self._note_writes()
        tensors = [parameter.tensor for parameter in self._parameters]
        parts = dict(zip(tensors, Part.divided(blobs.packed(), self._parameters)))
        return self._written_state(
            {tensor: {**self.state[tensor], "onebit": part} for tensor, part in parts.items()}
        )

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Loads a state from `state_dict`, parameters included: this rank's own, or the same on all.
        Local. Moments that the program has changed in it are taken over. Where parameters have names,
        also in the state, it may have them and groups in another order. A parameter that the state
        has may be frozen by now.

        Raises:
            onebit.Error: it is damaged, or of other parameters, or without names in another order;
                the text names the difference, and nothing was loaded.
        """
        state_dict = self._given_state(state_dict)
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
        self._take_over_added(matched, state_dict)

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
        stream = stream_of(parameters[0].tensor) if parameters else None
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
