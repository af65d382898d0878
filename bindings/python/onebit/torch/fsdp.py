# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Compressed averages for models that fully_shard (FSDP2) has sharded.

Hosts with several devices each, which hold replicas of a model, and shard it inside a host (HSDP):

    mesh = init_device_mesh("cuda", (hosts, devices), mesh_dim_names=("replicate", "shard"))
    for block in model.blocks:
        fully_shard(block, mesh=mesh["shard"])
    fully_shard(model, mesh=mesh["shard"])
    state = onebit.torch.fsdp.compress_replicas(model, mesh["replicate"])

or a model that is sharded over all ranks:

    fully_shard(model)
    state = onebit.torch.fsdp.compress_shards(model)
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
import warnings
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import torch
import torch.distributed as dist

from .._compressor import Compressor
from .._errors import Error, InvalidArgument, InvalidUsage, PeerLost
from .._native import Codec, Collective, Mode, StateKind
from ._compression import Compression, warn_of_coarse
from ._hook_report import Report
from ._membership import Membership
from ._module_averaging import ModuleAveraging, refuse_count
from ._replica import unwrapped
from ._sharded_modules import ShardedModule, sharded_modules

__all__ = ["ReplicaState", "ShardState", "compress_replicas", "compress_shards"]

# Weights survive these without error feedback. The others draw anew in each call, or send few elements.
_GATHER_CODECS = (Codec.INT8, Codec.UINT8MM, Codec.FP4, Codec.BF16, Codec.LOSSLESS)


def compress_replicas(
    model: torch.nn.Module,
    replicas: Any,
    codec: Union[str, Codec, None] = "fp4",
    *,
    mode: Union[str, Mode] = "ef",
    block: Optional[int] = None,
    k: Optional[int] = None,
    levels: Optional[int] = None,
    dense_iterations: int = 2,
    grad_scaler: Optional[Any] = None,
) -> ReplicaState:
    """Averages the gradients of a sharded model over its replicas, as fully_shard on a mesh of two
    dimensions does (HSDP), but compressed.

        for block in model.blocks:
            fully_shard(block, mesh=mesh["shard"])
        fully_shard(model, mesh=mesh["shard"])
        state = onebit.torch.fsdp.compress_replicas(model, mesh["replicate"])

    Collective over all ranks of the replicas. Parameters and buffers become those of the first replica.
    Each sharded module gets an all-reduce hook with a compressor for its shard, biases and norms
    included. Error feedback takes 8 bytes per element of this rank's shard, and 8 / n more for those of
    sums, where n is the number of replicas; in two levels 8 / L in place of 8, where L ranks share a host.

    Micro-steps are accumulated by set_requires_all_reduce(False) or set_requires_gradient_sync(False)
    on all but the last of them, and send nothing over the replicas. With set_gradient_divide_factor(f)
    gradients are sums over all ranks, divided by f, as in HSDP. A parameter that has gradients in some
    steps only needs model.set_reduce_scatter_unused_params(True), because a module's gradients are one
    tensor. A step that is not finite somewhere is taken back from the residuals of all modules on all
    ranks; for this the ranks of a mesh that the model is sharded over agree on a number in each backward
    pass, where mode is "ef". Ranks of other pipeline stages are not asked: call revert() there.

    Works with MixedPrecisionPolicy, reshard_after_forward, activation checkpointing without reentrance,
    tied weights, torch.compile of modules, and tensor parallelism. On CUDA devices the averages are enqueued
    on the stream of fully_shard's all-reduces. torch.distributed.checkpoint does not see the residuals:
    save state_dict().

    Args:
        model: a module that fully_shard has sharded over the ranks that hold a replica together; or one
            that torch.compile has wrapped.
        replicas: the ranks that hold the same shard: a DeviceMesh of one dimension, or a process group.
        codec: as for onebit.torch.State; None: full precision, with the bits of HSDP if there are two
            replicas.
        mode: "ef" (default): error feedback; "plain": what a call loses is lost.
        block, k, levels: as for onebit.torch.State.
        dense_iterations: backward passes in full precision before the first compressed one.
        grad_scaler: the GradScaler of the training loop, if it has one. Residuals are then kept in the
            unit of unscaled gradients.

    Raises:
        InvalidArgument: nothing of the model is sharded; `replicas` is of another kind, or has ranks that
            hold other shards; or options do not go together.
        InvalidUsage: the modules already have a hook, or average over replicas by themselves; or this
            PyTorch is too old.
        onebit.Error: the ranks could not join; the text says who was missing and where.
    """
    function = "onebit.torch.fsdp.compress_replicas"
    compression = None if codec is None else Compression(codec, mode, block, k, levels)
    module, _ = unwrapped(model)
    shards = sharded_modules(module, function, ["set_all_reduce_hook", "set_requires_all_reduce"])
    group = _group_of(replicas, function)
    for shard in shards:
        if shard.replica_group is not None:
            raise InvalidUsage(
                f"{shard.title} is sharded over a mesh with replicas, over which PyTorch averages "
                'itself: give fully_shard the dimension that shards, mesh["shard"], and the other one '
                "to compress_replicas"
            )
        if shard.hook is not None and not _is_closed(shard.hook):
            raise InvalidUsage(
                f"{shard.title} already has an all-reduce hook, and takes only one: call {function} once"
            )
        _check_ranks(shard, group)
    _refuse_meta(module)
    if compression is not None:
        warn_of_coarse(compression, stacklevel=2)
    state = ReplicaState(module, shards, group, compression, dense_iterations, grad_scaler)
    _broadcast(module, group)
    for shard in shards:
        shard.set_all_reduce_hook(_Hook(state, shard))
    return state


