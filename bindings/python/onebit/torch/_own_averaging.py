# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Gradients that something else averages before an optimizer of onebit does, and how to end that.

Annotations are evaluated, unlike in most modules, because DDP compares those of a hook with its types.
"""

import sys
import warnings
import weakref
from typing import Any, Iterable, List, Optional

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook

from .._communicator import Communicator
from .._errors import InvalidArgument, InvalidUsage
from .._native import RedOp
from ._replica import unwrapped
from .trainers import call_at_begin, is_trainer

# Ranks may have the same batch in one step by chance.
_STEPS = 3
# Elements that are multiplied at a time.
_PIECE = 1 << 18
_FACTOR = 0x1E3779B97F4A7C15  # odd
_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


class OwnGradients:
    """Compares the gradients of ranks in the first steps of an optimizer. Those that something else has
    averaged are the same bytes on all ranks, in every step.

    Gradients that differ once end it, usually in the first step. Until then each step compares a digest,
    by a reduction of 16 bytes, and a device's host waits for the backward pass before the step and not
    in it. All ranks see the same results, and so make the same calls.
    """

    def __init__(self, communicator: Communicator, optimizer: str) -> None:
        _of_optimizers.add(self)
        self._communicator = communicator
        self._optimizer = optimizer
        self._steps_left = _STEPS if communicator.size > 1 else 0

    def compare(self, gradients: Iterable[Optional[torch.Tensor]]) -> None:
        """Compares those that a step is about to average, and warns after some steps. Collective, until
        it has an answer."""
        if self._steps_left == 0:
            return
        given = list(gradients)
        digest = _digest(given)
        extremes = torch.tensor([digest, ~digest])  # ~ turns the greatest into the least
        self._communicator.all_reduce(extremes, op=RedOp.MAX)
        greatest, least = int(extremes[0]), ~int(extremes[1])
        if greatest != least:
            self._steps_left = 0
        elif digest != 0 and all(each is None or _is_finite(each) for each in given):
            # Zeros and steps that overflow are equal without an average, too.
            self._steps_left -= 1
            # All ranks know it, but launchers mix what they print.
            if self._steps_left == 0 and self._communicator.rank == 0:
                self._warn()

    def _warn(self) -> None:
        warnings.warn(
            f"in {_STEPS} steps running the gradients were equal on all {self._communicator.size} ranks "
            f"before {self._optimizer} averaged them: something else averages them in full precision, so "
            "the optimizer saves nothing. If DistributedDataParallel wraps the model, as Accelerate, "
            "Lightning and the Trainer of transformers do, call onebit.torch.optim.own_averaging(model) "
            "with the wrapped model, or with the Trainer, before the first step; with DeepSpeed "
            "onebit.torch.optim.own_averaging(engine). If nothing else averages them, the ranks "
            "train on the same batches: give each its own, e.g. with a DistributedSampler",
            stacklevel=2,
        )


_of_optimizers: weakref.WeakSet[OwnGradients] = weakref.WeakSet()


def own_averaging(model: Any) -> None:
    """Ends the averaging of gradients by a framework, for an optimizer of onebit, which averages them
    itself. On all ranks, after the framework has wrapped the model and before the first backward pass:

        model, optimizer = accelerator.prepare(model, optimizer)
        onebit.torch.optim.own_averaging(model)

    The framework must not clip gradients either, because each rank would clip its own: give the
    optimizer `max_grad_norm`. If the framework is known to clip, a warning says so. Another one says if
    no optimizer of onebit is there at the first backward pass (DeepSpeed: at this call).

    Args:
        model: a model that DistributedDataParallel wraps, compiled or not: it gets a hook that leaves
            gradients as they are. Or an engine of DeepSpeed without ZeRO, whose
            `enable_backward_allreduce` becomes False. Or a Trainer of transformers, before train():
            it wraps its model there. With one rank nothing averages, and any model will do.

    Raises:
        InvalidArgument: it is something else; or a pipeline engine or one with ZeRO, which always reduce
            gradients.
        InvalidUsage: the model has another communication hook. And from train() of a Trainer: it would
            save the optimizer, which it does on one rank.
    """
    if is_trainer(model):
        call_at_begin(model, lambda: _end_averaging_of(model))
    elif _is_engine(model):
        _end_averaging_by_engine(model)
    elif isinstance(model, torch.nn.Module):
        _end_averaging_by_wrapper(model)
    else:
        raise InvalidArgument(
            f"own_averaging takes a model that DistributedDataParallel wraps, an engine of DeepSpeed or a "
            f"Trainer of transformers, not a {type(model).__name__}"
        )


def _end_averaging_of(trainer: Any) -> None:
    args, model = trainer.args, trainer.model_wrapped
    if not _is_engine(model) and args.world_size > 1:  # DeepSpeed clips and saves by itself
        if args.save_strategy != "no" and not args.save_only_model:
            raise InvalidUsage(
                "own_averaging: the Trainer asks for the optimizer's state on rank 0 alone, and would wait "
                "there, because all ranks make it: give TrainingArguments save_only_model=True or "
                "save_strategy='no', and save optimizer.state_dict() in a callback, on all ranks"
            )
        _warn_if_clipped(args.max_grad_norm, "the Trainer", "TrainingArguments max_grad_norm=0")
    own_averaging(model)


def _end_averaging_by_wrapper(model: torch.nn.Module) -> None:
    _, replica = unwrapped(model)
    if replica is None:
        if dist.is_initialized() and dist.get_world_size() > 1:
            raise InvalidArgument(
                "own_averaging: DistributedDataParallel does not wrap this "
                f"{type(model).__name__}: pass what it or accelerator.prepare returned; if "
                "nothing wraps the model, nothing but the optimizer averages its gradients"
            )
        return
    hooks = [hook for hook, _ in getattr(replica, "_comm_hooks", [])]  # none before PyTorch 2
    if _hook_of_none in hooks or noop_hook in hooks:
        return
    try:
        replica.register_comm_hook(_Begin(), _hook_of_none)
    except RuntimeError as error:
        if "once" not in str(error):
            raise
        raise InvalidUsage(
            "own_averaging: the model has another communication hook, which also averages its "
            "gradients: use that hook with an optimizer of PyTorch, or an optimizer of onebit without it"
        ) from error


class _Begin:
    """Remembers whether the first bucket of a model has come."""

    is_over = False


def _hook_of_none(begin: _Begin, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """PyTorch's hook that leaves gradients as they are. By its first bucket the program has made its
    optimizer."""
    if not begin.is_over:
        begin.is_over = True
        _warn_unless_averaged()
    return noop_hook(None, bucket)


def _warn_unless_averaged() -> None:
    if not _of_optimizers and dist.get_rank() == 0:
        warnings.warn(
            "own_averaging has ended the averaging of gradients, and no optimizer of onebit does "
            "it instead: each rank trains a model of its own. Use one of onebit.torch.optim, or "
            "leave out own_averaging",
            stacklevel=2,
        )


def _is_engine(model: Any) -> bool:
    module = sys.modules.get("deepspeed.runtime.engine")
    return module is not None and isinstance(model, module.DeepSpeedEngine)


def _end_averaging_by_engine(engine: Any) -> None:
    if engine.pipeline_parallelism:
        raise InvalidArgument(
            "own_averaging: a pipeline engine of DeepSpeed reduces gradients in its schedule: use an "
            "engine without a pipeline, or an optimizer of DeepSpeed"
        )
    if engine.zero_optimization():
        raise InvalidArgument(
            f"own_averaging: ZeRO stage {int(engine.zero_optimization_stage())} reduces gradients to the "
            "ranks that own them, but the optimizers of onebit need whole gradients on each rank: use stage 0"
        )
    _warn_if_clipped(engine.gradient_clipping(), "DeepSpeed", "its configuration gradient_clipping 0")
    engine.enable_backward_allreduce = False
    _warn_unless_averaged()


def _warn_if_clipped(norm: Optional[float], framework: str, remedy: str) -> None:
    if norm:
        warnings.warn(
            f"{framework} clips the gradients of each rank by their own norm, before they are averaged: "
            f"give {remedy}, and the optimizer of onebit max_grad_norm={norm:g}",
            stacklevel=2,
        )


def _digest(tensors: Iterable[Optional[torch.Tensor]]) -> int:
    """A checksum of elements and where they are, of sums of integers, which no order changes. That of
    zeros is 0."""
    sums: List[torch.Tensor] = []
    for tensor in tensors:
        if tensor is None or tensor.layout != torch.strided:
            sums.append(torch.zeros((), dtype=torch.int64))
            continue
        for piece in tensor.detach().reshape(-1).split(_PIECE):
            integers = (piece + 0.0).view(_INTEGERS[piece.element_size()])  # without -0.0
            sums.append(_weighed(integers))
    device = sums[-1].device if sums else None
    return int(_weighed(torch.stack([each.to(device) for each in sums]))) if sums else 0


def _weighed(integers: torch.Tensor) -> torch.Tensor:
    """The sum of integers times weights of their places, modulo 2^64."""
    weights = torch.arange(1, len(integers) + 1, device=integers.device) * _FACTOR
    weights ^= weights >> 29
    return weights.mul_(integers).sum()


def _is_finite(tensor: torch.Tensor) -> bool:
    return bool(tensor.isfinite().all())
