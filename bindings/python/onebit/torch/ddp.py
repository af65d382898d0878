# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The communication hook of DistributedDataParallel.

Annotations are evaluated, unlike in other modules, because DDP compares those of a hook with its types.
"""

import concurrent.futures
import contextlib
import functools
import sys
import time
import warnings
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple, TypeVar, Union

import torch
import torch.distributed as dist

from .._compressor import Compressor
from .._errors import Error, InvalidArgument, InvalidUsage
from .._groups import group
from .._native import Codec, Mode, StateKind
from .._waits import exporting
from ._buckets import Part, buffer_of, check_type, gradients_in, is_sparse
from ._compression import Compression
from ._futures import Flags, in_thread, on_stream
from ._hook_report import Report
from ._host_link import HostLink
from ._membership import Membership
from ._memory_order import memory_order
from ._replica import group_of, has_joined, unwrapped
from ._saved_state import SavedState

_Result = TypeVar("_Result")
_COMPRESSIBLE = (torch.float32, torch.float16, torch.bfloat16)


def is_matrix(parameter: torch.Tensor) -> bool:
    """The default of State's `compress`: all but biases, norms and scalars."""
    return parameter.dim() > 1


class State:
    """What ddp_hook keeps between calls: a communicator, and a compressor for each parameter.

    Residuals belong to parameters, not to buckets, so they survive when DDP builds its buckets anew
    after the first iteration. The state joins a communicator of its own through `process_group`:
    all ranks construct it at the same point of the program, with the same arguments.

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
            but for `k`.
        mode: "ef" (default): error feedback; "plain": what a call loses is lost.
        block: elements that share a scale; None: the codec's default. Not for "bf16", which has no
            scales.
        k: elements that "topk" and "randk" send of each block; None: their default.
        levels: 2 where several ranks share a host and its link: one packet for all of them leaves
            it, and they share out its residual. 1: a packet of every rank does. None (default) or 0:
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
        module, replica = unwrapped(model)
        if replica is not None:
            process_group = group_of(replica, process_group)
        self._replica = None if replica is None else weakref.ref(replica)
        self._parameters = dict(module.named_parameters())
        self._names = {id(parameter): name for name, parameter in self._parameters.items()}
        self._tensor_ids = {name: number for number, name in enumerate(self._parameters)}
        self._compression = Compression(codec, mode, block, k, levels)
        self._compress = compress
        self._dense_iterations = dense_iterations
        self._grad_scaler = grad_scaler
        self._iteration = 0  # how many have begun
        self._last_index = sys.maxsize  # of the bucket before: an iteration begins with a lower one

        # Makes all calls on host memory, in the order of the hook's, which is the same on all
        # ranks. What follows belongs to this thread or, on a device, to that of the backward pass.
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "onebit")
        self._membership = Membership(self, process_group, self._thread)
        self._communicator = self._membership.communicator
        self._link = HostLink.of(self._communicator, process_group)
        self._stream: Optional[torch.cuda.Stream] = None
        self._compressors: Dict[str, Compressor] = {}
        self._link_bytes_of: Dict[str, int] = {}  # of a call
        self._step = _Step()
        self._iterations = self._dense = self._skipped = 0
        self._dense_bytes = 0
        self._dense_link_bytes = self._saved_bytes = 0  # on the link of this rank's host
        self._seconds = 0.0
        self._failure: Optional[Error] = None
        self._said_dense: Set[str] = set()
        self._is_closed = False
        self._last_report: Optional[Report] = None

    def close(self) -> None:
        """Waits until all ranks are done with the hook, and leaves the communicator. Collective, unless
        the communicator has failed: then it only leaves. A program that ends leaves by itself,
        without waiting."""
        self._membership.close(self._end)

    def revert(self) -> None:
        """Takes back the last iteration, whose averages the trainer throws away: residuals are what they
        were before it. Call it on all ranks between the same two iterations, after backward(), e.g.
        where a gradient's norm is too large for a step. Does nothing if the iteration was in full
        precision, or was not finite, so that it has been taken back.

        It takes back one iteration: accumulate gradients under no_sync().
        """
        self._run(self._revert)

    def _revert(self) -> None:
        self._settle()
        self._take_back()

    @property
    def failure(self) -> Optional[Error]:
        """The error that ended averaging, which a backward pass has raised as a RuntimeError; None if
        there is none."""
        return self._failure

    def average(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Queues the average of a bucket, which replaces its buffer."""
        self._check_open()
        original = bucket.buffer()
        if is_sparse(bucket):
            buffer = original.to_dense().view(-1)
        else:
            buffer = buffer_of(bucket)
        check_type(buffer, self._names_of(bucket))
        # DDP leaves out buckets without a used parameter if it is told to, be it the first or the last.
        is_first = bucket.index() <= self._last_index
        self._last_index = bucket.index()
        self._iteration += int(is_first)
        is_dense = self._iteration <= self._dense_iterations
        parts = [] if is_dense else self._parts_of(bucket, buffer)
        is_joined = has_joined(None if self._replica is None else self._replica())
        run = functools.partial(self._average, buffer, parts, is_first, is_dense, is_joined)

        def result() -> torch.Tensor:
            if original.layout == torch.strided:
                return original
            return buffer.view(original.shape).to_sparse(original.sparse_dim())

        if not buffer.is_cuda:
            return in_thread(self._thread, run, result)
        if self._stream is None:
            self._stream = torch.cuda.Stream(buffer.device)
        return on_stream(self._stream, run, result, buffer)

    def _check_open(self) -> None:
        if self._is_closed:
            raise InvalidUsage(
                "this onebit.torch.State is closed: its close() was called, or the program is about to end. "
                "Train, save and load before, or construct another one on all ranks"
            )

    def _run(self, function: Callable[[], _Result]) -> _Result:
        """Runs a function after all calls so far, and returns its result."""
        self._check_open()
        try:
            done = self._thread.submit(function)
        except RuntimeError:  # threads end before the functions that a program has for its end
            return function()
        return done.result()

    def _end(self) -> None:
        """Keeps the last report, before the communicator is left."""
        with contextlib.suppress(Error):
            self._last_report = self._report()
        self._is_closed = True

    def __deepcopy__(self, memo: Dict[int, Any]) -> "_Detached":
        """DDP keeps its hooks, and is copied with them, though they do not serve the copy."""
        return _Detached()

    def __reduce__(self) -> Tuple[Any, ...]:
        warnings.warn(
            "a onebit.torch.State, such as that of a pickled DDP model, is not saved with it: use "
            "state_dict() and load_state_dict()",
            stacklevel=2,
        )
        return _Detached, ()

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

        def export() -> Dict[str, torch.Tensor]:
            self._settle()
            names = sorted(self._compressors, key=self._tensor_ids.__getitem__)
            return {name: _tensor_of(self._compressors[name].export_state(kind)) for name in names}

        with exporting("state_dict()", self._communicator, kind):
            residuals = self._run(export)
        orders = {name: memory_order(self._parameters[name]) for name in residuals}
        return {
            "iteration": self._iteration,
            "kind": str(kind),
            "residuals": residuals,
            "orders": orders,
        }

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Takes over a state of `state_dict`: that of this rank, or the same global one on all. If it
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

        def load() -> None:
            self._settle()
            self._step = _Step()
            before = {name: each.export_state(StateKind.RANK) for name, each in self._compressors.items()}
            try:
                for name, blob in blobs.items():
                    self._import(name, blob)
            except Error:
                for name in self._compressors.keys() - before.keys():
                    self._compressors.pop(name).close()
                for name, blob in before.items():
                    self._import(name, blob)
                raise
            for name in before.keys() - blobs.keys():
                self._compressors[name].reset()

        self._run(load)
        self._iteration = saved.iteration
        self._last_index = sys.maxsize

    def _import(self, name: str, blob: bytes) -> None:
        """Gives a parameter a new compressor, with the residual of a state: where the library decides
        about levels, only a new one can take the one level of a state."""
        former = self._compressors.pop(name, None)
        if former is not None:
            former.close()
        parameter = self._parameters[name]
        dtype = torch.float32 if self._grad_scaler is not None else parameter.dtype
        compressor = self._compressor(name, parameter.numel(), dtype, parameter.device)
        try:
            compressor.import_state(blob)
        except Error as error:
            raise type(error)(f"the residual of {name}: {error}") from error
        self._link_bytes_of[name] = self._link.bytes_of(compressor)  # in the levels of the state

    def _is_compressed(self, name: str) -> bool:
        """Tells if a parameter of the model gets residuals."""
        parameter = self._parameters[name]
        is_possible = parameter.requires_grad and parameter.dtype in _COMPRESSIBLE
        return is_possible and self._name_if_wanted(parameter) is not None

    def report(self) -> Report:
        """What this rank has sent and computed so far, or had when it was closed, and what it owes.
        Local."""
        return self._last_report or self._run(self._report)

    def _report(self) -> Report:
        self._settle()
        stats = self._communicator.stats()
        codec_seconds = stats.codec_ns / 1e9
        link_bytes = dense_link_bytes = break_even = None
        if self._link.is_on_rail:
            dense_link_bytes = self._dense_link_bytes
            link_bytes = dense_link_bytes - self._saved_bytes
            if self._saved_bytes > 0 and codec_seconds > 0:
                break_even = 8 * self._saved_bytes / codec_seconds
        return Report(
            iterations=self._iterations,
            dense_iterations=self._dense,
            skipped_iterations=self._skipped,
            bytes_sent=stats.bytes_sent,
            network_bytes=stats.network_bytes,
            dense_bytes=self._dense_bytes,
            host_ranks=self._link.sharing,
            link_bytes=link_bytes,
            dense_link_bytes=dense_link_bytes,
            seconds=self._seconds,
            codec_seconds=codec_seconds,
            break_even_bits_per_second=break_even,
            residual_norms={
                name: compressor.residual_norm() for name, compressor in self._compressors.items()
            },
        )

    # --------------------------------------------------------------------- averages, on their thread

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
        if buffer.dtype not in _COMPRESSIBLE:
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
                f"DDP averages a parameter of shape {tuple(parameter.shape)} that the model given to "
                "onebit.torch.State does not have: give it the model that DDP wraps"
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
    def _average(
        self,
        buffer: torch.Tensor,
        parts: List[Part],
        is_first: bool,
        is_dense: bool,
        is_joined: Optional[bool],
    ) -> None:
        """Averages a bucket; without parts all of it in full precision."""
        begin = time.monotonic()
        try:
            if is_first:
                self._take_back_skipped()
                self._step = _Step()
            stream = torch.cuda.current_stream(buffer.device) if buffer.is_cuda else None
            if is_joined is not None:
                self._weigh(buffer, is_joined, stream)
            if parts:
                self._average_parts(parts, stream)
            else:
                self._communicator.all_reduce(buffer, op="avg", stream=stream)
                if not is_dense:
                    self._step.add([torch.isfinite(buffer).all()])
        except Exception as error:
            if self._failure is None and isinstance(error, Error):
                self._failure = error
            # Other ranks may wait for the call that this one could not make.
            if self._communicator.failure is None:
                self._communicator.abort()
            raise
        self._iterations += int(is_first)
        self._dense += int(is_first and is_dense)
        bucket_bytes = len(buffer) * buffer.element_size()
        size = self._communicator.size
        self._dense_bytes += 2 * (size - 1) * bucket_bytes // size
        self._dense_link_bytes += self._link.dense_bytes(bucket_bytes)
        self._seconds += time.monotonic() - begin

    def _weigh(self, buffer: torch.Tensor, is_joined: bool, stream: Any) -> None:
        """Makes the average over all ranks one over those that have not joined. What is multiplied is
        what goes in, so that residuals keep their unit when another rank joins."""
        active = torch.full((1,), float(not is_joined), device=buffer.device)
        self._communicator.all_reduce(active, op="sum", stream=stream)
        buffer.mul_(self._communicator.size / active)

    def _average_parts(self, parts: List[Part], stream: Any) -> None:
        scale = None
        if self._grad_scaler is not None:
            # Public, and without a wait for the device, unlike get_scale().
            scale = self._grad_scaler.scale(torch.ones((), device=parts[0].values.device))
            for part in parts:
                part.unscale(scale)
        compressed = [part for part in parts if part.name is not None]
        others = [part.values for part in parts if part.name is None]
        has_residuals = self._compression.mode == Mode.EF and len(compressed) > 0
        if has_residuals:
            uses = torch.stack([part.is_used() for part in compressed]).to(torch.float32)
            others.append(uses)
        called = []
        with group():
            for part in compressed:
                values = part.values
                called.append(self._compressor(part.name, len(values), values.dtype, values.device))
                tensor_bytes = len(values) * part.gradient.element_size()
                self._saved_bytes += self._link.dense_bytes(tensor_bytes)
                self._saved_bytes -= self._link_bytes_of[part.name]
                self._communicator.all_reduce(
                    part.values, op="avg", compressor=called[-1], stream=stream
                )
            # Calls in full precision are short. Neighbours share messages.
            for values in others:
                self._communicator.all_reduce(values, op="avg", stream=stream)
        if scale is not None:
            for part in parts:
                part.scale(scale)
        if has_residuals:
            for part, use in zip(compressed, uses):
                part.clear_unless(use)
        are_finite = [part.is_finite(self._compression.mode) for part in parts]
        self._step.add(are_finite, called, uses if has_residuals else None)

    def _compressor(
        self, name: str, count: int, dtype: torch.dtype, device: torch.device
    ) -> Compressor:
        """The compressor of a parameter, made by the first call."""
        compressor = self._compressors.get(name)
        if compressor is None:
            compressor = self._compression.compressor(
                self._communicator,
                count,
                dtype,
                tensor_id=self._tensor_ids[name],
                device=device,
            )
            self._compressors[name] = compressor
            self._link_bytes_of[name] = self._link.bytes_of(compressor)
        return compressor

    def _settle(self) -> None:
        """Decides about the last step, from a thread that has enqueued none of it."""
        if self._stream is not None:
            self._stream.synchronize()
        self._take_back_skipped()

    def _take_back_skipped(self) -> None:
        """Reverts the compressors of averages that nobody takes: those of a step that was not finite,
        which the trainer throws away, since a gradient scaler does not know what was sent for it; and
        those of parameters that no rank has used, whose gradients DDP leaves alone. The averages are
        the same bytes on all ranks, and so is the decision, unless the communicator has failed."""
        step = self._step
        if self._communicator.failure is not None:
            return
        is_finite, unused = step.take_flags()
        if not is_finite:
            self._take_back()
        for compressor in unused:
            compressor.revert()

    def _take_back(self) -> None:
        """Reverts all compressors of the last step, unless that has been done."""
        called, self._step.called = self._step.called, []
        for compressor in called:
            compressor.revert()
        self._skipped += int(len(called) > 0)


