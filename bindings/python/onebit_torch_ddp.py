# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Compression for unmodified trainers: ONEBIT_TORCH_DDP=fp4 torchrun train.py

From PyTorch 2.5 on, `import torch` calls load(), an entry point of the group torch.backends. This module
is none of the package, because that would have every program with PyTorch import onebit.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
from typing import Any

VARIABLE = "ONEBIT_TORCH_DDP"

_is_loaded = False


def load() -> None:
    """Registers onebit's hook for every model that the program wraps in DistributedDataParallel, with
    the codec and the options that the variable names (docs/python.md). Nothing without it.

    Constructors of DistributedDataParallel then raise:
        onebit.InvalidArgument: the variable's value is wrong.
        onebit.InvalidUsage: other ranks have no such variable, or another value.
        onebit.Error: the ranks could not join, as with onebit.torch.State.
    """
    global _is_loaded  # pylint: disable=global-statement
    value = os.environ.get(VARIABLE, "").strip()
    if _is_loaded or value in ("", "0"):
        return
    _is_loaded = True
    from torch.nn.parallel import DistributedDataParallel

    construct = DistributedDataParallel.__init__

    @functools.wraps(construct)
    def construct_with_hook(replica: Any, *args: Any, **kwargs: Any) -> None:
        from onebit.torch import _ddp_variable

        options = _ddp_variable.options_of(value)  # before ranks wait for each other
        construct(replica, *args, **kwargs)
        _ddp_variable.register(replica, value, options)

    DistributedDataParallel.__init__ = construct_with_hook
    atexit.register(_say_unused, value, os.getpid())


def _say_unused(value: str, process: int) -> None:
    """Says at the end of a training that the variable had nothing to compress."""
    import torch.distributed as dist

    if "onebit.torch._ddp_variable" in sys.modules or process != os.getpid():
        return
    if dist.is_available() and dist.is_initialized() and dist.get_rank() == 0:
        print(
            f"onebit: {VARIABLE}={value} has compressed nothing: this program has wrapped no model in "
            "DistributedDataParallel",
            file=sys.stderr,
        )
