# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A backend of torch.distributed for one dimension of a mesh: that of replicas, whose links are slow.

Sums and averages over that dimension are compressed, whoever requests them: fully_shard on a mesh of
two dimensions (HSDP), replicate(), torch.distributed's own functions and functional collectives.

    mesh = init_device_mesh(
        "cuda", (hosts, 8), mesh_dim_names=("dp_replicate", "dp_shard"),
        backend_override={"dp_replicate": "onebit"},
    )
    fully_shard(model, mesh=mesh)

With options: `backend_override={"dp_replicate": ("onebit", onebit.torch.backend.Options(codec="fp4"))}`.
`dist.new_group(ranks, backend="onebit", pg_options=Options(...))` makes a single group.

PyTorch finds the backend of an installed package by itself. Where only PYTHONPATH leads to the package,
call `onebit.torch.backend.register()` first. PyTorch 2.14 or newer is needed.
"""

from __future__ import annotations

import collections
import contextlib
import datetime
import warnings
from typing import Any, Counter, List, NoReturn, Optional, Sequence, Set, Tuple, Union

import torch
import torch.distributed as dist

from .._communicator import Communicator, Config
from .._compressor import Compressor
from .._errors import Error, InvalidArgument
from .._groups import group
from .._native import Codec, Collective, RedOp
from ._calls import Calls
from ._compression import COMPRESSIBLE, Compression, warn_of_coarse
from ._membership import join_through_store

_NEEDED = (2, 14)
if tuple(int(part) for part in torch.__version__.split(".")[:2]) < _NEEDED:
    raise ImportError(
        f"onebit.torch.backend needs PyTorch {_NEEDED[0]}.{_NEEDED[1]} or newer, where backends can be "
        f"written in Python; this is {torch.__version__}, with which onebit.torch.State works"
    )

from torch._C._distributed_c10d import (  # pylint: disable=wrong-import-position,wrong-import-order
    Backend,
    ReduceOp,
    Work,
)

__all__ = ["Options", "register"]

_NAME = "onebit"
_INSTEAD = (
    "use the backend gloo or nccl for this group; the onebit backend is meant for the data-parallel "
    "replicate dimension of a mesh"
)
# More kinds of calls than this take turns in the compressors. One without residuals takes about 8 KiB,
# and a new one loses nothing.
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
# Types that take the results of wider ones, cut off: sums wrap around, and a sum of booleans is true
# unless it is zero.
_WIDER = {
    torch.bool: torch.int32,
    torch.int8: torch.int32,
    torch.int16: torch.int32,
    torch.uint16: torch.int32,
    torch.uint32: torch.int64,
}
_MAX_MS = 2**31 - 1


def register() -> None:
    """Makes the backend "onebit" known to torch.distributed, for CPU and CUDA tensors. Calling it again
    does nothing."""
    if _NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(_NAME, _create, extended_api=True, devices=["cpu", "cuda"])


class Options(Backend.Options):
    """Options of a group of the backend. All its ranks must pass the same ones.

    Args:
        codec: "int8" (default) or another codec of onebit.Compressor, for sums and averages. There is
            no error feedback, so no state is kept: "int8" costs no accuracy in training, "fp4" little;
            codecs of fewer bits are for onebit.torch.State. None or "none": full precision.
        min_bytes: smaller tensors are reduced in full precision.
        timeout: a call without progress for this long fails, unless ONEBIT_COLLECTIVE_TIMEOUT_MS is
            set.
            For groups of init_device_mesh; otherwise that of init_process_group or new_group counts.

    Raises:
        InvalidArgument: there is no such codec, or a number is out of range; the text says what there is.
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
            raise InvalidArgument(f"min_bytes={min_bytes!r} must be a number of bytes, not negative")
        self.min_bytes = min_bytes
        is_dense = codec is None or codec == "none"
        self.compression = None if is_dense else Compression(codec, "plain", None, None, None)
        if self.compression is not None:
            warn_of_coarse(self.compression, stacklevel=2)


