# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The communication hook of DistributedDataParallel.

Annotations are evaluated, unlike in other modules, because DDP compares those of a hook with its types.
"""

import concurrent.futures
import functools
import sys
import time
import warnings
import weakref
from typing import Any, Callable, Dict, List, Optional, Set, Tuple, Union

import torch
import torch.distributed as dist

from .._collectives import prepared_all_reduce
from .._errors import InvalidArgument, InvalidUsage
from .._groups import group
from .._native import Codec, Mode, StateKind
from ._averaging import Averaging, Step
from ._buckets import Part, Plan, buffer_of, check_type, gradients_in, is_sparse
from ._compression import COMPRESSIBLE, Compression, warn_of_coarse
from ._futures import in_thread, on_stream
from ._hook_report import Report
from ._memory_order import memory_order
from ._replica import group_of, has_joined, refuse_sharded, unwrapped
from ._saved_state import SavedState
from ._trial import Turns

# Calls after which what 4 bits owe is a ten-thousandth of what they owed.
_SETTLING_CALLS = 4


def is_matrix(parameter: torch.Tensor) -> bool:
    """The default of State's `compress`: all but biases, norms and scalars."""
    return parameter.dim() > 1


def compression_of(
    codec: Union[str, Codec] = "fp4",
    mode: Union[str, Mode] = "ef",
    block: Optional[int] = None,
    k: Optional[int] = None,
    levels: Optional[int] = None,
) -> Compression:
    """How a State with these options compresses, if it does.

    Raises:
        InvalidArgument: they do not go together.
    """
    return Compression("fp4" if codec == "auto" else codec, mode, block, k, levels)


