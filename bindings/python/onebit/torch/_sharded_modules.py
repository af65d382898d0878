# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Modules that fully_shard has sharded, and what PyTorch knows of them."""

from __future__ import annotations

import collections
import warnings
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist

from .._errors import InvalidArgument, InvalidUsage
from ._replica import bare_name

#: The root, whose name is empty for PyTorch.
ROOT = "(root)"

# No public function gives these. PyTorch 2.15 has them.
_READ = ("all_reduce_grads", "gradient_divide_factor", "mesh_info", "_all_reduce_hook")
_COLLECTIVES = ("_reduce_scatter_comm", "_all_gather_comm")


class ShardedModule:
    """A module that reduces its gradients by itself, as one tensor.

    Attributes:
        name: its name in the model, without those of wrappers.
        title: what texts call it.
        number: its place among those of the model, which is the same on all ranks.
        held: sums of micro-steps that wait for the last one, in the type in which gradients are
            reduced; None if there are none.
    """

    def __init__(self, name: str, number: int, module: Any, group: Any) -> None:
        self.name, self.title = name, _title(name)
        self.number = number
        self.held: Optional[torch.Tensor] = None
        self._module = module
        self._group = group

    @property
    def is_all_reducing(self) -> bool:
        """What the last set_requires_all_reduce said: False in all micro-steps but the last."""
        return bool(self._group.all_reduce_grads)

    @property
    def is_summed(self) -> bool:
        """Gradients are sums over all ranks, divided by the factor of set_gradient_divide_factor."""
        return self._group.gradient_divide_factor is not None

    @property
    def replica_group(self) -> Optional[dist.ProcessGroup]:
        """The replicas that PyTorch averages over itself."""
        group: Optional[dist.ProcessGroup] = getattr(self._group.mesh_info, "replicate_process_group", None)
        return group

    @property
    def shard_group(self) -> Optional[dist.ProcessGroup]:
        """The ranks that the module is sharded over."""
        group: Optional[dist.ProcessGroup] = getattr(self._group.mesh_info, "shard_process_group", None)
        return group

    def set_all_reduce_hook(self, hook: Any) -> None:
        self._module.set_all_reduce_hook(hook)

    def set_collectives(self, reduce_scatter: Any, all_gather: Optional[Any]) -> None:
        self._module.set_custom_reduce_scatter(reduce_scatter)
        if all_gather is not None:
            self._module.set_custom_all_gather(all_gather)

    @property
    def hook(self) -> Any:
        return self._group._all_reduce_hook  # pylint: disable=protected-access

    @property
    def collectives(self) -> List[Any]:
        """The collectives that somebody has set."""
        set_ones = [getattr(self._group, name) for name in _COLLECTIVES]
        return [
            each
            for each in set_ones
            if type(each).__name__ not in ("DefaultReduceScatter", "DefaultAllGather")
        ]


def sharded_modules(model: torch.nn.Module, function: str, needs: Sequence[str]) -> List[ShardedModule]:
    """The modules of a model that fully_shard has sharded, in the order of the model.

    Args:
        function: whose model it is, for errors.
        needs: methods of FSDPModule that the function calls.

    Raises:
        InvalidArgument: there is none.
        InvalidUsage: this PyTorch has no such methods, or keeps what is read here elsewhere.
    """
    fsdp_module = _fsdp_module(function, needs)
    found: Dict[int, ShardedModule] = {}  # modules that were sharded together share a group
    is_sharded = False
    for name, module in model.named_modules():
        if not isinstance(module, fsdp_module):
            continue
        is_sharded = True
        module.reshard()  # so that its parameters are those of this rank
        name = bare_name(name) or ROOT
        groups = _groups_of(module)
        if len(groups) > 1:
            raise InvalidUsage(
                f"{function}: {_title(name)} has parameters on several meshes, by shard_placement_fn, and "
                "PyTorch takes no hook for such a module: give modules of their own to the parameters "
                "of each mesh"
            )
        for group in groups:
            found.setdefault(id(group), ShardedModule(name, len(found), module, group))
    if not is_sharded:
        _refuse_unsharded(model, function)
    _warn_of_rest(model, function)
    return list(found.values())


