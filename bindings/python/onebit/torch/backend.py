# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A backend of torch.distributed for one dimension of a mesh: that of replicas, which crosses slow links.

Collectives over that dimension are compressed, whoever calls them: fully_shard on a mesh of two dimensions
(HSDP), replicate(), torch.distributed's own functions and functional collectives.

    mesh = init_device_mesh(
        "cuda", (hosts, 8), mesh_dim_names=("dp_replicate", "dp_shard"),
        backend_override={"dp_replicate": "onebit"},
    )
    fully_shard(model, mesh=mesh)

With options: `backend_override={"dp_replicate": ("onebit", onebit.torch.backend.Options(codec="fp4"))}`.
`dist.new_group(ranks, backend="onebit", pg_options=Options(...))` makes a single group.

PyTorch finds the backend of an installed package by itself. Where only PYTHONPATH leads to the package, call
`onebit.torch.backend.register()` first. PyTorch 2.14 or newer is needed.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import datetime
import functools
import threading
import warnings
from typing import Any, Callable, Counter, List, NoReturn, Optional, Sequence, Tuple, Union

import torch
import torch.distributed as dist

from .._communicator import Communicator, Config
from .._compressor import Compressor
from .._errors import Error, InvalidArgument, InvalidUsage, Timeout
from .._groups import group
from .._native import Codec, Collective, RedOp
from ._compression import COMPRESSIBLE, Compression
from ._futures import of_call, on_stream
from ._membership import Membership, join_through_store

_NEEDED = (2, 14)
if tuple(int(part) for part in torch.__version__.split(".")[:2]) < _NEEDED:
    raise ImportError(
        f"onebit.torch.backend needs PyTorch {_NEEDED[0]}.{_NEEDED[1]} or newer, where backends can be written "
        f"in Python; this is {torch.__version__}. onebit.torch.State and onebit.torch.optim work with it"
    )

from torch._C._distributed_c10d import (  # pylint: disable=wrong-import-position,wrong-import-order
    Backend,
    ReduceOp,
    Work,
)

__all__ = ["OnebitBackend", "Options", "register"]

_NAME = "onebit"
_INSTEAD = (
    "use the backend gloo or nccl for this group; the onebit backend is meant for the data-parallel replicate "
    "dimension of a mesh"
)
# More kinds of calls than this take turns in the compressors. Without residuals a new one loses nothing.
_MAX_COMPRESSORS = 256
_OPS = {
    ReduceOp.SUM: RedOp.SUM,
    ReduceOp.AVG: RedOp.AVG,
    ReduceOp.MAX: RedOp.MAX,
    ReduceOp.MIN: RedOp.MIN,
    ReduceOp.PREMUL_SUM: RedOp.SUM,
}
_NATIVE = (
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.uint8,
    torch.int32,
    torch.int64,
)
# Types that have the results of wider ones, cut off: sums wrap around, and a sum of booleans is true if it is
# not zero.
_WIDER = {
    torch.bool: torch.int32,
    torch.int8: torch.int32,
    torch.int16: torch.int32,
    torch.uint16: torch.int32,
    torch.uint32: torch.int64,
}
_MAX_MS = 2**31 - 1


def register() -> None:
    """Makes the backend "onebit" known to torch.distributed, for CPU and CUDA tensors. Calling it again does
    nothing."""
    if _NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(_NAME, _create, extended_api=True, devices=["cpu", "cuda"])


class Options(Backend.Options):
    """Options of a group of the backend. All its ranks give the same ones.

    Args:
        codec: "int8" (default) or another codec of onebit.Compressor, which compresses sums and averages.
            There is no error feedback, so that no state is kept: "int8" costs no accuracy in training, "fp4"
            little; of codecs of less bits take onebit.torch.State. None or "none": full precision.
        min_bytes: smaller tensors are reduced in full precision.
        timeout: a call without progress for so long fails, unless ONEBIT_COLLECTIVE_TIMEOUT_MS is set.
            For groups of init_device_mesh; otherwise that of init_process_group or new_group counts.

    Raises:
        ValueError: there is no such codec, or a number is out of range; the text says what there is.
    """

    def __init__(
        self,
        codec: Union[str, Codec, None] = "int8",
        *,
        min_bytes: int = 65536,
        timeout: datetime.timedelta = dist.default_pg_timeout,
    ) -> None:
        super().__init__(_NAME, timeout)
        if isinstance(min_bytes, bool) or not isinstance(min_bytes, int) or min_bytes < 0:
            raise InvalidArgument(f"min_bytes={min_bytes!r} must be a number of bytes that is not negative")
        self.min_bytes = min_bytes
        is_dense = codec is None or codec == "none"
        self.compression = None if is_dense else Compression(codec, "plain", None, None, None)