def compress_shards(
    model: torch.nn.Module,
    codec: Union[str, Codec, None] = "int8",
    gather: Union[str, Codec, None] = None,
    *,
    mode: Union[str, Mode] = "plain",
    block: Optional[int] = None,
    k: Optional[int] = None,
    levels: Optional[int] = None,
    dense_iterations: int = 0,
    grad_scaler: Optional[Any] = None,
) -> ShardState:
    """Compresses the reduce-scatters, and by choice the all-gathers, of a model that fully_shard has
    sharded:

        fully_shard(model)
        state = onebit.torch.fsdp.compress_shards(model)

    Collective over the ranks that the model is sharded over. By default nothing is kept between calls,
    so that it takes no memory, and checkpoints are those without it. With mode="ef" the reduce-scatters have
    error feedback. It then takes 8 bytes per element of the *whole* model on each rank, because a rank
    sends gradients of all shards: more than parameters, gradients and AdamW's state of a shard as soon as
    there are more than two ranks. Where the replicas of a model are on several hosts, compress_replicas
    takes far less.

    With `gather` the parameters that forward and backward passes compute with are rounded, on all ranks alike.
    The shards that the optimizer updates, and that checkpoints have, keep full precision. gather="lossless"
    rounds nothing: it sends what has changed since the last all-gather, which in a backward pass is nothing. It
    suits fine-tuning in bf16 over slow links, where few elements change in a step. Each rank then keeps a copy
    of the whole model in the type that it gathers, as fully_shard does with reshard_after_forward=False, and
    the host waits for each call.

    Both may be applied to a model with compress_replicas: the first inside the hosts, the second
    between them.

    Args:
        model: a module that fully_shard has sharded; or one that torch.compile has wrapped.
        codec: of the reduce-scatters, as for onebit.torch.State; None: full precision.
        gather: of the all-gathers: "int8", "uint8mm", "fp4", "bf16" or "lossless"; None: they stay PyTorch's.
        mode: "plain" (default): what a call loses is lost; "ef": error feedback of the reduce-scatters.
        block, k, levels: of the reduce-scatters, as for onebit.torch.State.
        dense_iterations: backward passes whose reduce-scatters are in full precision before the first
            compressed one.
        grad_scaler: as for compress_replicas; it matters with mode="ef" only.

    Raises:
        InvalidArgument: nothing of the model is sharded, its modules are sharded over different ranks, or
            options do not go together.
        InvalidUsage: the modules already have custom collectives; or this PyTorch is too old.
        onebit.Error: the ranks could not join; the text says who was missing and where.
    """
    function = "onebit.torch.fsdp.compress_shards"
    compression = None if codec is None else Compression(codec, mode, block, k, levels)
    gathering = None if gather is None else _gather_compression(gather)
    module, _ = unwrapped(model)
    shards = sharded_modules(module, function, ["set_custom_reduce_scatter", "set_custom_all_gather"])
    groups = {
        tuple(dist.get_process_group_ranks(each)): each
        for each in (shard.shard_group for shard in shards)
        if each
    }
    if len(groups) != 1:
        raise InvalidArgument(
            f"{function}: the modules of this model are sharded over {len(groups)} sets of ranks, "
            f"{', '.join(str(list(ranks)) for ranks in groups)}, but share a communicator: call it for "
            "parts of the model, such as its blocks, that have the same"
        )
    for shard in shards:
        if not all(map(_is_closed, shard.collectives)):
            raise InvalidUsage(
                f"{shard.title} already has custom collectives (set_custom_reduce_scatter, "
                f"set_custom_all_gather, set_symm_mem_for_comm or an earlier {function}): set them once"
            )
    if compression is not None:
        warn_of_coarse(compression, stacklevel=2)
    replicas = shards[0].replica_group
    if replicas is not None and dist.get_backend(replicas) != "onebit" and dist.get_rank() == 0:
        warnings.warn(
            f"{function}: the model is sharded over a mesh with replicas, over which PyTorch averages in full "
            'precision: if their links are slow, give fully_shard the dimension that shards, mesh["shard"], and '
            "the other one to onebit.torch.fsdp.compress_replicas",
            stacklevel=2,
        )
    group = next(iter(groups.values()))
    state = ShardState(module, shards, group, compression, gathering, dense_iterations, grad_scaler)
    for shard in shards:
        shard.set_collectives(
            _ReduceScatter(state, shard), _AllGather(state, shard) if gathering else None
        )
    return state


