# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""1-bit Adam, 1-bit LAMB and 0/1 Adam as optimizers of PyTorch.

They average gradients, too, so the model needs no DistributedDataParallel:

    optimizer = onebit.torch.optim.OnebitAdam(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
    for batch in batches:  # those of this rank
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()

A model that is wrapped by it all the same, e.g. because it has buffers, must not average gradients a
second time: register torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks.noop_hook.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple, Union

import torch
import torch.distributed as dist

from .. import _native
from .._communicator import Communicator
from .._errors import InvalidArgument, InvalidUsage
from .._groups import group as calls_together
from .._native import Algorithm, StateKind, Variant
from .._optimizer import Optimizer as NativeOptimizer
from .._optimizer import Segment
from .._structures import configured
from ._membership import Membership

_SIXTEEN_BITS = (torch.float16, torch.bfloat16)
# Rates of groups that keep their ratio differ by roundings of the scheduler.
_SAME_RATIO = 1e-12
# Options of onebit.Optimizer that its parameters and groups decide.
_DERIVED = {"beta1", "beta2", "segments", "segment_count", "parameter_copy", "parameter_copy_type"}


class OnebitOptimizer(torch.optim.Optimizer):
    """The base of OnebitAdam, OnebitLamb and ZeroOneAdam.

    All ranks construct it at the same point of the program with the same arguments, and take over the
    parameters of rank 0, as with DistributedDataParallel. From then on parameters are the same bytes
    on every rank after every step (of 0/1 Adam: after those that synchronise).

    Parameters are float32, or 16 bits with a copy in float32 that steps update. The program may write
    to them between steps, but not through `data`, which hides it. One that does not require a gradient
    stays as it is. One that does and whose `grad` is None counts as zero, also on ranks where others
    have a gradient: its momentum and weight decay go on. Gradients are undefined after a step.

    Options of a group, as in torch.optim: `lr` and `weight_decay`, which may change between steps,
    `betas` and `eps`, which are those of all groups, and
        non_freeze: exact averages and a live variance in all stages; for embeddings whose gradients
            are sparse.
        exp_avg_mask: for a group of one parameter, a tensor like it: elements where it is 0 have
            no momentum, e.g. rows of position embeddings that no sequence reaches.
        no_trust_ratio: OnebitLamb takes 1; for biases and norms.
        rare_rows: for embeddings with ZeroOneAdam, because few gradients reach a row. With
            OnebitAdam they train better with `non_freeze`.

    GradScaler works as with other optimizers (PyTorch 2): a gradient that is not finite on one rank
    skips the step on all, unless it is a local one of 0/1 Adam, in which that rank uses zeros. Scales
    may then differ between ranks, which does no harm.

    Attributes:
        last_step: what the last step did, with the members of onebitStepResult_t: `skipped`, `stage`,
            `step`, `grad_norm`, `bytes_sent`; None before the first.
    """

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
        deepspeed: Any = None,  # pylint: disable=unused-argument
        cuda_aware: bool = False,  # pylint: disable=unused-argument
        comm_backend_name: str = "",  # pylint: disable=unused-argument
        amsgrad: bool = False,
        eps_inside_sqrt: bool = False,
        **options: Any,
    ) -> None:
        """Joins the ranks. Collective.

        Args:
            params, lr, betas, eps, weight_decay: as for torch.optim.AdamW.
            max_grad_norm: clips gradients to this norm, in dense steps as clip_grad_norm_ does behind
                DistributedDataParallel: by the norm of the average; otherwise by that of the rank's
                own gradient. `clip_norm="mean_square"` takes one factor for all ranks in all steps.
            process_group: its ranks average gradients; None: the default group.
            communicator: a Communicator of one's own, instead of a process group.
            compressor: options of the onebit.Compressor of the momentum, such as {"block": 1024}.
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
        self._max_grad_norm = max_grad_norm
        self._native: Optional[NativeOptimizer] = None
        self._parameters: List[_Parameter] = []
        self._left_alone: List[torch.Tensor] = []
        self.last_step: Optional[_native.StepResult] = None
        self._membership: Optional[Membership] = None
        if communicator is None:
            self._membership = Membership(self, process_group)
            communicator = self._membership.communicator
        self._communicator = communicator
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

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """Adds a group, whose parameters become those of rank 0. Collective; before the first step, and
        before a state is written or read."""
        if self._native is not None:
            raise InvalidUsage(
                "add_param_group: the optimizer is in use, and the state of all parameters is one; make a "
                "new one, or give all groups from the beginning, some of them with lr = 0"
            )
        super().add_param_group(param_group)
        with calls_together():
            for tensor in self.param_groups[-1]["params"]:
                self._communicator.broadcast(_flat(tensor), stream=_stream_of(tensor))

    def __getstate__(self) -> Dict[str, Any]:
        raise InvalidUsage(
            f"a {type(self).__name__} cannot be copied or pickled: make another, and use state_dict()"
        )

    def close(self) -> None:
        """Waits until all ranks are done and leaves them. A program that ends without an exception does
        it by itself. Collective. A `communicator` that was given stays open."""
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
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        native = self._made()
        self._check_unchanged()
        learning_rate = self._set_rates(native)
        inverse_scale = None
        if getattr(self, "grad_scale", None) is not None:
            inverse_scale = self.grad_scale.reciprocal()
        try:
            for number, parameter in enumerate(self._parameters):
                parameter.hand_over(native, number, inverse_scale)
            self.last_step = native.step(
                None, learning_rate, max_grad_norm=self._max_grad_norm, stream=self._stream()
            )
        except BaseException:
            native.forget_gradients()
            raise
        self._note_writes()
        return loss

    def synchronize(self) -> None:
        """Makes the ranks agree on parameters after local steps of 0/1 Adam, as for an evaluation.
        Collective."""
        self._made().synchronize()
        self._note_writes()

    def rewarm(self, steps: Union[int, str] = "automatic") -> None:
        """Returns to dense steps, for a second phase of training. On all ranks between the same two
        steps."""
        self._made().rewarm(steps)

    def stats(self) -> _native.OptimizerStats:
        """Counters and facts, with the members of onebitOptimizerStats_t."""
        return self._made().stats()

    # ----------------------------------------------------------------------------------- checkpoints

    def state_dict(self, kind: Union[str, StateKind] = "global") -> Dict[str, Any]:
        """Groups, and under "onebit" the state of all parameters: they themselves in float32, moments,
        counters and residuals.

        Args:
            kind: "global": collective, so all ranks call it; the same on all, so that one copy is
                enough; fits any number of ranks. "rank": local; with the state of each rank a job of
                as many ranks continues bit for bit.
        """
        kind = StateKind.of(kind)
        state = super().state_dict()
        for group in state["param_groups"]:
            group.pop("exp_avg_mask")  # belongs to the data, and is part of the construction
        exported = bytearray(self._made().export_state(kind))
        state["onebit"] = torch.frombuffer(exported, dtype=torch.uint8)
        return state

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Takes over a state of `state_dict`, parameters included: that of this rank, or the same
        global one on all. Local.

        Raises:
            onebit.Error: it is damaged, or belongs to something else; the text names each difference.
        """
        if "onebit" not in state_dict:
            raise InvalidArgument(
                "the state has no entry 'onebit', so another kind of optimizer wrote it: "
                "onebit.Optimizer.set_moment takes over moments"
            )
        native = self._made()
        previous = self.param_groups
        super().load_state_dict({"state": {}, "param_groups": state_dict["param_groups"]})
        try:
            self._check_unchanged()
            self._set_rates(native)  # not later, when 0/1 Adam may be between two syncs
            native.import_state(state_dict["onebit"].cpu())
        except BaseException:
            self.param_groups = previous
            raise
        self._note_writes()
        for group, before in zip(self.param_groups, previous):
            group["exp_avg_mask"] = before["exp_avg_mask"]

    # ---------------------------------------------------------------------------------------- parts

    def _made(self) -> NativeOptimizer:
        """The optimizer of the library. It is made when first needed, so that a program may load a
        checkpoint into the model after it has made its optimizer."""
        if self._native is not None:
            return self._native
        has_syncs = self._algorithm == Algorithm.ZERO_ONE_ADAM
        for index, group in enumerate(self.param_groups):
            for tensor in group["params"]:
                if tensor.requires_grad:
                    self._parameters.append(_Parameter(tensor, group, index, has_syncs))
                else:
                    self._left_alone.append(tensor)
        stream = self._stream()
        if stream is not None:
            stream.synchronize()  # behind the work that wrote the parameters
        segments = [parameter.segment for parameter in self._parameters]
        (beta1, beta2), eps = self._betas_and_eps
        self._native = NativeOptimizer(
            self._communicator,
            None if segments else torch.empty(0),
            segments=segments,
            compressor=self._compressor,
            beta1=beta1,
            beta2=beta2,
            eps=eps,
            **self._options,
        )
        return self._native

    def _stream(self) -> Optional[torch.cuda.Stream]:
        return _stream_of(self._parameters[0].tensor) if self._parameters else None

    def _check_unchanged(self) -> None:
        if self._common_betas_and_eps() != self._betas_and_eps:
            raise InvalidUsage(
                f"param_groups have other betas and eps than {self._betas_and_eps}, with which the "
                "optimizer was made: they cannot change"
            )
        for tensor in self._left_alone:
            if tensor.grad is not None:
                raise InvalidUsage(
                    f"a parameter of shape {tuple(tensor.shape)} has a gradient now, but required none "
                    "at the first step, and so has no moments: make a new optimizer"
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
            group = self.param_groups[parameter.group_index]
            parameter.set_rates(native, number, group, learning_rate)
        return learning_rate

    def _note_writes(self) -> None:
        for parameter in self._parameters:
            parameter.note_write()


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
                "ZeroOneAdam needs var_freeze_step, the step up to which the variance is refreshed, or "
                "lr_warmup_steps, whose end it then is"
            )
        super().__init__(params, lr, *args, **options)