class OnebitBackend(Backend):
    """The backend of one group. PyTorch makes it; programs call torch.distributed.

    Sums and averages of float32, float16 and bfloat16 are compressed if the tensor is large enough; every rank
    gets the same bytes. All else passes in full precision: other reductions and types, all-gathers and
    broadcasts, which carry parameters.

    Calls are made in their order. Those on CPU tensors run in a thread, beside the program, if they have
    `async_op=True`; those on a CUDA device on a stream of their own, for which wait() has the current stream
    wait. An error of a call is raised by its wait(), on a CUDA device by that of a later call, where the result
    may be wrong: the text names the rank that was lost. As of every backend in Python, `is_completed()` of a
    call always says no: ask `get_future().done()`.

    A tensor need not be contiguous: it is then copied, which Gloo leaves out, with wrong results.

    destroy_process_group() waits for the other ranks, unless the group has failed. A program that ends leaves
    without them.
    """

    # PyTorch asks for each of these, and those that it inherits ask again, without end.
    supports_splitting = False
    supports_coalescing = False
    supports_shrinking = False
    supports_reconfigure = False
    supports_window = False
    _supports_time_estimate = False

    def __init__(self, store: dist.Store, rank: int, size: int, options: Options) -> None:
        """Joins the group. Collective.

        Raises:
            onebit.Error: the ranks could not join; the text says who was missing and where.
        """
        super().__init__(rank, size)
        self._options = options
        timeout_ms = int(options._timeout.total_seconds() * 1000)  # pylint: disable=protected-access
        config = Config(collective_timeout_ms=min(max(timeout_ms, 1), _MAX_MS))
        self._calls = _Calls(join_through_store(store, rank, size, config))
        self._compressors = _Compressors(self._calls.communicator, options)

    def getBackendName(self) -> str:  # pylint: disable=invalid-name; PyTorch's
        return _NAME

    @property
    def options(self) -> Options:
        return self._options

    def shutdown(self) -> None:
        """Waits until all ranks are done with the group, unless it has failed, and leaves."""
        try:
            self._calls.close()
        except Error as error:
            # PyTorch has other groups to end, and its tables to clear.
            warnings.warn(f"the end of a process group of the onebit backend: {error}", stacklevel=2)

    def abort(self) -> None:
        """Ends calls of the group, on all ranks, and leaves."""
        self._calls.abort()

    # ----------------------------------------------------------------------------------- collectives

    def allreduce(self, tensors: List[torch.Tensor], opts: Any) -> Work:
        return self._all_reduce("all_reduce", [_only("all_reduce", tensors)], opts)

    def allreduce_coalesced(self, tensors: List[torch.Tensor], opts: Any) -> Work:
        return self._all_reduce("all_reduce_coalesced", tensors, opts)

    def _all_reduce(self, what: str, tensors: List[torch.Tensor], opts: Any) -> Work:
        parts = [([tensor], tensor) for tensor in tensors]
        return self._reduce(what, Collective.ALL_REDUCE, parts, opts, tensors)

    def reduce_scatter_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any) -> Work:
        return self.reduce_scatter_single_coalesced([output], [given], opts)

    def reduce_scatter_single_coalesced(
        self, outputs: List[torch.Tensor], inputs: List[torch.Tensor], opts: Any
    ) -> Work:
        for output, given in zip(outputs, inputs):
            _check_count("reduce_scatter_tensor: input", given, self.size() * output.numel(), "ranks * output")
        parts = [([given], output) for output, given in zip(outputs, inputs)]
        return self._reduce("reduce_scatter_tensor", Collective.REDUCE_SCATTER, parts, opts, outputs)

    def reduce_scatter(
        self, outputs: List[torch.Tensor], inputs: List[List[torch.Tensor]], opts: Any
    ) -> Work:
        output, given = _only("reduce_scatter", outputs), _only("reduce_scatter", inputs)
        self._check_list("reduce_scatter: input_list", given, output)
        return self._reduce("reduce_scatter", Collective.REDUCE_SCATTER, [(given, output)], opts, outputs)

    def all_gather_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any) -> Work:
        return self.all_gather_single_coalesced([output], [given], opts)

    def all_gather_single_coalesced(
        self,
        outputs: List[torch.Tensor],
        inputs: List[torch.Tensor],
        opts: Any = None,  # pylint: disable=unused-argument
    ) -> Work:
        what = "all_gather_into_tensor"
        for output, given in zip(outputs, inputs):
            _check_count(f"{what}: output", output, self.size() * given.numel(), "ranks * input")
            _check_type(f"{what}: output", output, given)

        def call(communicator: Communicator, stream: Any) -> None:
            places = [_Result(output, output.dtype) for output in outputs]
            with _together(outputs):
                for given, place in zip(inputs, places):
                    communicator.all_gather(_bytes(given), out=_bytes(place.values), stream=stream)
            for place in places:
                place.deliver()

        return self._calls.add(what, [*inputs, *outputs], call, outputs)

    def allgather(
        self,
        outputs: List[List[torch.Tensor]],
        inputs: List[torch.Tensor],
        opts: Any = None,  # pylint: disable=unused-argument
    ) -> Work:
        given, pieces = _only("all_gather", inputs), _only("all_gather", outputs)
        self._check_list("all_gather: tensor_list", pieces, given)

        def call(communicator: Communicator, stream: Any) -> None:
            gathered = torch.empty((len(pieces), given.numel()), dtype=given.dtype, device=given.device)
            communicator.all_gather(_bytes(given), out=_bytes(gathered), stream=stream)
            for piece, values in zip(pieces, gathered):
                piece.copy_(values.view(piece.shape))

        return self._calls.add("all_gather", [given, *pieces], call, outputs)

    def broadcast(self, tensors: List[torch.Tensor], opts: Any) -> Work:
        tensor, root = _only("broadcast", tensors), opts.rootRank
        if not 0 <= root < self.size():
            raise InvalidArgument(f"broadcast: there is no rank {root} in the group, which has {self.size()}")

        def call(communicator: Communicator, stream: Any) -> None:
            place = _Result(tensor, tensor.dtype)
            communicator.broadcast(_bytes(tensor), root, out=_bytes(place.values), stream=stream)
            place.deliver()

        return self._calls.add("broadcast", [tensor], call, tensors)

    def barrier(self, opts: Any = None) -> Work:  # pylint: disable=unused-argument
        return self._calls.add("barrier", [], lambda communicator, _: communicator.barrier(), [])

    def _reduce(
        self,
        what: str,
        collective: Collective,
        parts: List[Tuple[List[torch.Tensor], torch.Tensor]],
        opts: Any,
        result: Any,
    ) -> Work:
        """Reduces parts: what each rank has, one behind the other, and where the result goes."""
        op, factor = _op_of(what, opts.reduceOp)
        for given, output in parts:
            _check_type(what, output, *given)
            _check_reducible(what, output.dtype, opts.reduceOp)

        def call(communicator: Communicator, stream: Any) -> None:
            function = (
                communicator.all_reduce
                if collective == Collective.ALL_REDUCE
                else communicator.reduce_scatter
            )
            places = [_Result(output, _type_of(output)) for _, output in parts]
            taken: Counter[Any] = collections.Counter()
            with _together(parts):
                for (given, _), place in zip(parts, places):
                    values = _in_a_row(given).to(place.values.dtype)
                    if factor is not None:
                        values = values * factor
                    compressor = self._compressors.of(collective, op, values, place.values.numel(), taken)
                    function(values, out=place.values, op=op, compressor=compressor, stream=stream)
            for place in places:
                place.deliver()
            self._compressors.trim()

        tensors = [tensor for given, output in parts for tensor in (*given, output)]
        return self._calls.add(what, tensors, call, result)

    def _check_list(self, what: str, tensors: Sequence[torch.Tensor], like: torch.Tensor) -> None:
        if len(tensors) != self.size():
            raise InvalidArgument(f"{what} has {len(tensors)} tensors, but the group has {self.size()} ranks")
        for number, tensor in enumerate(tensors):
            _check_count(f"{what}[{number}]", tensor, like.numel(), "as many as the other tensor")
            _check_type(f"{what}[{number}]", tensor, like)

    # ---------------------------------------------------------------------------- what there is not

    def allreduce_sparse(self, *_: Any) -> NoReturn:
        _refuse("all_reduce of sparse tensors")

    def reduce(self, *_: Any) -> NoReturn:
        _refuse("reduce (all_reduce is there)")

    def allgather_coalesced(self, *_: Any) -> NoReturn:
        _refuse("all_gather_coalesced (all_gather_into_tensor is there)")

    def gather(self, *_: Any) -> NoReturn:
        _refuse("gather (all_gather is there)")

    def scatter(self, *_: Any) -> NoReturn:
        _refuse("scatter (broadcast is there)")

    def all_to_all_single(self, *_: Any) -> NoReturn:
        _refuse("all_to_all_single")

    def alltoall(self, *_: Any) -> NoReturn:
        _refuse("all_to_all")

    def send(self, *_: Any) -> NoReturn:
        _refuse("send")

    def recv(self, *_: Any) -> NoReturn:
        _refuse("recv")

    def recv_anysource(self, *_: Any) -> NoReturn:
        _refuse("recv")

    def monitored_barrier(self, *_: Any) -> NoReturn:
        _refuse("monitored_barrier (barrier is there, and names a rank that is lost)")

    def start_coalescing(self) -> NoReturn:
        _refuse("coalescing of calls on a device (all_reduce_coalesced is there)")

    def split(self, *_: Any) -> NoReturn:
        _refuse("split_group (new_group is there)")

    def merge(self, *_: Any) -> NoReturn:
        _refuse("merging of groups")


