# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""PyTorch: compressed gradient averaging for DistributedDataParallel, and optimizers that average.

One line in a trainer that exists, after the model was wrapped:

    model = DistributedDataParallel(model)
    model.register_comm_hook(onebit.torch.State(model), onebit.torch.ddp_hook)

or, without wrapping it, another optimizer:

    optimizer = onebit.torch.optim.OnebitAdam(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
"""

import importlib
from typing import Any

from . import fsdp, optim, outer
from ._weight_sync import WeightSync, WeightUpdate
from .ddp import Report, State, ddp_hook
from .trainers import attach

__all__ = [
    "Report", "State", "WeightSync", "WeightUpdate", "attach", "ddp_hook", "fsdp", "optim", "outer"
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Imports `backend` where it is used first, because it needs a newer PyTorch than the others."""
    if name == "backend":
        return importlib.import_module(f"{__name__}.backend")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
