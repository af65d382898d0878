# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Checks of the arguments of an outer optimizer, and what follows from them."""

from __future__ import annotations

import math
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple, Union

import torch
import torch.distributed as dist

from .._errors import InvalidArgument
from .._native import Codec, Mode
from ._averaging_optimizer import AveragingOptimizer
from ._compression import COMPRESSIBLE
from ._fragment import REBASE, OuterRule
from ._replica import bare_name, ranks_of, unwrapped

#: With 2 bits or less an average is of use only with error feedback.
COARSE = (Codec.SIGN, Codec.INT2, Codec.TOPK, Codec.RANDK)
# Options of onebit.Compressor that fragments decide.
_DERIVED = {"codec", "mode", "collective", "tensor_id", "memory", "device", "cuts", "mask", "dtype", "count"}

Optimizers = Union[torch.optim.Optimizer, Sequence[torch.optim.Optimizer]]
Named = List[Tuple[str, torch.Tensor]]


def optimizers_of(given: Optimizers) -> List[torch.optim.Optimizer]:
    optimizers = list(given) if isinstance(given, (list, tuple)) else [given]
    for each in optimizers:
        if isinstance(each, AveragingOptimizer):
            raise InvalidArgument(
                f"inner_optimizer is a {type(each).__name__}, which averages gradients itself in every step: give "
                "one of torch.optim"
            )
        if not isinstance(each, torch.optim.Optimizer):
            raise InvalidArgument(
                f"inner_optimizer is a {type(each).__name__}: give an optimizer of PyTorch, or a list of them"
            )
    if not optimizers:
        raise InvalidArgument("inner_optimizer is an empty list: give at least one optimizer of PyTorch")
    return optimizers


def tensors_of(model: Union[torch.nn.Module, Iterable[Any]]) -> Tuple[Named, Named, List[torch.Tensor]]:
    """The parameters that are trained, the buffers that are averaged, and the tensors that are neither."""
    if isinstance(model, torch.nn.Module):
        given: Named = list(model.named_parameters())
        buffers: Named = list(model.named_buffers())
    elif isinstance(model, (set, frozenset)):
        raise TypeError("model is a set, whose order differs between ranks: give a list, or named_parameters()")
    else:
        given = [each if isinstance(each, tuple) else (f"parameter {k}", each) for k, each in enumerate(model)]
        buffers = []
    for name, tensor in [*given, *buffers]:
        if not isinstance(tensor, torch.Tensor):
            raise InvalidArgument(f"model has a {type(tensor).__name__} where a parameter was expected")
        if tensor.layout != torch.strided or type(tensor).__name__ == "DTensor" or tensor.is_meta:
            raise InvalidArgument(
                f"'{name}' is sparse, sharded or has no memory: DiLoCo averages whole tensors of one device"
            )
    trained = [(bare_name(name), tensor) for name, tensor in given if tensor.requires_grad]
    if not trained:
        raise InvalidArgument("model has no parameter that requires a gradient: there is nothing to average")
    if len({id(tensor) for _, tensor in trained}) != len(trained):
        raise InvalidArgument("model has a parameter twice, and would move it twice: pass it once")
    for name, tensor in trained:
        if tensor.dtype not in COMPRESSIBLE:
            raise InvalidArgument(
                f"'{name}' is of {tensor.dtype}: outer steps keep global parameters in float32, so parameters must "
                "be float32, float16 or bfloat16"
            )
    averaged = [
        (bare_name(name), tensor) for name, tensor in buffers if tensor.dtype in COMPRESSIBLE and tensor.numel() > 0
    ]
    devices = {tensor.device for _, tensor in [*trained, *averaged]}
    if len(devices) > 1:
        names = ", ".join(sorted(map(str, devices)))
        raise InvalidArgument(f"model has parameters or buffers on {names}: all of them must be on one device")
    taken = {id(tensor) for _, tensor in [*trained, *averaged]}
    rest = [tensor for _, tensor in [*given, *buffers] if id(tensor) not in taken and tensor.numel() > 0]
    return trained, averaged, rest