class _Calls:
    """Makes the calls of a group in the order in which they come: on host memory in a thread, on a device on a
    stream of their own, which the program's thread fills while that thread rests."""

    def __init__(self, communicator: Communicator) -> None:
        self.communicator = communicator
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "onebit")
        self._membership = Membership(self, None, self._thread, communicator=communicator)
        self._stream: Optional[torch.cuda.Stream] = None
        self._last: Optional[concurrent.futures.Future[None]] = None  # in the thread
        self._lock = threading.Lock()  # a backward pass makes calls in threads of its own
        self._is_closed = False

    def add(
        self,
        what: str,
        tensors: Sequence[torch.Tensor],
        call: Callable[[Communicator, Any], None],
        result: Any,
    ) -> Work:
        """Adds a call on tensors, which must not be changed until it is done.

        Args:
            call: makes it, with the communicator and the stream, of which host memory has none.
            result: that of the work's future.
        """
        device = _device_of(what, tensors)
        with self._lock:
            if self._is_closed:
                raise InvalidUsage(
                    f"{what}: the process group was destroyed, or the program is about to end: make the calls before"
                )
            if device.type == "cpu":
                try:
                    self._last = self._thread.submit(self._run, call, None)
                except RuntimeError as error:
                    raise InvalidUsage(f"{what}: the program is about to end: {error}") from error
                return _ThreadWork(what, self._last, result)
            if self._last is not None:
                concurrent.futures.wait([self._last])
            if self._stream is None:
                self._stream = torch.cuda.Stream(device)
            run = functools.partial(self._run, call, self._stream)
            future = on_stream(self._stream, run, lambda: result, tensors[0])
            for tensor in tensors[1:]:
                tensor.record_stream(self._stream)
            return _StreamWork(future, self.communicator)

    @torch.no_grad()
    def _run(self, call: Callable[[Communicator, Any], None], stream: Any) -> None:
        try:
            if stream is None and self._stream is not None:
                self._stream.synchronize()  # calls on the device came before
            call(self.communicator, stream)
        except Exception:
            # Other ranks may wait for the call that this one could not make.
            if self.communicator.failure is None:
                self.communicator.abort()
            raise

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        if self._stream is not None:
            self._stream.synchronize()
        self._membership.close()

    def abort(self) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self.communicator.abort()
        self._membership.close()


