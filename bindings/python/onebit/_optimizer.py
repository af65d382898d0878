# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Optimizers: 1-bit Adam, 1-bit LAMB and 0/1 Adam over one array of parameters or several."""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Any, List, Mapping, Optional, Sequence, Union

from . import _native
from ._buffers import Array, Buffer, buffer_of, data_type
from ._communicator import Communicator
from ._compressor import exported, imported, mask_of
from ._errors import InvalidArgument
from ._handles import Handle
from ._library import lib
from ._native import DataType, StateKind
from ._streams import StreamLike, host_stream_refused, stream_handle
from ._structures import configured, freeze_step, new
from ._waits import collective, exporting


@dataclasses.dataclass(frozen=True)
class Segment:
    """A run of parameters with settings of its own, such as a layer. None takes a default.

    Attributes:
        count: elements; segments follow one another and cover all parameters. None: as many as
            `parameters` has.
        lr_scale: multiplies the learning rate.
        weight_decay: replaces the optimizer's.
        dense: exact averages and a live variance in all stages. For embeddings and biases whose
            gradients are sparse.
        no_trust_ratio: 1-bit LAMB uses a trust ratio of 1. For biases and norms.
        rare_rows: for embeddings with 0/1 Adam, because few gradients reach a row: the root of its
            variance counts at least as the root mean square over the segment.
        mask: as for a Compressor, a bit per element of the segment.
        parameters: where they are, if not in the array that all segments share; as for an Optimizer.
        parameter_copy: as for an Optimizer, for this segment.
    """

    count: Optional[int] = None
    lr_scale: Optional[float] = None
    weight_decay: Optional[float] = None
    dense: bool = False
    no_trust_ratio: bool = False
    rare_rows: bool = False
    mask: Optional[Array] = None
    parameters: Optional[Array] = None
    parameter_copy: Optional[Array] = None


