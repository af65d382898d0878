# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Wrappers around a model, such as DistributedDataParallel, and what they add to names."""

from __future__ import annotations

import sys
from types import FrameType
from typing import List, Optional, Tuple

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from .._errors import InvalidArgument


def unwrapped(
    model: torch.nn.Module,
) -> Tuple[torch.nn.Module, Optional[DistributedDataParallel]]:
    """The user's module in one that may be wrapped by DDP, and compiled; and DDP's wrapper."""
    replica: Optional[DistributedDataParallel] = None
    while True:
        if isinstance(model, DistributedDataParallel):
            replica = model
            model = model.module
        elif "_orig_mod" in getattr(model, "_modules", ()):
            model = model.get_submodule("_orig_mod")
        else:
            return model, replica


def refuse_sharded(model: torch.nn.Module, what: str) -> None:
    """Refuses a model that FSDP shards, for which `what` is the wrong one."""
    bases = {base.__name__ for module in model.modules() for base in type(module).__mro__}
    if "FSDPModule" in bases:
        raise InvalidArgument(
            f"{what} is for DistributedDataParallel, but fully_shard has sharded this model: call "
            "onebit.torch.fsdp.compress_replicas for hosts that hold replicas of it, or compress_shards if it is "
            "sharded over all ranks"
        )
    if "FullyShardedDataParallel" in bases:
        raise InvalidArgument(
            f"{what} is for DistributedDataParallel, and FullyShardedDataParallel is not supported: shard the "
            "model with fully_shard (FSDP2), and call onebit.torch.fsdp.compress_replicas or compress_shards"
        )


def bare_name(name: str) -> str:
    """The name of a parameter or module without what torch.compile and wrappers add to it."""
    parts = [part for part in name.split(".") if part not in ("_orig_mod", "_checkpoint_wrapped_module")]
    while len(parts) > 1 and parts[0] == "module":
        del parts[0]
    return ".".join(parts)


def group_of(
    replica: DistributedDataParallel, given: Optional[dist.ProcessGroup]
) -> dist.ProcessGroup:
    """The group that DDP averages over, which is the one given, if any."""
    own = replica.process_group
    if given is not None and ranks_of(given) != ranks_of(own):
        raise InvalidArgument(
            f"process_group has the ranks {ranks_of(given)}, but DDP averages this model over a group "
            f"with the ranks {ranks_of(own)}: leave out process_group, or pass the wrapper's"
        )
    return own


def ranks_of(group: Optional[dist.ProcessGroup]) -> List[int]:
    """The ranks of a group, by their numbers in the job; none of one that this process is not in."""
    if not isinstance(group, dist.ProcessGroup):
        return []
    global_rank = dist.distributed_c10d.get_global_rank
    return [global_rank(group, rank) for rank in range(group.size())]


def has_joined(replica: Optional[DistributedDataParallel]) -> Optional[bool]:
    """Within join(divide_by_initial_world_size=False): tells if this rank has no batches left, so that
    its gradients are zeros that do not count. None elsewhere."""
    # DDP offers neither to a hook.
    # pylint: disable=protected-access
    if replica is None or not replica._join_config.enable or replica._divide_by_initial_world_size:
        return None
    # Without batches DDP averages by this function, in place of a backward pass.
    shadow = DistributedDataParallel._match_all_reduce_for_bwd_pass.__code__
    frame: Optional[FrameType] = sys._getframe()
    while frame is not None and frame.f_code is not shadow:
        frame = frame.f_back
    return frame is not None