class _ThreadWork(Work):
    """A call in the thread."""

    def __init__(self, what: str, call: concurrent.futures.Future[None], result: Any) -> None:
        super().__init__()
        self._what = what
        self._call = call
        self._result = result

    def wait(self, timeout: datetime.timedelta = datetime.timedelta(0)) -> bool:
        seconds = timeout.total_seconds()
        try:
            self._call.result(seconds if seconds > 0 else None)
        except concurrent.futures.TimeoutError as error:
            if self._call.done():  # with that of the call itself
                raise
            raise Timeout(
                f"{self._what} has not ended within {seconds:g} s; it goes on, and its tensors are in use"
            ) from error
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        return of_call(self._call, lambda: self._result)


class _StreamWork(Work):
    """A call on a stream."""

    def __init__(self, future: torch.futures.Future[Any], communicator: Communicator) -> None:
        super().__init__()
        self._future = future
        self._communicator = communicator

    def wait(
        self, timeout: datetime.timedelta = datetime.timedelta(0)  # pylint: disable=unused-argument
    ) -> bool:
        self._future.wait()
        failure = None if self._communicator.is_closed else self._communicator.failure
        if failure is not None:
            raise failure
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        return self._future


class _Compressors:
    """Compressors of a group, one for each kind of call; those used last are kept."""

    def __init__(self, communicator: Communicator, options: Options) -> None:
        self._communicator = communicator
        self._options = options
        self._kept: collections.OrderedDict[Any, Compressor] = collections.OrderedDict()

    def of(
        self,
        collective: Collective,
        op: RedOp,
        values: torch.Tensor,
        count: int,
        taken: Counter[Any],
    ) -> Optional[Compressor]:
        """The compressor of a call; None: it passes in full precision. The ranks' calls are alike, and so are
        the compressors that they make and keep.

        Args:
            count: elements, as the call counts them.
            taken: how many calls of a kind the open group has, as a compressor serves one of them.
        """
        compression = self._options.compression
        is_compressed = (
            compression is not None
            and op in (RedOp.SUM, RedOp.AVG)
            and values.dtype in COMPRESSIBLE
            and values.numel() > 0
            and values.numel() * values.element_size() >= self._options.min_bytes
        )
        if not is_compressed:
            return None
        kind = (collective, op, count, values.dtype, values.device)
        key = (kind, taken[kind])
        taken[kind] += 1
        if key not in self._kept:
            self._kept[key] = compression.compressor(
                self._communicator, count, values.dtype, device=values.device, collective=collective
            )
        self._kept.move_to_end(key)
        return self._kept[key]

    def trim(self) -> None:
        """Closes the compressors that were not used for longest, outside a group of calls."""
        while len(self._kept) > _MAX_COMPRESSORS:
            self._kept.popitem(last=False)[1].close()


