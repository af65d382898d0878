# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Buckets of gradients, as DistributedDataParallel hands them to a hook."""

from __future__ import annotations

from typing import List, Optional

import torch
import torch.distributed as dist

from .._errors import InvalidArgument
from .._native import Mode

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


class Part:
    """The gradient of a parameter in a bucket. `name` is None if it is averaged in full precision."""

    def __init__(self, name: Optional[str], gradient: torch.Tensor):
        self.name = name
        self.gradient = gradient
        self.values = gradient  # what is averaged

    def unscale(self, scale: torch.Tensor) -> None:
        if self.name is None:
            return
        # Unscaled numbers can be too small for 16 bits.
        self.values = self.gradient.to(torch.float32)
        self.values.mul_(scale.reciprocal())

    def scale(self, scale: torch.Tensor) -> None:
        if self.name is not None:
            self.gradient.copy_(self.values.mul_(scale))

    def is_used(self) -> torch.Tensor:
        """Tells if this rank has a gradient that is not zero everywhere."""
        # Most are found in the beginning.
        begin = self.gradient[:1024]
        return begin.any() if not begin.is_cuda and begin.any() else self.gradient.any()

    def clear_unless(self, use: torch.Tensor) -> None:
        """Sets the average to zero, which it is if no rank has a gradient, in place of residuals."""
        if use.is_cuda:
            self.gradient.masked_fill_(use == 0, 0)
        elif not use:
            self.gradient.zero_()

    def is_finite(self, mode: Mode) -> torch.Tensor:
        """Tells if a gradient scaler finds the average finite."""
        # With error feedback one element that is not finite makes all of them NaN; the scale may
        # make others infinite.
        is_alike = self.name is not None and mode == Mode.EF and self.values is self.gradient
        return torch.isfinite(self.gradient[:1] if is_alike else self.gradient).all()