class OnebitBackend(Backend):
    """The backend of one group. PyTorch makes it; programs call torch.distributed.

    Sums and averages of float32, float16 and bfloat16 are compressed if the tensor is large enough, and
    every rank gets the same bytes. All else passes in full precision: other reductions and types, and
    all-gathers and broadcasts, which carry parameters.

    Calls are made in their order: those on CPU tensors in a thread, beside the program with
    `async_op=True`; those on a CUDA device on a stream of their own, for which wait() has the current
    stream wait. The error of a call is raised by its wait(), and names the rank that was lost; on a CUDA
    device a later wait() may raise it, after results that are wrong. `is_completed()` of a call always
    says no, as with every backend in Python: ask `get_future().done()`.

    A tensor that is not contiguous is copied; Gloo takes it for one that is, with wrong results.

    destroy_process_group() waits for the other ranks, unless the group has failed. A program that ends
    leaves without them.
    """

    # PyTorch asks for these, and those that a class inherits ask again, without end.
    supports_splitting = False
    supports_coalescing = False
    supports_shrinking = False
    supports_reconfigure = False
    supports_window = False
    _supports_time_estimate = False

    def __init__(self, given: Any, options: Options) -> None:
        """Joins the group, of which PyTorch has `given` the store and the ranks. Collective.

        Raises:
            onebit.Error: the ranks could not join; the text says who was missing and where.
        """
        super().__init__(given.group_rank, given.group_size)
        self._options = options
        timeout_ms = int(options._timeout.total_seconds() * 1000)  # pylint: disable=protected-access
        config = Config(collective_timeout_ms=min(max(timeout_ms, 1), _MAX_MS))
        communicator = join_through_store(given.store, given.group_rank, given.group_size, config)
        self._calls = Calls(communicator, given.global_ranks_in_group)
        self._compressors = _Compressors(self._calls.communicator, options)

    def _get_sequence_number_for_group(self) -> int:
        return self._calls.count

    def getBackendName(self) -> str:  # pylint: disable=invalid-name; PyTorch's
        return _NAME

    @property
    def options(self) -> Options:
        return self._options

    def shutdown(self) -> None:
        """Waits until all ranks are done with the group, unless it has failed, and leaves."""
        _open_backends.discard(self)
        try:
            self._calls.close()
        except Error as error:
            # PyTorch has other groups to end, and its tables to clear.
            warnings.warn(f"the end of a process group of the onebit backend: {error}", stacklevel=2)

    def abort(self) -> None:
        """Ends calls of the group, on all ranks, and leaves."""
        _open_backends.discard(self)
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
        what = "reduce_scatter_tensor"
        _check_pairs(what, outputs, inputs)
        for output, given in zip(outputs, inputs):
            _check_count(f"{what}: input", given, self.size() * output.numel(), "ranks * output")
        parts = [([given], output) for output, given in zip(outputs, inputs)]
        return self._reduce(what, Collective.REDUCE_SCATTER, parts, opts, outputs)

    def reduce_scatter(
        self, outputs: List[torch.Tensor], inputs: List[List[torch.Tensor]], opts: Any
    ) -> Work:
        output, given = _only("reduce_scatter", outputs), _only("reduce_scatter", inputs)
        self._check_list("reduce_scatter: input_list", given, output)
        parts = [(given, output)]
        return self._reduce("reduce_scatter", Collective.REDUCE_SCATTER, parts, opts, outputs)

    def all_gather_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any) -> Work:
        return self.all_gather_single_coalesced([output], [given], opts)

    def all_gather_single_coalesced(
        self,
        outputs: List[torch.Tensor],
        inputs: List[torch.Tensor],
        opts: Any = None,  # pylint: disable=unused-argument
    ) -> Work:
        what = "all_gather_into_tensor"
        _check_pairs(what, outputs, inputs)
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

        return self._add(what, [*inputs, *outputs], call, outputs)

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

        return self._add("all_gather", [given, *pieces], call, outputs)

    def broadcast(self, tensors: List[torch.Tensor], opts: Any) -> Work:
        tensor, root = _only("broadcast", tensors), opts.rootRank
        if not 0 <= root < self.size():
            raise InvalidArgument(f"broadcast: there is no rank {root} in a group of {self.size()}")

        def call(communicator: Communicator, stream: Any) -> None:
            place = _Result(tensor, tensor.dtype)
            communicator.broadcast(_bytes(tensor), root, out=_bytes(place.values), stream=stream)
            place.deliver()

        return self._add("broadcast", [tensor], call, tensors)

    def barrier(self, opts: Any = None) -> Work:  # pylint: disable=unused-argument
        return self._add("barrier", [], lambda communicator, _: communicator.barrier(), [])

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
                    count = place.values.numel()
                    compressor = self._compressors.of(collective, op, values, count, taken)
                    function(values, out=place.values, op=op, compressor=compressor, stream=stream)
            for place in places:
                place.deliver()
            self._compressors.trim()

        tensors = [tensor for given, output in parts for tensor in (*given, output)]
        return self._add(what, tensors, call, result)

    def _add(self, what: str, tensors: Sequence[torch.Tensor], call: Any, result: Any) -> Work:
        _check_places(what, tensors)
        return self._calls.add(what, tensors, call, result)

    def _check_list(self, what: str, tensors: Sequence[torch.Tensor], like: torch.Tensor) -> None:
        if len(tensors) != self.size():
            raise InvalidArgument(
                f"{what} has {len(tensors)} tensors, but there are {self.size()} ranks in the group"
            )
        for number, tensor in enumerate(tensors):
            _check_count(f"{what}[{number}]", tensor, like.numel(), "as many as the other tensor")
            _check_type(f"{what}[{number}]", tensor, like)

    # ---------------------------------------------------------------------------- what there is not

    def allreduce_sparse(self, *_: Any) -> NoReturn:
        _refuse("all_reduce of sparse tensors")

    def reduce(self, *_: Any) -> NoReturn:
        _refuse("reduce (use all_reduce)")

    def allgather_coalesced(self, *_: Any) -> NoReturn:
        _refuse("all_gather_coalesced (use all_gather_into_tensor)")

    def gather(self, *_: Any) -> NoReturn:
        _refuse("gather (use all_gather)")

    def scatter(self, *_: Any) -> NoReturn:
        _refuse("scatter (use broadcast)")

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
        _refuse("monitored_barrier (use barrier, which names a rank that is lost)")

    def start_coalescing(self) -> NoReturn:
        _refuse("coalescing of calls on a device (use all_reduce_coalesced)")

    def split(self, *_: Any) -> NoReturn:
        _refuse("split_group (use new_group)")

    def merge(self, *_: Any) -> NoReturn:
        _refuse("merging of groups")