class _Result:
    """Memory in a row for the result of a call, which is that of a tensor where it can be."""

    def __init__(self, tensor: torch.Tensor, dtype: torch.dtype) -> None:
        self._tensor = tensor
        self._is_copy = not tensor.is_contiguous() or tensor.dtype != dtype
        self.values = (
            torch.empty(tensor.numel(), dtype=dtype, device=tensor.device)
            if self._is_copy
            else _row(tensor)
        )

    def deliver(self) -> None:
        """Hands the result to the tensor."""
        if self._is_copy:
            self._tensor.copy_(self.values.view(self._tensor.shape))


def _create(given: Any, options: Optional[Options]) -> OnebitBackend:
    """Makes the backend of a group for PyTorch, which gives its store, rank and size."""
    if options is None:
        options = Options(timeout=given.timeout)
    elif not isinstance(options, Options):
        raise InvalidArgument(
            f"options of the backend onebit are a onebit.torch.backend.Options, not a {type(options).__name__}"
        )
    if given.enable_reconfigure:
        _refuse("reconfiguration")
    options._timeout = given.timeout  # pylint: disable=protected-access
    return OnebitBackend(given.store, given.group_rank, given.group_size, options)


def _refuse(what: str) -> NoReturn:
    raise NotImplementedError(f"the onebit backend has no {what}: {_INSTEAD}")