class ReplicaState(ModuleAveraging):
    """What compress_replicas keeps between calls: a communicator of the replicas of this rank's shard, and a
    compressor for each sharded module. Another communicator, of the ranks of all shards, makes no calls: it
    knows which rank is lost, where a rank only sees that others do not answer."""

    def _join(self) -> None:
        super()._join()
        self._lost: Optional[PeerLost] = None
        self._everyone: Optional[Membership] = None
        assert self._process_group is not None
        ranks = _ranks_in_reach([self._process_group, *self._part_groups])
        if len(ranks) == dist.get_world_size():
            self._everyone = Membership(self, None)
        elif self._part_groups:
            group = dist.new_group(ranks, backend="gloo", use_local_synchronization=True)
            self._everyone = Membership(self, group)
            dist.destroy_process_group(group)

    @property
    def failure(self) -> Optional[Error]:
        return self._loss or self._failure

    @property
    def _loss(self) -> Optional[PeerLost]:
        """The loss of a rank, which may hold another shard."""
        if self._lost is None and self._everyone is not None and self._everyone.is_here:
            failure = self._everyone.communicator.failure
            if isinstance(failure, PeerLost):
                self._lost = failure
                self._everyone.name_ranks(failure)
        return self._lost

    @contextlib.contextmanager
    def _failing(self) -> Any:
        try:
            with super()._failing():
                yield
        except (Error, RuntimeError) as error:  # the latter of PyTorch's collectives
            if self._loss is not None:
                raise self._loss from error
            raise

    def close(self) -> None:
        """Waits until the ranks of all shards and replicas are done, and leaves. Collective, unless a rank
        is lost: then it only leaves."""
        if self._loss is not None and not self._is_closed:
            self._communicator.abort()
        try:
            super().close()
        finally:
            if self._everyone is not None:
                self._everyone.close()

    @torch.no_grad()
    def _average(self, shard: ShardedModule, reduced: torch.Tensor) -> None:
        """Averages what a module's reduce-scatter has given, or keeps it for the last micro-step."""
        self._check_open()
        begin = time.monotonic()
        with self._failing():
            self._enter(shard)
            held, shard.held = shard.held, None
            if held is not None and held.numel() != reduced.numel():
                refuse_count(shard, reduced.numel(), held.numel())
            if not shard.is_all_reducing:
                shard.held = reduced.clone() if held is None else held.add_(reduced)
                reduced.zero_()  # PyTorch adds it to the gradients
                return
            if held is not None:
                reduced.add_(held)
            self._begin_iteration()
            stream = self._stream_of(reduced)
            if stream is not None:
                reduced.record_stream(stream)
            op = "sum" if shard.is_summed else "avg"

            def call(values: torch.Tensor, _: torch.Tensor, compressor: Optional[Compressor]) -> None:
                self._communicator.all_reduce(values, op=op, compressor=compressor, stream=stream)

            tensor_bytes = reduced.numel() * reduced.element_size()
            if self._is_dense or not self._is_compressible(shard, reduced):
                call(reduced, reduced, None)
            else:
                self._compress(shard, reduced, reduced, call)
                self._count_saved(shard.name, tensor_bytes)
            self._count_dense(tensor_bytes)
        self._seconds += time.monotonic() - begin