class Optimizer(Handle):
    """Replaces both gradient averaging and the update of parameters: each rank passes its own
    gradients, and every rank ends the step with the same parameters, byte for byte. (With 0/1 Adam
    after the steps that synchronise.)

        optimizer = onebit.Optimizer(
            comm, parameters, beta2=0.95, bias_correction=True, freeze_step=steps // 4
        )
        for ...:
            result = optimizer.step(gradients, learning_rate)

    Parameters and gradients may be in an array for each segment, and nothing is copied into one:

        optimizer = onebit.Optimizer(comm, segments=[onebit.Segment(parameters=p) for p in layers])
        for ...:
            for index, gradient in enumerate(gradients):
                optimizer.add_gradient(index, gradient)
            result = optimizer.step(None, learning_rate)

    Creating one is local. All ranks create theirs in the same order.
    """

    _destroy = "onebitOptimizerDestroy"

    def __init__(
        self,
        communicator: Communicator,
        parameters: Optional[Array] = None,
        *,
        segments: Sequence[Segment] = (),
        compressor: Optional[Mapping[str, Any]] = None,
        parameter_copy: Optional[Array] = None,
        **options: Union[int, float, str, bool, None],
    ) -> None:
        """All options must be equal on all ranks.

        Args:
            communicator: its ranks all take part in every step.
            parameters: float32, updated in place by every step; the same bytes on every rank. None:
                each segment has its own array.
            segments: runs of parameters with settings of their own; none: all are alike.
            compressor: options of the Compressor of the momentum.
            parameter_copy: as many elements of float16 or bfloat16, which every step rewrites.
            options: members of onebitOptimizerConfig_t (onebit/optim.h) by their Python names:
                `algorithm` ("one_bit_adam", "one_bit_lamb", "zero_one_adam"), `variant`, `clip_norm`
                ("mean_square", "average"), `beta1`, `beta2`, `eps`, `weight_decay`, `bias_correction`,
                `freeze_step` (a number of steps, "automatic", "settled" or "never"), `lr_warmup_steps`,
                `scales` ("segment", "fused"), and so on.
        """
        self.communicator = communicator
        config = configured(_native.OptimizerConfig, options)
        if compressor is not None:
            compressor_config = configured(_native.CompressorConfig, compressor)
            config.compressor = ctypes.pointer(compressor_config)
        whole = None if parameters is None else _parameters(parameters, "parameters")
        table = _SegmentTable(segments, whole, config)
        self._counts = table.counts
        self._count = sum(table.counts)
        kept: List[Any] = [table, whole]
        if parameter_copy is not None:
            kept.append(_copy(parameter_copy, "parameter_copy", self._count, config))
            config.parameterCopy = kept[-1].address
        handle = _native.Optimizer()
        lib.onebitOptimizerCreate(
            handle,
            communicator.handle,
            self._count,
            None if whole is None else _floats(whole),
            config,
        )
        super().__init__(handle, kept)
        self._gradients: List[Buffer] = []  # those of the next step

    def add_gradient(
        self,
        segment: int,
        gradient: Optional[Array],
        dtype: Union[DataType, str] = DataType.FLOAT32,
    ) -> None:
        """Hands over the gradient of one segment to the next step, in any order. Local.

        Args:
            segment: its number.
            gradient: as many elements as the segment has; float32, float16 or bfloat16. Used as
                scratch by the step. None: zeros, of type `dtype`, which is the same on all ranks.
        """
        self._check(segment)
        if gradient is None:
            lib.onebitOptimizerAddGradient(self.handle, segment, None, data_type(dtype))
            return
        given = buffer_of(gradient, f"gradient of segment {segment}").written()
        given.sized(self._counts[segment], "as many as its segment has")
        lib.onebitOptimizerAddGradient(self.handle, segment, given.address, given.dtype)
        self._gradients.append(given)

    def forget_gradients(self) -> None:
        """Discards all gradients passed to add_gradient, e.g. after a failed backward pass."""
        lib.onebitOptimizerAddGradient(
            self.handle, _native.ONEBIT_ALL_SEGMENTS, None, DataType.FLOAT32
        )
        self._gradients.clear()

    def step(
        self,
        gradients: Optional[Array],
        learning_rate: float,
        *,
        grad_scale: float = 1.0,
        max_grad_norm: float = 0.0,
        stream: StreamLike = None,
    ) -> _native.StepResult:
        """Averages gradients over all ranks and updates the parameters. Collective; blocks, on a CUDA
        device until the ranks have agreed. To run it on a Stream, call it from a function of
        Stream.call.

        Args:
            gradients: of this rank, as many as parameters, neither averaged nor clipped; float32,
                float16 or bfloat16. Used as scratch. None: those of add_gradient.
            grad_scale: multiplies gradients first, such as 1 / loss scale.
            max_grad_norm: clips to this norm; 0: none; math.inf: only measures it.

        Returns:
            The members of onebitStepResult_t: `skipped` (1 if some rank's gradient was not finite),
            `stage`, `step`, `grad_norm`, `bytes_sent`.
        """
        host_stream_refused(stream, "Optimizer.step")
        address, dtype = None, DataType.FLOAT32
        if gradients is not None:
            given = buffer_of(gradients, "step: gradients").written()
            given.sized(self._count, "as many as parameters")
            address, dtype = given.address, given.dtype
        result = new(_native.StepResult)
        lib.onebitOptimizerStep(
            self.handle,
            address,
            dtype,
            learning_rate,
            grad_scale,
            max_grad_norm,
            result,
            stream_handle(stream),
        )
        # Not after an error, which may have left them to the next step.
        self._gradients.clear()
        return result

    def set_rates(
        self,
        segment: int,
        *,
        lr_scale: Optional[float] = None,
        weight_decay: Optional[float] = None,
    ) -> None:
        """Replaces these settings of a segment; None leaves one as it is. On all ranks between the
        same two steps; with 0/1 Adam not between two syncs."""
        self._check(segment)
        undefined = _native.ONEBIT_UNDEF_REAL
        lib.onebitOptimizerSetRates(
            self.handle,
            segment,
            undefined if lr_scale is None else lr_scale,
            undefined if weight_decay is None else weight_decay,
        )

    def synchronize(self) -> None:
        """Makes the ranks agree on parameters and momentum after local steps of 0/1 Adam, e.g. for an
        evaluation. Collective."""
        with collective("synchronize()", self.communicator):
            lib.onebitOptimizerSync(self.handle)

    def get_moment(self, name: str, out: Array, segment: Optional[int] = None) -> None:
        """Copies a moment, without bias correction, into an array of float32.

        Args:
            name: "m", the momentum, or "v", the variance; of 1-bit LAMB also "w", of 0/1 Adam "s" and
                "x_sync": see onebitOptimizerGetMoment.
            out: as many elements as the segment has.
            segment: number of the segment; None: all of them, one after the other.
        """
        lib.onebitOptimizerGetMoment(
            self.handle,
            _native.ONEBIT_ALL_SEGMENTS if segment is None else segment,
            name.encode(),
            self._moment(buffer_of(out, "out").written(), segment),
        )

    def set_moment(self, name: str, values: Array, segment: Optional[int] = None) -> None:
        """Replaces a moment, on all ranks between the same two steps; arguments as for get_moment."""
        lib.onebitOptimizerSetMoment(
            self.handle,
            _native.ONEBIT_ALL_SEGMENTS if segment is None else segment,
            name.encode(),
            self._moment(buffer_of(values, "values"), segment),
        )

    def rewarm(self, steps: Union[int, str] = "automatic") -> None:
        """Returns to dense steps, for a second phase of training. On all ranks between the same two
        steps."""
        lib.onebitOptimizerRewarm(self.handle, freeze_step(steps))

    def rebind(self, communicator: Communicator) -> int:
        """Moves to a communicator made from ranks of its own, after the loss of a rank. Collective over
        it. Returns the rank whose state all have now."""
        source = ctypes.c_int()
        lib.onebitOptimizerRebind(self.handle, communicator.handle, source)
        self.communicator = communicator
        return source.value

    def stats(self) -> _native.OptimizerStats:
        """Counters and facts, with the members of onebitOptimizerStats_t."""
        stats = new(_native.OptimizerStats)
        lib.onebitOptimizerGetStats(self.handle, stats)
        return stats

    def trust_ratio(self, segment: int = 0) -> _native.TrustRatio:
        """The trust ratio of a layer of 1-bit LAMB, with the members of onebitTrustRatio_t."""
        self._check(segment)
        ratio = new(_native.TrustRatio)
        lib.onebitOptimizerGetTrustRatio(self.handle, segment, ratio)
        return ratio

    def export_state(self, kind: Union[StateKind, str] = StateKind.RANK) -> bytes:
        """Parameters, moments, counters and residuals, for a checkpoint; `kind` as for a Compressor."""
        with exporting("export_state()", self.communicator, kind):
            return exported(lib.onebitOptimizerExport, self.handle, kind)

    def import_state(self, state: Array) -> None:
        """Loads a state from `export_state`, parameters included."""
        imported(lib.onebitOptimizerImport, self.handle, state)

    def _moment(self, buffer: Buffer, segment: Optional[int]) -> Any:
        """A pointer to float32 elements, as many as a segment has, or as all have."""
        if buffer.dtype != DataType.FLOAT32:
            raise InvalidArgument(f"{buffer.where} has elements of {buffer.dtype}, not float32")
        if segment is not None:
            self._check(segment)
        count = self._count if segment is None else self._counts[segment]
        return _floats(buffer.sized(count, "as many as the parameters of its segments"))

    def _check(self, segment: int) -> None:
        # A negative number would become that of all segments.
        if not 0 <= segment < len(self._counts):
            raise InvalidArgument(
                f"segment is {segment}, but there are {len(self._counts)} segments, counted from 0"
            )