class State(Averaging):
    """What ddp_hook keeps between calls: a communicator, and a compressor for each parameter.

    Residuals belong to parameters, not to buckets, so they survive when DDP builds its buckets anew
    after the first iteration. The state joins a communicator of its own through `process_group`:
    all ranks construct it at the same point of the program, with the same arguments. Before
    init_process_group it may be constructed, too; the ranks then join at the first average, which with
    several states is that of the same one on all ranks.

    A parameter takes 8 bytes per element and rank for residuals, and 8 / n more for those of sums;
    in two levels 8 / L in place of 8, where L ranks share a host.

    Args:
        model: the module, wrapped by DDP or not. Its named_parameters() name the residuals in
            state_dict().
        process_group: the group that DDP averages over. None: that of `model` if DDP wraps it, and
            otherwise the default group. With data and tensor parallelism it is the data-parallel
            group, as for DDP.
        codec: "fp4" (default), "bf16", "int8", "int2" or "sign". 1-bit signs suit optimizers whose variance
            is frozen, not a plain Adam. Other codecs of onebit.Compressor have their defaults here,
            except for `k`. "auto": full precision or "fp4", whichever makes iterations shorter. It
            times 16 iterations after the dense ones, in full precision and in 4 bits by turns, all
            ranks choose alike, and report() has the choice with both times.
        mode: "ef" (default): error feedback; "plain": what a call loses is lost.
        block: elements that share a scale; None: the codec's default. Not for "bf16", which has no
            scales.
        k: elements that "topk" and "randk" send of each block; None: their default.
        levels: 2 where several ranks share a host and its link: one packet for all of them leaves it,
            and they share its residual. 1: a packet of every rank does. None (default) or 0:
            the library decides for each parameter. With 2 it still does for those that are so short
            that they take one exchange, which has one level; "topk" and "randk" take two hops; and
            parameters on a CUDA device are refused where calls there can only have one level.
        compress: tells which parameters are compressed; the others are averaged in full precision.
            The same answers on all ranks. Default: parameters of two and more dimensions, because
            biases and norms are few bytes, and their elements differ too much in size.
        dense_iterations: iterations in full precision before the first compressed one.
        grad_scaler: the GradScaler of the training loop, if it has one. Residuals are then kept in
            the unit of unscaled gradients, so that they stay right when the scale changes.

    Raises:
        InvalidArgument: options do not go together; or `process_group` has other ranks than that of
            the wrapped model.
        onebit.Error: the ranks could not join; the text says who was missing and where.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        process_group: Optional[dist.ProcessGroup] = None,
        codec: Union[str, Codec] = "fp4",
        mode: Union[str, Mode] = "ef",
        block: Optional[int] = None,
        k: Optional[int] = None,
        levels: Optional[int] = None,
        compress: Callable[[torch.Tensor], bool] = is_matrix,
        dense_iterations: int = 2,
        grad_scaler: Optional[Any] = None,
    ) -> None:
        refuse_sharded(model, "onebit.torch.State")
        module, replica = unwrapped(model)
        if replica is not None:
            process_group = group_of(replica, process_group)
        self._replica = None if replica is None else weakref.ref(replica)
        self._parameters = dict(module.named_parameters())
        self._names = {id(parameter): name for name, parameter in self._parameters.items()}
        self._tensor_ids = {name: number for number, name in enumerate(self._parameters)}
        self._compress = compress
        self._dense_iterations = dense_iterations
        self._iteration = 0  # how many have begun
        self._iterations_here = 0  # those of them that no loaded state has counted
        self._last_index = sys.maxsize  # of the bucket before: an iteration begins with a lower one
        self._is_dense = True  # the iteration that has begun
        self._turns = Turns() if codec == "auto" else None
        self._plans: Dict[int, Plan] = {}  # by the numbers of buckets
        self._said_dense: Set[str] = set()
        compression = compression_of(codec, mode, block, k, levels)
        warn_of_coarse(compression, stacklevel=2)
        thread = concurrent.futures.ThreadPoolExecutor(1, "onebit")
        super().__init__(process_group, compression, thread, grad_scaler)

    def average(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Queues the average of a bucket, which replaces its buffer."""
        self._check_open()
        if self._membership is None:
            self._join()
        original = bucket.buffer()
        buffer = original.to_dense().view(-1) if is_sparse(bucket) else buffer_of(bucket)
        # DDP leaves out buckets without a used parameter if it is told to, be it the first or the last.
        is_first = bucket.index() <= self._last_index
        self._last_index = bucket.index()
        if is_first:
            self._begin_iteration(buffer)
        plan = self._plan_of(bucket, buffer)
        is_joined = has_joined(None if self._replica is None else self._replica())
        run = functools.partial(self._average, plan, is_first, self._is_dense, is_joined)

        def result() -> torch.Tensor:
            if original.layout == torch.strided:
                return original
            return buffer.view(original.shape).to_sparse(original.sparse_dim())

        assert self._thread is not None
        if not buffer.is_cuda:
            return in_thread(self._thread, run, result)
        if self._stream is None:
            self._stream = torch.cuda.Stream(buffer.device)
        return on_stream(self._stream, run, result, buffer)

    def _end(self) -> None:
        super()._end()
        self._plans.clear()

    def _begin_iteration(self, buffer: torch.Tensor) -> None:
        self._iteration += 1
        self._iterations_here += 1
        if self._iteration <= self._dense_iterations:  # again, if an early state has been loaded
            self._is_dense = True
            return
        if self._turns is None:
            self._is_dense = self._trial is not None and not self._trial.is_compressed
            return
        if buffer.is_cuda:
            # The host is ahead of the device, and waits for it in compressed iterations only.
            torch.cuda.current_stream(buffer.device).synchronize()
        if self._turns.begin(time.monotonic()):
            with self._failing():
                self._trial = self._run(functools.partial(self._turns.choose, self._communicator))
            self._turns = None
            self._is_dense = not self._trial.is_compressed
        else:
            self._is_dense = self._turns.is_dense

    # ----------------------------------------------------------------------------------- checkpoints

    def state_dict(self, kind: Union[str, StateKind] = "global") -> Dict[str, Any]:
        """The residuals, and how many iterations there were.

        Args:
            kind: "global": collective, the same on all ranks, so that one copy is enough; fits any
                number of ranks, hosts and levels, and what is owed to later averages stays the same.
                "rank": local; with the state of each rank a job of as many ranks, in two levels on
                the same hosts, continues bit for bit.
        """
        kind = StateKind.of(kind)
        residuals = self._exported(kind)
        orders = {name: memory_order(self._parameters[name]) for name in residuals}
        return {
            "iteration": self._iteration,
            "kind": str(kind),
            "residuals": residuals,
            "orders": orders,
        }

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Loads a state from `state_dict`: this rank's own, or the same global one on all. If it
        fails, all is as before.

        The model may be compiled or wrapped otherwise than the one that was saved. Residuals of
        parameters that it does not have, or does not compress any more, are dropped with a warning.
        States of kind "rank" need the levels that parameters had; where the library decides, those
        that had one level keep it.

        Raises:
            InvalidArgument: it is no such state, or that of another model.
            onebit.Error: a residual is damaged or belongs to something else; the text names it.
        """
        saved = SavedState.parse(state)
        blobs = saved.residuals_of(self._parameters, self._is_compressed)
        try:
            self._take_over(blobs, lambda _: self._membership is not None)
        finally:
            self._plans.clear()
        self._iteration = saved.iteration
        self._last_index = sys.maxsize

    def _kind_of(self, name: str) -> Tuple[int, torch.dtype, torch.device]:
        parameter = self._parameters[name]
        dtype = torch.float32 if self._grad_scaler is not None else parameter.dtype
        return parameter.numel(), dtype, parameter.device

    def _tensor_id_of(self, name: str) -> int:
        return self._tensor_ids[name]

    def _is_compressed(self, name: str) -> bool:
        """Tells if a parameter of the model gets residuals."""
        parameter = self._parameters[name]
        is_possible = parameter.requires_grad and parameter.dtype in COMPRESSIBLE
        return is_possible and self._name_if_wanted(parameter) is not None

    # --------------------------------------------------------------------- averages, on their thread

    def _plan_of(self, bucket: dist.GradBucket, buffer: torch.Tensor) -> Plan:
        """The plan for a bucket, which stays until DDP builds its buckets anew."""
        parameters = bucket.parameters()
        if is_sparse(bucket):  # in new memory each time
            check_type(buffer, self._names_of(bucket))
            return Plan(buffer, parameters, self._parts_of(bucket, buffer))
        plan = self._plans.get(bucket.index())
        if plan is None or not plan.is_for(buffer, parameters):
            check_type(buffer, self._names_of(bucket))
            plan = Plan(buffer, parameters, self._parts_of(bucket, buffer))
            if self._iterations_here > 1:  # DDP gives up the memory of the first one's buckets
                self._plans[bucket.index()] = plan
        return plan

    def _parts_of(self, bucket: dist.GradBucket, buffer: torch.Tensor) -> List[Part]:
        """The gradients of a bucket; none of them if it can only be averaged as a whole, in full
        precision."""
        wanted = [self._name_if_wanted(parameter) for parameter in bucket.parameters()]
        if is_sparse(bucket):
            self._say_dense(wanted, "its gradient is sparse; sparse=False lets it be compressed")
            return []
        gradients = gradients_in(bucket, buffer)
        if gradients is None:
            self._say_dense(wanted, "DDP stores its gradient as one of another type or shape")
            return []
        if buffer.dtype not in COMPRESSIBLE:
            self._say_dense(wanted, f"no codec compresses {buffer.dtype}")
            return []
        return [Part(name, gradient) for name, gradient in zip(wanted, gradients)]

    def _name_if_wanted(self, parameter: torch.Tensor) -> Optional[str]:
        name = self._name_of(parameter)
        return name if parameter.numel() > 0 and self._compress(parameter) else None

    def _name_of(self, parameter: torch.Tensor) -> str:
        name = self._names.get(id(parameter))
        if name is None:
            raise InvalidArgument(
                f"DDP averages a parameter of shape {tuple(parameter.shape)} that the model "
                "passed to onebit.torch.State does not have: pass it the model that DDP wraps"
            )
        return name

    def _names_of(self, bucket: dist.GradBucket) -> str:
        return ", ".join(self._name_of(parameter) for parameter in bucket.parameters())

    def _say_dense(self, names: List[Optional[str]], reason: str) -> None:
        """Says once of each parameter why it is not compressed, although `compress` wants it."""
        news = [name for name in names if name is not None and name not in self._said_dense]
        if news:
            self._said_dense.update(news)
            warnings.warn(f"{', '.join(news)}: averaged in full precision, because {reason}", stacklevel=3)

    @torch.no_grad()
    def _average(self, plan: Plan, is_first: bool, is_dense: bool, is_joined: Optional[bool]) -> None:
        """Averages a bucket."""
        begin = time.monotonic()
        buffer = plan.buffer
        with self._failing():
            if is_first:
                self._take_back_skipped()
                self._step = Step()
            stream = torch.cuda.current_stream(buffer.device) if buffer.is_cuda else None
            if is_joined is not None:
                self._weigh(buffer, is_joined, stream)
            if plan.parts and not is_dense:
                self._average_parts(plan, stream)
            else:
                self._communicator.all_reduce(buffer, op="avg", stream=stream)
                if self._trial is not None and not self._trial.is_compressed and self._compressors:
                    self._settle_debts(plan, stream)
                if not is_dense:
                    self._step.add(torch.isfinite(buffer).all().view(1))
        self._iterations += int(is_first)
        self._dense += int(is_first and is_dense)
        self._count_dense(len(buffer) * buffer.element_size())
        self._seconds += time.monotonic() - begin

    def _weigh(self, buffer: torch.Tensor, is_joined: bool, stream: Any) -> None:
        """Makes the average over all ranks one over those that have not joined. What is multiplied is
        what goes in, so that residuals keep their unit when another rank joins."""
        active = torch.full((1,), float(not is_joined), device=buffer.device)
        self._communicator.all_reduce(active, op="sum", stream=stream)
        buffer.mul_(self._communicator.size / active)

    def _average_parts(self, plan: Plan, stream: Any) -> None:
        scale = self._scale_on(plan.buffer.device)
        if scale is not None:
            for part in plan.compressed:
                part.unscale(scale)
        if plan.calls is None:
            self._prepare(plan, stream)
        assert plan.calls is not None
        uses = plan.uses() if self._compression.mode == Mode.EF and plan.compressed else None
        with group():
            for call in plan.calls:
                call()
            # Calls in full precision are short. Neighbours share messages.
            if uses is not None:
                self._communicator.all_reduce(uses, op="avg", stream=stream)
        if scale is not None:
            for part in plan.compressed:
                part.scale(scale)
            plan.calls = None  # their tensors are gone
        if uses is not None:
            plan.clear_unless(uses)
        has_nan_everywhere = self._compression.mode == Mode.EF and scale is None
        self._step.add(plan.are_finite(has_nan_everywhere), plan.compressors, uses)
        self._saved_bytes += plan.saved_bytes

    def _prepare(self, plan: Plan, stream: Any) -> None:
        """Makes the calls of a plan ready, so that an iteration does no more than make them."""
        average = functools.partial(prepared_all_reduce, self._communicator, op="avg", stream=stream)
        plan.compressors, plan.calls, plan.saved_bytes = [], [], 0
        assert self._link is not None
        for part in plan.compressed:
            assert part.name is not None
            values = part.values
            compressor = self._compressor(part.name, len(values), values.dtype, values.device)
            plan.compressors.append(compressor)
            plan.calls.append(average(values, compressor=compressor))
            plan.saved_bytes += self._link.dense_bytes(len(values) * part.gradient.element_size())
            plan.saved_bytes -= self._link_bytes_of[part.name]
        plan.calls += [average(part.gradient) for part in plan.others]

    def _settle_debts(self, plan: Plan, stream: Any) -> None:
        """Adds to averages what the compressed turns of a trial owe, once full precision was chosen: the
        compressors send it, until next to nothing is left, and are closed. An average that nobody
        takes, because it is not finite or no rank has used its parameter, leaves this to a later one;
        all ranks see the same one."""
        if not torch.isfinite(plan.buffer).all():
            return
        scale = self._scale_on(plan.buffer.device)
        for part in plan.compressed:
            assert part.name is not None
            compressor = self._compressors.get(part.name)
            if compressor is None or not part.gradient.any():
                continue
            if self._compression.mode == Mode.EF:
                count, dtype, device = self._kind_of(part.name)
                rest = torch.zeros(count, dtype=dtype, device=device)
                for _ in range(_SETTLING_CALLS):
                    values = torch.zeros_like(rest)
                    self._communicator.all_reduce(values, op="avg", compressor=compressor, stream=stream)
                    rest += values
                part.gradient.add_(rest if scale is None else rest.mul_(scale))
            del self._compressors[part.name]
            compressor.close()


def ddp_hook(
    state: State, bucket: dist.GradBucket, *sharded: torch.Tensor
) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket of gradients for DistributedDataParallel, alongside the backward pass:

        model.register_comm_hook(onebit.torch.State(model), onebit.torch.ddp_hook)

    Every rank gets the same bytes. Works with no_sync(), join(), gradient_as_bucket_view, unused
    parameters, static_graph, mixed precision, and parameters of several types. For
    join(divide_by_initial_world_size=False) the State needs the wrapped model. A step that is not finite is taken
    back from the residuals of all parameters, also where several optimizers share a scaler. Where a
    rank is lost the backward pass raises a RuntimeError that names it; on CUDA devices that of the
    next iteration does, and the averages of this one are NaN.
    """
    if sharded:
        raise InvalidUsage(
            "onebit.torch.ddp_hook is for DistributedDataParallel, not FullyShardedDataParallel "
            "(FSDP1), which is "
            "not supported: shard the model with fully_shard (FSDP2), and call onebit.torch.fsdp.compress_shards, or "
            "compress_replicas for a mesh of two dimensions"
        )
    if not isinstance(state, State):
        raise InvalidUsage(
            f"onebit.torch.ddp_hook needs a State, and was registered with {state!r}: call "
            "model.register_comm_hook(onebit.torch.State(model), onebit.torch.ddp_hook)"
        )
    return state.average(bucket)