class ShardState(ModuleAveraging):
    """What compress_shards keeps between calls: communicators of the ranks that a model is sharded over, and
    a compressor for each sharded module."""

    _collective = Collective.REDUCE_SCATTER

    def __init__(
        self,
        model: torch.nn.Module,
        shards: Sequence[ShardedModule],
        group: dist.ProcessGroup,
        compression: Optional[Compression],
        gathering: Optional[Compression],
        dense_iterations: int,
        grad_scaler: Optional[Any],
    ) -> None:
        super().__init__(model, shards, group, compression, dense_iterations, grad_scaler)
        # On devices all-gathers and reduce-scatters have streams of their own, and run at the same time.
        self._gathering = None
        if gathering is not None:
            self._gathering = _Gathering(model, shards, group, gathering, 0, None)

    def close(self) -> None:
        try:
            super().close()
        finally:
            if self._gathering is not None:
                self._gathering.close()

    def _report(self) -> Report:
        report = super()._report()
        if self._gathering is None:
            return report
        other = self._gathering.report()
        added = ["bytes_sent", "network_bytes", "dense_bytes", "seconds", "codec_seconds"]
        if report.link_bytes is not None:
            added += ["link_bytes", "dense_link_bytes"]
        sums = {name: getattr(report, name) + getattr(other, name) for name in added}
        break_even = None
        if report.link_bytes is not None and sums["codec_seconds"] > 0:
            saved_bytes = sums["dense_link_bytes"] - sums["link_bytes"]
            break_even = 8 * saved_bytes / sums["codec_seconds"] if saved_bytes > 0 else None
        return dataclasses.replace(report, break_even_bits_per_second=break_even, **sums)

    def _check_shard(self, state: Dict[str, Any], kind: StateKind) -> None:
        if kind == StateKind.RANK:
            super()._check_shard(state, kind)
        else:  # those of all shards are the same
            shard = state.get("shard")
            first = shard[0] if isinstance(shard, (list, tuple)) and shard else 0
            self._compare_shard(state, [first, self._place[1]])

    @torch.no_grad()
    def _reduce_scatter(
        self, shard: ShardedModule, out: torch.Tensor, tensor: torch.Tensor, reduce_op: Any
    ) -> None:
        self._check_open()
        begin = time.monotonic()
        with self._failing():
            self._enter(shard)
            self._begin_iteration()
            stream = self._stream_of(tensor)
            op, factor = _op_of(reduce_op)

            def call(
                values: torch.Tensor, result: torch.Tensor, compressor: Optional[Compressor]
            ) -> None:
                self._communicator.reduce_scatter(
                    values, out=result, op=op, compressor=compressor, stream=stream
                )

            # A reduce-scatter sends half of what an all-reduce does.
            tensor_bytes = tensor.numel() * tensor.element_size() // 2
            if self._is_dense or not self._is_compressible(shard, tensor):
                call(tensor, out, None)
            else:
                self._compress(shard, tensor, out, call)
                self._count_saved(shard.name, tensor_bytes)
            if factor != 1:
                out.mul_(factor)
            self._count_dense(tensor_bytes)
        self._seconds += time.monotonic() - begin

    def _all_gather(
        self, shard: ShardedModule, out: torch.Tensor, part: torch.Tensor, group: dist.ProcessGroup
    ) -> None:
        self._check_open()
        assert self._gathering is not None
        self._gathering.gather(shard, out, part, group)


