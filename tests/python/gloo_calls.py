# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's process groups reduce, as its profiler sees it."""

import math
from typing import Any, Callable, List

import torch
from torch.profiler import ProfilerActivity, profile


def reduced_elements(function: Callable[[], Any]) -> List[int]:
    """Runs a function, and returns how many elements each reduction over Gloo had, in the order of time.

    Gloo reports every call of its own, whoever has made it: DDP from C++, a trainer through
    torch.distributed.
    """
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        function()
        torch.distributed.barrier()
    return [
        sum(math.prod(shape) for shape in event.input_shapes if shape)
        for event in profiler.events()
        if event.name.startswith("gloo:") and "reduce" in event.name
    ]
