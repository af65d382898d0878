# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Buckets of gradients, as DistributedDataParallel hands them to a hook."""

from __future__ import annotations

from typing import List, Optional

import torch
import torch.distributed as dist

from .._errors import InvalidArgument

_AVERAGED = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def as_real(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory, without complex numbers: an average of those is one of their parts."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def is_sparse(bucket: dist.GradBucket) -> bool:
    """Tells if the bucket is the gradient of one parameter, as a sparse tensor."""
    return bucket.buffer().layout != torch.strided


def buffer_of(bucket: dist.GradBucket) -> torch.Tensor:
    """The numbers of a bucket that is not sparse, in one dimension."""
    return as_real(bucket.buffer()).view(-1)


def check_type(buffer: torch.Tensor, names: str) -> None:
    """Refuses numbers that have no average."""
    if buffer.dtype not in _AVERAGED:
        types = ", ".join(str(each) for each in _AVERAGED)
        raise InvalidArgument(
            f"gradients of {names} are {buffer.dtype}, of which there is no average: onebit averages "
            f"{types} and complex numbers made of them"
        )


def gradients_in(bucket: dist.GradBucket, buffer: torch.Tensor) -> Optional[List[torch.Tensor]]:
    """The gradients of the bucket's parameters, each as a slice of the buffer with its elements in the
    order in which they lie there. None unless the buffer consists of them, each element once: DDP
    stores some types as others, and then lists parts that are shorter. The answer depends on types
    and shapes alone, so that it is the same on all ranks."""
    parameters = bucket.parameters()
    try:
        gradients = bucket.gradients()
    except RuntimeError:  # their shapes do not fit into the buffer
        return None
    if len(gradients) != len(parameters):
        return None
    spans = []
    for parameter, gradient in zip(parameters, gradients):
        if not _is_alike(parameter, gradient, buffer):
            return None
        if gradient.numel() == 0:
            spans.append((0, 0))
            continue
        begin, rest = divmod(gradient.data_ptr() - buffer.data_ptr(), buffer.element_size())
        if rest != 0:
            return None
        spans.append((begin, begin + gradient.numel()))
    expected = 0
    for begin, end in sorted(spans):
        if begin != expected:
            return None
        expected = end
    return [buffer[begin:end] for begin, end in spans] if expected == buffer.numel() else None


def _is_alike(parameter: torch.Tensor, gradient: torch.Tensor, buffer: torch.Tensor) -> bool:
    """Tells if a gradient is one of the parameter, of the buffer's type, without gaps or repetitions."""
    if (gradient.layout, gradient.dtype, gradient.device) != (
        buffer.layout,
        buffer.dtype,
        buffer.device,
    ):
        return False
    if gradient.numel() != parameter.numel():
        return False
    if gradient.numel() == 0:
        return True
    expected = 1
    for stride, size in sorted(zip(gradient.stride(), gradient.shape)):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True