class _Parameter:
    """A parameter of the model, which is a segment of the optimizer."""

    def __init__(
        self, tensor: torch.Tensor, group: Dict[str, Any], group_index: int, has_syncs: bool
    ) -> None:
        if tensor.dtype != torch.float32 and tensor.dtype not in _SIXTEEN_BITS:
            raise InvalidArgument(
                f"a parameter of shape {tuple(tensor.shape)} has elements of {tensor.dtype}, but must "
                "have float32, float16 or bfloat16"
            )
        mask = group["exp_avg_mask"]
        if mask is not None and (len(group["params"]) != 1 or mask.shape != tensor.shape):
            raise InvalidArgument(
                f"an exp_avg_mask of shape {tuple(mask.shape)} must be that of a group of one "
                f"parameter, and have its shape {tuple(tensor.shape)}"
            )
        self.tensor = tensor
        self.group_index = group_index
        self._has_syncs = has_syncs
        self._address = tensor.data_ptr()
        self._version = tensor._version
        self._rates = (1.0, 0.0)  # lr_scale and weight_decay of a new optimizer
        self._flat = _flat(tensor)
        is_copy = tensor.dtype in _SIXTEEN_BITS
        self._master = self._flat.float() if is_copy else self._flat  # what steps update
        self.segment = Segment(
            dense=group["non_freeze"],
            no_trust_ratio=group["no_trust_ratio"],
            rare_rows=group["rare_rows"],
            mask=None if mask is None else _bits(mask, tensor),
            parameters=self._master,
            parameter_copy=self._flat if is_copy else None,
        )

    def set_rates(
        self, native: NativeOptimizer, number: int, group: Dict[str, Any], greatest: float
    ) -> None:
        """Gives the group's rates to segment `number`, unless it has them."""
        lr_scale, _ = self._rates
        if not self.tensor.requires_grad:
            lr_scale = 0.0
        elif greatest > 0:
            ratio = float(group["lr"]) / greatest
            if abs(ratio - lr_scale) > _SAME_RATIO * lr_scale:
                lr_scale = ratio
        rates = (lr_scale, float(group["weight_decay"]))
        if rates != self._rates:
            native.set_rates(number, lr_scale=lr_scale, weight_decay=rates[1])
            self._rates = rates

    def note_write(self) -> None:
        """Tells PyTorch that the library has written to the parameter, so that a backward pass through
        what it was is an error."""
        self._flat[:0].zero_()
        self._version = self.tensor._version

    def hand_over(
        self, native: NativeOptimizer, number: int, inverse_scale: Optional[torch.Tensor]
    ) -> None:
        """Gives the gradient of segment `number` to the next step."""
        if self.tensor.data_ptr() != self._address:
            raise InvalidUsage(
                f"a parameter of shape {tuple(self.tensor.shape)} has moved in memory since the first "
                "step: copy into it, instead of replacing its data"
            )
        if self.tensor._version != self._version:
            self._take_over_changes(native, number)
        gradient = self.tensor.grad
        if gradient is None:
            native.add_gradient(number, None, self._gradient_type(inverse_scale))
            return
        if gradient.is_sparse:
            raise InvalidArgument(
                f"the gradient of a parameter of shape {tuple(self.tensor.shape)} is sparse: make the "
                "embedding with sparse=False"
            )
        if gradient.stride() != self.tensor.stride():
            gradient = torch.empty_like(self.tensor).copy_(gradient)
        values = _flat(gradient)
        if inverse_scale is not None:
            # Unscaled numbers can be too small for 16 bits.
            values = values.float().mul_(inverse_scale.to(values.device))
        native.add_gradient(number, values)

    def _take_over_changes(self, native: NativeOptimizer, number: int) -> None:
        """The program has written to the parameter, e.g. loaded a checkpoint into the model."""
        if self._master is not self._flat:
            if not torch.equal(self._master.to(self._flat.dtype), self._flat):
                self._master.copy_(self._flat)
        if self._has_syncs:  # steps start from the parameters of the last one
            try:
                native.set_rates(number)  # between two syncs an error, on all ranks alike
            except InvalidUsage as error:
                raise InvalidUsage(
                    f"a parameter of shape {tuple(self.tensor.shape)} was written to between two syncs "
                    "of 0/1 Adam: call synchronize() before"
                ) from error
            native.set_moment("x_sync", self._master, number)
        self._version = self.tensor._version

    def _gradient_type(self, inverse_scale: Optional[torch.Tensor]) -> str:
        dtype = self.tensor.dtype if inverse_scale is None else torch.float32
        return str(dtype).rsplit(".", maxsplit=1)[-1]


def _stream_of(tensor: torch.Tensor) -> Optional[torch.cuda.Stream]:
    return torch.cuda.current_stream(tensor.device) if tensor.is_cuda else None


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of a tensor in the order in which they lie in memory, without gaps."""
    tensor = tensor.detach()
    by_stride = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    ordered = tensor.permute(by_stride)
    if not ordered.is_contiguous():
        raise InvalidArgument(
            f"a tensor of shape {tuple(tensor.shape)} and strides {tensor.stride()} does not fill its "
            "memory without gaps: make it contiguous"
        )
    return ordered.view(-1)


def _bits(mask: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A bit per element, in the order of `like` in memory."""
    flat = _flat(torch.empty_like(like, dtype=torch.uint8).copy_(mask != 0)).cpu()
    padded = torch.zeros((flat.numel() + 7) // 8 * 8, dtype=torch.uint8)
    padded[: flat.numel()] = flat
    weights = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8)
    return (padded.view(-1, 8) * weights).sum(1).to(torch.uint8)