def ddp_hook(state: State, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket of gradients for DistributedDataParallel, beside the backward pass:

        model.register_comm_hook(onebit.torch.State(model), onebit.torch.ddp_hook)

    Every rank gets the same bytes. Works with no_sync(), join(), gradient_as_bucket_view, unused
    parameters, static_graph, mixed precision, and parameters of several types. For
    join(divide_by_initial_world_size=False) the State needs the wrapped model. A step that is not finite is taken
    back from the residuals of all parameters, also where several optimizers share a scaler. Where a
    rank is lost the backward pass raises a RuntimeError that names it; on CUDA devices that of the
    next iteration does, and the averages of this one are NaN.
    """
    return state.average(bucket)


class _Step:
    """The averages of an iteration: which compressors were called, which of them for gradients that no
    rank had, and which results are finite."""

    def __init__(self) -> None:
        self.called: List[Compressor] = []
        self._flags: List[Tuple[Flags, List[Compressor]]] = []

    def add(
        self,
        are_finite: List[torch.Tensor],
        called: Sequence[Compressor] = (),
        uses: Optional[torch.Tensor] = None,
    ) -> None:
        """Adds a bucket; uses[i]: whether any rank had a gradient for what called[i] averaged."""
        self.called.extend(called)
        flags = torch.stack(are_finite)
        if uses is None:
            self._flags.append((Flags(flags), []))
        else:
            self._flags.append((Flags(torch.cat([uses != 0, flags])), list(called)))

    def take_flags(self) -> Tuple[bool, List[Compressor]]:
        """Whether all results are finite, and the compressors of what no rank has used; once."""
        is_finite, unused = True, []
        for flags, compressors in self._flags:
            values = flags.values()
            is_finite = all(values[len(compressors) :]) and is_finite
            unused += [compressor for compressor, use in zip(compressors, values) if not use]
        self._flags.clear()
        return is_finite, unused


class _Detached:
    """Stands for a State in a copy of its model, which it does not serve."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise InvalidUsage(
            "this is no onebit.torch.State, but stands for one in a copied or pickled DDP model: construct "
            "one for this model, and load_state_dict() what state_dict() of the other has given"
        )


def _tensor_of(state: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(state), dtype=torch.uint8)
