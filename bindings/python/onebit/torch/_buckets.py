# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Buckets of gradients, as DistributedDataParallel hands them to a hook."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence

import torch
import torch.distributed as dist

from .._compressor import Compressor
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


class Part:
    """The gradient of a parameter in a bucket. `name` is None if it is averaged in full precision."""

    def __init__(self, name: Optional[str], gradient: torch.Tensor):
        self.name = name
        self.gradient = gradient
        self.values = gradient  # what is averaged

    def unscale(self, scale: torch.Tensor) -> None:
        # Unscaled numbers can be too small for 16 bits.
        self.values = self.gradient.to(torch.float32)
        self.values.mul_(scale.reciprocal())

    def scale(self, scale: torch.Tensor) -> None:
        self.gradient.copy_(self.values.mul_(scale))
        self.values = self.gradient  # so that a plan does not keep a copy of gradients


class Plan:
    """A bucket and what is done with its parts, iteration by iteration.

    Attributes:
        parts: the gradients in the bucket; none if it is averaged as a whole.
        compressed, others: those with and without a compressor.
        compressors: those of `compressed`, in its order.
        calls: the averages of a compressed iteration, once they have been made ready.
        saved_bytes: what they save on the link of this rank's host.
    """

    def __init__(
        self, buffer: torch.Tensor, parameters: Sequence[torch.Tensor], parts: List[Part]
    ) -> None:
        self.buffer = buffer
        self.parts = parts
        self.compressed = [part for part in parts if part.name is not None]
        self.others = [part for part in parts if part.name is None]
        self.compressors: List[Compressor] = []
        self.calls: Optional[List[Callable[[], Any]]] = None
        self.saved_bytes = 0
        self._parameters = list(map(id, parameters))
        begins = [part.gradient.storage_offset() - buffer.storage_offset() for part in self.compressed]
        self._begins = torch.tensor(begins, dtype=torch.int64, device=buffer.device)

    def is_for(self, buffer: torch.Tensor, parameters: Sequence[torch.Tensor]) -> bool:
        """Tells if a bucket is the one that was planned: the same parameters in the same memory, which
        the plan keeps from being used for anything else."""
        return (
            buffer.data_ptr() == self.buffer.data_ptr()
            and buffer.dtype == self.buffer.dtype
            and buffer.numel() == self.buffer.numel()
            and list(map(id, parameters)) == self._parameters
        )

    def uses(self) -> torch.Tensor:
        """For each compressed part whether this rank has a gradient that is not zero everywhere, as
        numbers that can be averaged."""
        if self.buffer.is_cuda:
            return torch.stack([part.gradient.any() for part in self.compressed]).to(torch.float32)
        # Nearly all begin with a number that is not zero.
        uses = self.buffer[self._begins] != 0
        for number in (uses == 0).nonzero().flatten().tolist():
            uses[number] = self.compressed[number].gradient.any()
        return uses.to(torch.float32)

    def clear_unless(self, uses: torch.Tensor) -> None:
        """Sets averages to zero, which they are if no rank has a gradient, in place of residuals."""
        if uses.is_cuda:
            for part, use in zip(self.compressed, uses):
                part.gradient.masked_fill_(use == 0, 0)
        else:
            for number in (uses == 0).nonzero().flatten().tolist():
                self.compressed[number].gradient.zero_()

    def are_finite(self, has_nan_everywhere: bool) -> torch.Tensor:
        """Tells if a gradient scaler finds the averages finite, in a tensor of one element."""
        if not has_nan_everywhere:
            return torch.isfinite(self.buffer).all().view(1)
        # With error feedback one element that is not finite makes all of its part NaN.
        looked_at = [self.buffer[self._begins], *(part.gradient for part in self.others)]
        return torch.isfinite(torch.cat(looked_at)).all().view(1)
