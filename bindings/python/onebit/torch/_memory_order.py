# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The order in which the elements of a tensor lie in memory.

The library sees elements in this order. So ranks whose tensors differ in it would average elements of
different places, and a saved state would be loaded into other places.
"""

from __future__ import annotations

from typing import List, Optional

import torch

from .._errors import InvalidArgument


def memory_order(tensor: torch.Tensor) -> List[int]:
    """The dimensions from the one of the largest stride to that of the smallest, without those of one
    element, which have none."""
    dimensions = [dimension for dimension in range(tensor.dim()) if tensor.shape[dimension] != 1]
    return sorted(dimensions, key=tensor.stride, reverse=True) if tensor.numel() > 0 else []


def in_memory(order: List[int]) -> str:
    """How texts name an order; nothing for the usual one."""
    if order == sorted(order):
        return ""
    return f", whose dimensions lie in memory in the order {tuple(order)}"


def flat(tensor: torch.Tensor, who: Optional[str] = None) -> torch.Tensor:
    """The elements of a tensor in the order in which they lie in memory, without gaps."""
    tensor = tensor.detach()
    by_stride = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    ordered = tensor.permute(by_stride)
    if not ordered.is_contiguous():
        raise InvalidArgument(
            f"{who or f'a tensor of shape {tuple(tensor.shape)}'} and strides {tensor.stride()} does "
            "not fill its memory without gaps: make it contiguous"
        )
    return ordered.view(-1)