# The wrapper that PyTorch puts around a backend with TORCH_DISTRIBUTED_DEBUG=DETAIL does not keep it.
_open_backends: Set[OnebitBackend] = set()


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
        """The compressor of a call; None: it passes in full precision. Calls of the ranks are alike, and
        so are the compressors that they make and keep.

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
    """Makes the backend of a group for PyTorch, which tells of it what `given` has."""
    if options is None:
        options = Options(timeout=given.timeout)
    elif not isinstance(options, Options):
        raise InvalidArgument(
            "options of the backend onebit are a onebit.torch.backend.Options, not a "
            f"{type(options).__name__}"
        )
    if given.enable_reconfigure:
        _refuse("reconfiguration")
    options._timeout = given.timeout  # pylint: disable=protected-access
    backend = OnebitBackend(given, options)
    _open_backends.add(backend)
    return backend


def _refuse(what: str) -> NoReturn:
    raise NotImplementedError(f"the onebit backend has no {what}: {_INSTEAD}")


def _only(what: str, tensors: Sequence[Any]) -> Any:
    """The tensor, or list of tensors, of the only device that a rank has."""
    if len(tensors) != 1:
        raise InvalidArgument(f"{what} takes one tensor of each rank, not {len(tensors)}")
    return tensors[0]


def _check_pairs(what: str, outputs: Sequence[Any], inputs: Sequence[Any]) -> None:
    if len(outputs) != len(inputs):
        raise InvalidArgument(f"{what} has {len(inputs)} inputs, but {len(outputs)} outputs")


def _check_count(what: str, tensor: torch.Tensor, count: int, why: str) -> None:
    if tensor.numel() != count:
        raise InvalidArgument(f"{what} has {tensor.numel()} elements, but needs {count}: {why}")


def _check_type(what: str, tensor: torch.Tensor, *others: torch.Tensor) -> None:
    for other in others:
        if tensor.dtype != other.dtype:
            raise InvalidArgument(
                f"{what}: tensors are of {tensor.dtype} and {other.dtype}: convert one of them"
            )


def _check_reducible(what: str, dtype: torch.dtype, reduce_op: Any) -> None:
    if dtype not in _NATIVE and dtype not in _WIDER:
        raise NotImplementedError(
            f"{what}: the onebit backend does not reduce {dtype}: convert it, or {_INSTEAD}"
        )
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
        _refuse(f"{kind.name} in {what} (use SUM, AVG, MAX, MIN or PREMUL_SUM)")
    return _OPS[kind], reduce_op.factor if kind == ReduceOp.PREMUL_SUM else None


def _check_places(what: str, tensors: Sequence[torch.Tensor]) -> None:
    for tensor in tensors:
        if tensor.layout != torch.strided:
            _refuse(f"{what} of sparse tensors")
        if tensor.device.type not in ("cpu", "cuda"):
            _refuse(f"{what} on {tensor.device}")
        if tensor.device != tensors[0].device:
            raise InvalidArgument(
                f"{what}: tensors are on {tensors[0].device} and {tensor.device}: move one of them"
            )


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