def _title(name: str) -> str:
    return "the model itself" if name == ROOT else f'module "{name}"'


def _warn_of_rest(model: torch.nn.Module, function: str) -> None:
    """Warns of parameters that fully_shard has left out, which may be on purpose: see its ignored_params."""
    named = [(bare_name(name), each) for name, each in model.named_parameters() if each.requires_grad]
    rest = [name for name, each in named if not hasattr(each, "to_local")]  # DTensors have it
    if rest and dist.get_rank() == 0:
        more = f" and {len(rest) - 4} more" if len(rest) > 4 else ""
        warnings.warn(
            f"{function}: fully_shard has not sharded {', '.join(rest[:4])}{more}, so nothing "
            "averages their gradients, and they drift apart between ranks: first call "
            "fully_shard(model), which takes all that its submodules have left, or freeze or "
            "average them yourself",
            stacklevel=4,
        )


def part_groups(model: torch.nn.Module) -> Tuple[List[dist.ProcessGroup], List[int]]:
    """The groups of ranks that hold other parts of the same replica, one for each dimension of its
    meshes; and this rank's number among the ranks of the largest mesh, with their number."""
    from torch.distributed.tensor import DTensor  # pylint: disable=import-outside-toplevel

    groups: Dict[Tuple[int, ...], dist.ProcessGroup] = {}
    place = [0, 1]
    meshes = {
        id(each.device_mesh): each.device_mesh
        for each in model.parameters()
        if isinstance(each, DTensor)
    }
    for mesh in meshes.values():
        rank = 0
        for dimension, coordinate in enumerate(mesh.get_coordinate()):
            rank = rank * mesh.size(dimension) + coordinate
            group = mesh.get_group(dimension)
            if group.size() > 1:
                groups.setdefault(tuple(dist.get_process_group_ranks(group)), group)
        if mesh.size() > place[1]:
            place = [rank, mesh.size()]
    return list(groups.values()), place


def _fsdp_module(function: str, needs: Sequence[str]) -> Any:
    try:
        from torch.distributed.fsdp import FSDPModule  # pylint: disable=import-outside-toplevel
    except Exception:  # pylint: disable=broad-exception-caught; 1.13 has a ValueError under Python 3.11
        FSDPModule = None  # type: ignore[assignment,misc] # pylint: disable=invalid-name
    missing = [name for name in needs if not hasattr(FSDPModule, name)]
    if missing:
        raise InvalidUsage(
            f"{function} needs FSDPModule.{' and '.join(missing)}, which PyTorch {torch.__version__} "
            "does not have: install a newer one, such as 2.15"
        )
    return FSDPModule


def _groups_of(module: Any) -> List[Any]:
    """The parameter groups of a module; none if its submodules have all of its parameters."""
    state = module._get_fsdp_state()  # pylint: disable=protected-access
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:
        group = getattr(state, "_fsdp_param_group", None)
        groups = [] if group is None else [group]
    for group in groups:
        missing = [name for name in (*_READ, *_COLLECTIVES) if not hasattr(group, name)]
        if missing:
            raise InvalidUsage(
                f"fully_shard of PyTorch {torch.__version__} has no {', '.join(missing)}, by which "
                "onebit learns what a module is told about its gradients: use PyTorch 2.15, and report "
                "this"
            )
    return list(groups)


def _refuse_unsharded(model: torch.nn.Module, function: str) -> None:
    bases = collections.Counter(
        base.__name__ for module in model.modules() for base in type(module).__mro__
    )
    if "FullyShardedDataParallel" in bases:
        raise InvalidArgument(
            f"{function} is for fully_shard (FSDP2), and FullyShardedDataParallel (FSDP1) is not "
            "supported: shard the model with fully_shard"
        )
    raise InvalidArgument(
        f"{function}: no module of this {type(model).__name__} is sharded: call fully_shard first, or "
        "use onebit.torch.State with DistributedDataParallel"
    )