def _only(what: str, tensors: Sequence[Any]) -> Any:
    """The tensor, or list of tensors, of the only device that a rank has."""
    if len(tensors) != 1:
        raise InvalidArgument(f"{what} takes one tensor of each rank, not {len(tensors)}")
    return tensors[0]


def _check_count(what: str, tensor: torch.Tensor, count: int, why: str) -> None:
    if tensor.numel() != count:
        raise InvalidArgument(f"{what} has {tensor.numel()} elements, but needs {count}: {why}")


def _check_type(what: str, tensor: torch.Tensor, *others: torch.Tensor) -> None:
    for other in others:
        if tensor.dtype != other.dtype:
            raise InvalidArgument(f"{what}: tensors are of {tensor.dtype} and {other.dtype}: convert one of them")


def _check_reducible(what: str, dtype: torch.dtype, reduce_op: Any) -> None:
    if dtype not in _NATIVE and dtype not in _WIDER:
        raise NotImplementedError(f"{what}: the onebit backend reduces no {dtype}: convert it, or {_INSTEAD}")
    op = _kind_of(reduce_op)
    if op in (ReduceOp.AVG, ReduceOp.PREMUL_SUM) and not dtype.is_floating_point:
        raise InvalidArgument(f"{what}: {op.name} of {dtype} would be no {dtype}: use SUM, and divide")


def _kind_of(reduce_op: Any) -> Any:
    """The kind of a reduction, which has a factor if it is PREMUL_SUM."""
    return getattr(reduce_op, "op", reduce_op)


def _op_of(what: str, reduce_op: Any) -> Tuple[RedOp, Any]:
    """The reduction as the library has it, and what each rank multiplies its values by before."""
    kind = _kind_of(reduce_op)
    if kind not in _OPS:
        _refuse(f"{kind.name} in {what} (SUM, AVG, MAX, MIN and PREMUL_SUM are there)")
    return _OPS[kind], reduce_op.factor if kind == ReduceOp.PREMUL_SUM else None


def _device_of(what: str, tensors: Sequence[torch.Tensor]) -> torch.device:
    """Where the tensors of a call are; a call without any is one of the host."""
    for tensor in tensors:
        if tensor.layout != torch.strided:
            _refuse(f"{what} of sparse tensors")
        if tensor.device.type not in ("cpu", "cuda"):
            _refuse(f"{what} on {tensor.device}")
        if tensor.device != tensors[0].device:
            raise InvalidArgument(
                f"{what}: tensors are on {tensors[0].device} and {tensor.device}: move them to one device"
            )
    return tensors[0].device if tensors else torch.device("cpu")


def _type_of(tensor: torch.Tensor) -> torch.dtype:
    """The type in which a tensor is reduced."""
    return _WIDER.get(tensor.dtype, tensor.dtype)


def _in_a_row(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The elements of tensors, one behind the other; a view of a contiguous one."""
    rows = [_row(tensor) for tensor in tensors]
    return rows[0] if len(rows) == 1 else torch.cat(rows)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a tensor; of one that is not contiguous a copy."""
    return _row(tensor).view(torch.uint8)


def _row(tensor: torch.Tensor) -> torch.Tensor:
    # A view of one element or none can keep strides with which it has no bytes.
    return tensor.contiguous().as_strided((tensor.numel(),), (1,))


def _together(calls: Sequence[Any]) -> Any:
    """A group, if there are several calls."""
    return group() if len(calls) > 1 else contextlib.nullcontext()