def check_trained(optimizers: Sequence[torch.optim.Optimizer], own: Set[int]) -> None:
    """Refuses an inner optimizer that changes what nobody averages.

    Args:
        own: the id of each parameter that is averaged.
    """
    trained = [tensor for each in optimizers for group in each.param_groups for tensor in group["params"]]
    others = [tensor for tensor in trained if tensor.requires_grad and id(tensor) not in own]
    if others:
        raise InvalidArgument(
            f"inner_optimizer trains {len(others)} parameters that model does not have, or that required no gradient "
            f"when DiLoCo was made, the first of shape {tuple(others[0].shape)}: nobody would average them; make "
            "DiLoCo with the model and all of its parameters that train"
        )


def refuse_replica(model: Any, process_group: Optional[dist.ProcessGroup]) -> None:
    """Refuses a model whose gradients DDP averages over the same ranks."""
    replica = unwrapped(model)[1] if isinstance(model, torch.nn.Module) else None
    if replica is None or not dist.is_initialized():
        return
    group = dist.group.WORLD if process_group is None else process_group
    shared = set(ranks_of(replica.process_group)) & set(ranks_of(group))
    if len(shared) > 1:
        raise InvalidArgument(
            f"DistributedDataParallel averages the gradients of this model over ranks {sorted(shared)} in every step, "
            "so nothing is left to save: give the model itself, or a process_group of ranks that have different replicas"
        )


def rule_of(rate: float, momentum: float, nesterov: bool, merge: Union[float, str]) -> OuterRule:
    if not (_is_number(rate) and math.isfinite(rate) and rate > 0):
        raise InvalidArgument(f"outer_lr is {rate!r}, but must be finite and > 0")
    if not (_is_number(momentum) and 0 <= momentum < 1):
        raise InvalidArgument(f"outer_momentum is {momentum!r}, but must be in [0, 1)")
    if merge != REBASE and not (_is_number(merge) and 0 <= merge < 1):  # type: ignore[operator]
        raise InvalidArgument(f'merge is {merge!r}, but must be in [0, 1), or "{REBASE}"')
    if not isinstance(nesterov, bool):
        raise InvalidArgument(f"nesterov is {nesterov!r}, but must be True or False")
    return OuterRule(float(rate), float(momentum), nesterov, REBASE if merge == REBASE else float(merge))


def _is_number(given: Any) -> bool:
    return isinstance(given, (int, float)) and not isinstance(given, bool)


def integer(name: str, given: Any, least: int, most: Optional[int] = None, of: str = "") -> int:
    """An integer in a range, whose end is the value of `of`."""
    if isinstance(given, bool) or not isinstance(given, int) or given < least or (most is not None and given > most):
        end = ">= " + str(least) if most is None else f"from {least} to {most} ({of})"
        raise InvalidArgument(f"{name} is {given!r}, but must be an integer {end}")
    return given


def codec_of(
    codec: Union[str, Codec, None], mode: Union[str, Mode, None], options: Mapping[str, Any]
) -> Tuple[Optional[Codec], Mode]:
    if codec is None:
        for name, value in (("mode", mode), ("compressor", options or None)):
            if value is not None:
                raise InvalidArgument(f"{name}={value!r} belongs to codec, which is None: leave it out")
        return None, Mode.PLAIN
    if codec == "auto":
        raise InvalidArgument('codec="auto" is for onebit.torch.State: name one here, such as "fp4", or None')
    chosen = Codec.of(codec)
    if mode is None:
        return chosen, Mode.EF if chosen in COARSE else Mode.PLAIN
    return chosen, Mode.of(mode)


def options_of(options: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
    if options is not None and not isinstance(options, Mapping):
        raise InvalidArgument(f'compressor is {options!r}, but must be a dict of options, such as {{"k": 64}}')
    for name in sorted(_DERIVED & set(options or {})):
        raise InvalidArgument(f"compressor has {name}, which follows from other arguments, and cannot be given")
    return dict(options or {})