class _Gathering(ModuleAveraging):
    """The all-gathers of a ShardState."""

    _collective = Collective.ALL_GATHER

    def _end(self) -> None:
        super()._end()
        for compressor in self._compressors.values():
            compressor.close()  # a copy of the weights, if it is lossless
        self._compressors.clear()

    @torch.no_grad()
    def gather(
        self, shard: ShardedModule, out: torch.Tensor, part: torch.Tensor, group: dist.ProcessGroup
    ) -> None:
        """Gathers the parts of a module's parameters, each as its receivers have it."""
        if group.size() != self._communicator.size:
            # With a number for reshard_after_forward the backward pass gathers from fewer ranks.
            dist.all_gather_into_tensor(out, part, group=group)
            return
        begin = time.monotonic()
        with self._failing():
            compressor = None
            tensor_bytes = out.numel() * out.element_size() // 2  # sends half of what an all-reduce does
            if self._is_compressible(shard, part):
                kind = self._kinds.setdefault(shard.name, (part.numel(), part.dtype, part.device))
                if kind[0] != part.numel():
                    refuse_count(shard, part.numel(), kind[0])
                compressor = self._compressor(shard.name, *kind)
            stream = self._stream_of(out)
            own = out.view(self._communicator.size, -1)[self._communicator.rank]
            if own.data_ptr() != part.data_ptr():
                own.copy_(part)
            self._communicator.all_gather(out, compressor=compressor, stream=stream)
            if compressor is not None:
                assert self._compression is not None
                if self._compression.is_lossless:  # each call sends as much as has changed
                    self._keep_link_bytes(shard.name, compressor)
                self._count_saved(shard.name, tensor_bytes)
            self._count_dense(tensor_bytes)
        self._seconds += time.monotonic() - begin


class _Attached:
    """What a sharded module calls; it belongs to a state."""

    def __init__(self, state: Any, shard: ShardedModule) -> None:
        self.state = state
        self._shard = shard


class _Hook(_Attached):
    """All-reduces what a module's reduce-scatter has given."""

    def __call__(self, reduced: torch.Tensor) -> None:
        self.state._average(self._shard, reduced)  # pylint: disable=protected-access


class _Allocating(_Attached):
    """A collective that PyTorch also asks for its buffers."""

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class _ReduceScatter(_Allocating):
    """The reduce-scatter of a module."""

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> None:
        del group, async_op  # of the same ranks; streams order calls
        # pylint: disable-next=protected-access
        self.state._reduce_scatter(self._shard, output_tensor, input_tensor, op)


