# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Compressors: how a tensor is compressed, and what compression has lost so far."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Optional, Sequence, Union

from . import _native
from ._buffers import ELEMENT_BYTES, Array, buffer_of, data_type
from ._errors import InvalidArgument
from ._groups import keep
from ._handles import Handle
from ._layout import arrange, parts_of
from ._library import lib
from ._native import (
    Codec,
    Collective,
    DataType,
    Memory,
    Mode,
    RedOp,
    ScaleRule,
    SparseValues,
    StateKind,
)
from ._streams import StreamLike, stream_handle
from ._structures import configured, new, option_names
from ._waits import exporting

if TYPE_CHECKING:
    from ._communicator import Communicator


class Compressor(Handle):
    """Compresses the calls of one tensor, and keeps its residual: what earlier calls have lost and
    later ones will send.

        compressor = onebit.Compressor(comm, gradient.size, codec="fp4")
        comm.all_reduce(gradient, op="avg", compressor=compressor)

    Creating one is local. All ranks create theirs in the same order, or give a `tensor_id`.

    Attributes:
        communicator: where its calls are made.
        count: elements, as the calls count them.
        dtype: element type of the calls.
        collective: the one it is for.
    """

    _destroy = "onebitCompressorDestroy"

    def __init__(
        self,
        communicator: Communicator,
        count: int,
        dtype: Any = DataType.FLOAT32,
        *,
        codec: Union[Codec, str, None] = None,
        mode: Union[Mode, str, None] = None,
        collective: Union[Collective, str] = Collective.ALL_REDUCE,
        block: Union[int, str, None] = None,
        scale_rule: Union[ScaleRule, str, None] = None,
        residual_type: Any = None,
        transactional: Optional[bool] = None,
        mask: Optional[Array] = None,
        tensor_id: Optional[int] = None,
        memory: Union[Memory, str, None] = None,
        device: Optional[int] = None,
        seed: Optional[int] = None,
        k: Optional[int] = None,
        values: Union[SparseValues, str, None] = None,
        hops: Optional[int] = None,
        ef_decay: Optional[float] = None,
        chunk_alignment: Optional[int] = None,
        server_residual: Optional[bool] = None,
        cuts: Optional[Sequence[int]] = None,
        levels: Optional[int] = None,
    ) -> None:
        """Options are those of onebitCompressorConfig_t, where each is explained; None takes its
        default. All that change messages must be equal on all ranks.

        Args:
            communicator: the Communicator whose ranks all take part in every call.
            count: elements of the whole tensor; of each rank's part for a reduce-scatter, all-gather
                or all-to-all; 0 for an all-to-all-v.
            dtype: float32, float16 or bfloat16, as a name or a type of NumPy or PyTorch.
            codec: "sign" (1 bit, the default), or another name of onebit.Codec in lower case.
            mode: "ef" (error feedback, the default) or "plain".
            collective: "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "all_to_allv",
                "send_recv" or, with codec "lossless", "broadcast".
            block: elements per scale, or "tensor": one scale for the whole tensor and rank.
            scale_rule: "l2" (default) or "l1"; codec "sign" only.
            residual_type: float32 (default) or bfloat16.
            transactional: False halves the memory; an error or NaN then loses the residual.
            mask: bytes with a bit per element, as numpy.packbits(taking_part, bitorder="little") makes
                them. A clear bit takes the element out.
            tensor_id: names the tensor in messages.
            memory: "host" (default) or "device": where residuals and arrays are.
            device: number of a CUDA device, for memory "device".
            seed: for codecs that draw at random.
            k, values, hops, ef_decay: for the codecs "topk" and "randk".
            chunk_alignment, server_residual: for comparisons.
            cuts: elements at which blocks restart, so that no scale spans two of the parameters that
                the tensor holds; ascending. For codec "sign" in an all-reduce.
            levels: where several ranks share a host and its link, 1 lets a packet of each leave it, 2
                one packet for all of them, which share its residual. 0 (default): 2 for long tensors.
                For
                all-reduces, reduce-scatters and all-gathers.

        Raises:
            InvalidArgument: an option is out of range; the text says what is allowed.
        """
        self.communicator = communicator
        self.count = count
        self.dtype = data_type(dtype)
        self.collective = Collective.of(collective)
        bits = mask  # must live as long as the pointer to it
        mask = self._mask(bits)
        cut_count = 0 if cuts is None else len(cuts)  # pylint: disable=unused-variable
        cuts = (ctypes.c_size_t * len(cuts))(*cuts) if cuts else None
        names = option_names(_native.CompressorConfig)
        options = {name: value for name, value in locals().items() if name in names}
        config = configured(_native.CompressorConfig, options)
        handle = _native.Compressor()
        lib.onebitCompressorCreate(handle, communicator.handle, count, self.dtype, config)
        super().__init__(handle)

    def stats(self) -> _native.CompressorStats:
        """Counters and facts, with the members of onebitCompressorStats_t: `wire_bytes` that this rank
        sends per call, `epoch`, `residual_bytes`, and so on."""
        stats = new(_native.CompressorStats)
        lib.onebitCompressorGetStats(self.handle, stats)
        return stats

    def residual_norm(self) -> float:
        """The Euclidean norm of what this rank still owes, in the unit of what it sends."""
        norm = ctypes.c_double()
        lib.onebitCompressorGetResidualNorm(self.handle, norm)
        return norm.value

    def reset(self) -> None:
        """Sets the residual to zero and forgets the op. On all ranks between the same two calls."""
        lib.onebitCompressorReset(self.handle)

    def revert(self) -> None:
        """Takes back the last call: the residual is what it was before it. For steps that a trainer
        throws away. Does nothing if that call changed no residual. On all ranks between the same two
        calls."""
        lib.onebitCompressorRevert(self.handle)

    def set_mask(self, mask: Optional[Array]) -> None:
        """Replaces the mask, or removes it (None). On all ranks between the same two calls."""
        lib.onebitCompressorSetMask(self.handle, self._mask(mask))

    def set_weight(self, weight: float) -> None:
        """Sets this rank's weight in the next calls: results are weighted means, and 0 means absent.
        For an all-reduce or reduce-scatter with op "avg". All ranks set one between the same calls.
        """
        lib.onebitCompressorSetWeight(self.handle, weight)

    def prime(
        self,
        array: Array,
        *,
        out: Optional[Array] = None,
        op: Union[RedOp, str] = RedOp.SUM,
        stream: StreamLike = None,
    ) -> None:
        """Makes a call in full precision, which also pays everything that earlier calls owe.

        The arguments are those of the compressor's collective; all ranks call it. It blocks even with
        a CUDA stream, which only orders it.
        """
        call = arrange(self.collective, self.communicator, array, out, "prime")
        lib.onebitCompressorPrime(
            self.handle, call.send, call.receive, RedOp.of(op), stream_handle(stream)
        )
        keep(stream, self, call)

    def export_state(self, kind: Union[StateKind, str] = StateKind.RANK) -> bytes:
        """The residual, for a checkpoint.

        "rank" is local, and continues bit for bit on the same rank of a job of the same size.
        "global" is collective, gives the same bytes on all ranks, and fits any number of them.
        """
        with exporting("export_state()", self.communicator, kind):
            return exported(lib.onebitCompressorExport, self.handle, kind)

    def import_state(self, state: Any) -> None:
        """Loads a state from `export_state`, as bytes. On all ranks between the same two calls.

        Raises:
            Corrupt: the state is damaged.
            Mismatch: it belongs to another compressor; the text names every difference.
        """
        imported(lib.onebitCompressorImport, self.handle, state)

    def rebind(self, communicator: Communicator) -> int:
        """Moves to a communicator made from ranks of its own (Communicator.shrink, split), with its
        residual. Collective over that communicator.

        Returns:
            A rank that has the results of the last call and can broadcast them; -1: none has.
        """
        source = ctypes.c_int()
        lib.onebitCompressorRebind(self.handle, communicator.handle, source)
        self.communicator = communicator
        return source.value

    def _mask(self, mask: Optional[Array]) -> Any:
        parts = max(parts_of(self.collective, self.communicator.size))
        return mask_of(mask, self.count * parts)


def exported(function: Any, handle: Any, kind: Union[StateKind, str]) -> bytes:
    """The state that a C Export function writes."""
    length = ctypes.c_size_t()
    function(handle, StateKind.of(kind), None, length)
    state = ctypes.create_string_buffer(length.value)
    function(handle, StateKind.of(kind), state, length)
    return state.raw[: length.value]


def imported(function: Any, handle: Any, state: Any) -> None:
    """Passes a state to a C Import function."""
    buffer = buffer_of(state, "state")
    function(handle, buffer.address, buffer.count * ELEMENT_BYTES[buffer.dtype])


def mask_of(mask: Optional[Array], elements: int) -> Any:
    """A C pointer to the bits of a mask, valid as long as `mask` is alive; None without a mask."""
    if mask is None:
        return None
    buffer = buffer_of(mask, "mask")
    if buffer.dtype != DataType.UINT8:
        raise InvalidArgument(
            f"mask has elements of {buffer.dtype}, but must have a bit per element, in bytes: "
            "numpy.packbits(taking_part, bitorder='little')"
        )
    buffer.sized((elements + 7) // 8, f"a bit for each of {elements} elements")
    return ctypes.cast(buffer.address, ctypes.POINTER(ctypes.c_uint8))