class _SegmentTable:
    """The table of C, and what it points to; without segments one for all parameters."""

    def __init__(
        self,
        segments: Sequence[Segment],
        whole: Optional[Buffer],
        config: _native.OptimizerConfig,
    ) -> None:
        if whole is None and not segments:
            raise InvalidArgument("pass parameters, or segments that have their own")
        self.counts: List[int] = [] if segments or whole is None else [whole.count]
        self._table = (_native.Segment * len(segments))()
        self._kept: List[Any] = []
        for index, segment in enumerate(segments):
            self._add(index, segment, config)
        if whole is not None:
            whole.sized(sum(self.counts), "as many as all segments together")
        if segments:
            config.segments, config.segmentCount = self._table, len(segments)

    def _add(self, index: int, segment: Segment, config: _native.OptimizerConfig) -> None:
        where = f"segments[{index}]"
        own = None
        if segment.parameters is not None:
            own = _parameters(segment.parameters, f"{where}.parameters")
            if segment.count is not None:
                own.sized(segment.count, "its count")
            count = own.count
        elif segment.count is not None:
            count = segment.count
        else:
            raise InvalidArgument(f"{where} has neither a count nor parameters of its own")
        options = {
            "offset": sum(self.counts),
            "count": count,
            "lr_scale": segment.lr_scale,
            "weight_decay": segment.weight_decay,
            "flags": _native.SegmentFlags.DENSE * segment.dense
            + _native.SegmentFlags.NO_TRUST_RATIO * segment.no_trust_ratio
            + _native.SegmentFlags.RARE_ROWS * segment.rare_rows,
        }
        entry = configured(_native.Segment, options)
        entry.mask = mask_of(segment.mask, count)
        if own is not None:
            entry.parameters = _floats(own)
        if segment.parameter_copy is not None:
            copy = _copy(segment.parameter_copy, f"{where}.parameter_copy", count, config)
            entry.parameterCopy = copy.address
            self._kept.append(copy)
        self._table[index] = entry
        self._kept += [entry, own]
        self.counts.append(count)


def _parameters(array: Array, where: str) -> Buffer:
    buffer = buffer_of(array, where).written()
    if buffer.dtype != DataType.FLOAT32:
        raise InvalidArgument(
            f"{where} has elements of {buffer.dtype}, but must be float32: pass the 16-bit ones "
            "as parameter_copy"
        )
    return buffer


def _copy(array: Array, where: str, count: int, config: _native.OptimizerConfig) -> Buffer:
    """A copy of parameters in 16 bits, whose type becomes that of the configuration."""
    buffer = buffer_of(array, where).written().sized(count, "as many as parameters")
    if config.parameterCopyType not in (_native.ONEBIT_UNDEF_INT, buffer.dtype):
        raise InvalidArgument(
            f"{where} has elements of {buffer.dtype}, but other copies have "
            f"{DataType(config.parameterCopyType)}: all must have the same type"
        )
    config.parameterCopyType = buffer.dtype
    return buffer


def _floats(buffer: Buffer) -> Any:
    return ctypes.cast(buffer.address, ctypes.POINTER(ctypes.c_float))