class _AllGather(_Allocating):
    """The all-gather of a module."""

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> None:
        del async_op  # streams order calls
        # pylint: disable-next=protected-access
        self.state._all_gather(self._shard, output_tensor, input_tensor, group)


def _is_closed(attached: Any) -> bool:
    """Tells if something that a module calls belongs to a state that has been closed."""
    # pylint: disable-next=protected-access
    return isinstance(attached, _Attached) and attached.state._is_closed


def _op_of(op: Any) -> Tuple[str, float]:
    """The op of a reduce-scatter of PyTorch, and what its result is multiplied by."""
    kind = getattr(op, "op", op)
    if kind == dist.ReduceOp.AVG:
        return "avg", 1.0
    if kind == dist.ReduceOp.SUM:
        return "sum", 1.0
    factor = getattr(op, "factor", None)
    if factor is None:
        raise InvalidUsage(
            f"fully_shard reduces gradients by {op}, but onebit by sums and averages: leave out "
            "set_gradient_divide_factor, or add set_force_sum_reduction_for_comms(True)"
        )
    return "sum", float(factor)


def _group_of(replicas: Any, function: str) -> dist.ProcessGroup:
    """The process group of a mesh of one dimension, or the one that is given."""
    if isinstance(replicas, dist.ProcessGroup):
        return replicas
    if not hasattr(replicas, "get_group"):
        raise InvalidArgument(
            f"{function}: replicas is a {type(replicas).__name__}, but must be a DeviceMesh of one "
            'dimension, such as mesh["replicate"], or a process group'
        )
    if replicas.ndim != 1:
        raise InvalidArgument(
            f"{function}: replicas is a mesh of {replicas.ndim} dimensions, {replicas.mesh_dim_names}: "
            'give the one of the replicas, such as mesh["replicate"]'
        )
    group: dist.ProcessGroup = replicas.get_group()
    return group


def _check_ranks(shard: ShardedModule, replicas: dist.ProcessGroup) -> None:
    """Refuses ranks that hold other parts of a module as its replicas."""
    others = shard.shard_group
    if others is None:
        return
    common = set(dist.get_process_group_ranks(others)) & set(dist.get_process_group_ranks(replicas))
    if common != {dist.get_rank()}:
        raise InvalidArgument(
            f"ranks {sorted(common)} of replicas hold different shards of {shard.title}: give the ranks "
            'that hold the same one, such as mesh["replicate"], and fully_shard those that hold '
            'different ones, mesh["shard"]'
        )


def _refuse_meta(model: torch.nn.Module) -> None:
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.is_meta:
            raise InvalidArgument(
                f"{name} is on the device meta: call model.to_empty() and set its values first"
            )


def _ranks_in_reach(groups: Sequence[dist.ProcessGroup]) -> List[int]:
    """The ranks that are in one group with this one, or with one of those, and so on. Collective."""
    ranks = {dist.get_rank()}
    for group in groups:
        found: List[Any] = [None] * group.size()
        dist.all_gather_object(found, ranks, group=group)
        ranks = set().union(*found)
    return sorted(ranks)


@torch.no_grad()
def _broadcast(model: torch.nn.Module, group: dist.ProcessGroup) -> None:
    """Makes this rank's parts of parameters and buffers those of the first replica."""
    source = dist.get_global_rank(group, 0)
    for tensor in [*model.parameters(), *model.buffers()]:
        own = tensor.to_local() if hasattr(tensor, "to_local") else tensor.detach()
        values = own.contiguous()
        dist.broadcast(values, src=source, group=group)
        if values is not own:
            own.copy_(values)


def _gather_compression(codec: Union[str, Codec]) -> Compression:
    compression = Compression(codec, "plain", None, None, None, is_of_weights=True)
    if compression.codec not in _GATHER_CODECS:
        raise InvalidArgument(
            f'gather="{compression.codec}" does not suit weights, which have no error feedback: use '
            '"int8", "uint8mm", "fp4", "bf16" or "lossless"'
        )
    return compression
