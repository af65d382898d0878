# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""PyTorch: compressed gradient averaging for DistributedDataParallel.

One line in a trainer that exists, after the model was wrapped:

    model = DistributedDataParallel(model)
    model.register_comm_hook(onebit.torch.State(model), onebit.torch.ddp_hook)
"""

from .ddp import Report, State, ddp_hook

__all__ = ["Report", "State", "ddp_hook"]
