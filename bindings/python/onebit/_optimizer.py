# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Optimizers: 1-bit Adam, 1-bit LAMB and 0/1 Adam over flat arrays of parameters."""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Any, Mapping, Optional, Sequence, Union

from . import _native
from ._buffers import Array, Buffer, buffer_of
from ._communicator import Communicator
from ._compressor import exported, imported, mask_of
from ._errors import InvalidArgument
from ._handles import Handle
from ._library import lib
from ._native import DataType, StateKind
from ._streams import StreamLike, host_stream_refused, stream_handle
from ._structures import configured, freeze_step, new


@dataclasses.dataclass(frozen=True)
class Segment:
    """A run of parameters with settings of its own, such as a layer. None takes a default.

    Attributes:
        count: elements; segments follow one another and cover all parameters.
        lr_scale: multiplies the learning rate.
        weight_decay: instead of that of the optimizer.
        dense: exact averages and a live variance in all stages. For embeddings and biases whose
            gradients are sparse.
        no_trust_ratio: 1-bit LAMB takes 1. For biases and norms.
        mask: as for a Compressor, a bit per element of the segment.
    """

    count: int
    lr_scale: Optional[float] = None
    weight_decay: Optional[float] = None
    dense: bool = False
    no_trust_ratio: bool = False
    mask: Optional[Array] = None


class Optimizer(Handle):
    """Replaces gradient averaging and the update of parameters together: each rank hands over its own
    gradients, and every rank ends the step with the same parameters, byte for byte. (With 0/1 Adam
    after the steps that synchronise.)

        optimizer = onebit.Optimizer(comm, parameters, algorithm="one_bit_adam", freeze_step=1000)
        for ...:
            result = optimizer.step(gradients, learning_rate)

    Creating one is local. All ranks create theirs in the same order.
    """

    _destroy = "onebitOptimizerDestroy"

    def __init__(
        self,
        communicator: Communicator,
        parameters: Array,
        *,
        segments: Sequence[Segment] = (),
        compressor: Optional[Mapping[str, Any]] = None,
        parameter_copy: Optional[Array] = None,
        **options: Union[int, float, str, bool, None],
    ) -> None:
        """All options must be equal on all ranks.

        Args:
            communicator: its ranks all take part in every step.
            parameters: float32, updated in place by every step; the same bytes on every rank.
            segments: runs of parameters with settings of their own; none: all are alike.
            compressor: options of the Compressor of the momentum.
            parameter_copy: as many elements of float16 or bfloat16, which every step rewrites.
            options: members of onebitOptimizerConfig_t (onebit/optim.h) by their Python names:
                `clip_norm` ("mean_square", "average"), `algorithm` ("one_bit_adam", "one_bit_lamb", "zero_one_adam"), `variant`, `beta1`,
                `beta2`, `eps`, `weight_decay`, `bias_correction`, `freeze_step` (a number of steps,
                "automatic" or "never"), `lr_warmup_steps`, and so on.
        """
        self.communicator = communicator
        self._parameters = buffer_of(parameters, "parameters").written()
        if self._parameters.dtype != DataType.FLOAT32:
            raise InvalidArgument(
                f"parameters have elements of {self._parameters.dtype}, but must be float32: give the "
                "16-bit ones as parameter_copy"
            )
        config = configured(_native.OptimizerConfig, options)
        if compressor is not None:
            compressor_config = configured(_native.CompressorConfig, compressor)
            config.compressor = ctypes.pointer(compressor_config)
        self._counts = [segment.count for segment in segments] or [self._parameters.count]
        table = _segment_table(segments)
        if segments:
            config.segments, config.segmentCount = table, len(segments)
        kept = [self._parameters]
        if parameter_copy is not None:
            copy = buffer_of(parameter_copy, "parameter_copy").written()
            copy.sized(self._parameters.count, "as many as parameters")
            config.parameterCopy, config.parameterCopyType = copy.address, copy.dtype
            kept.append(copy)
        handle = _native.Optimizer()
        lib.onebitOptimizerCreate(
            handle,
            communicator.handle,
            self._parameters.count,
            ctypes.cast(self._parameters.address, ctypes.POINTER(ctypes.c_float)),
            config,
        )
        super().__init__(handle, kept)

    def step(
        self,
        gradients: Array,
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
                float16 or bfloat16. Used as scratch.
            grad_scale: multiplies gradients first, such as 1 / loss scale.
            max_grad_norm: clips to this norm; 0: none; math.inf: only measures it.

        Returns:
            The members of onebitStepResult_t: `skipped` (1 if some rank's gradient was not finite),
            `stage`, `step`, `grad_norm`, `bytes_sent`.
        """
        host_stream_refused(stream, "Optimizer.step")
        given = self._sized(gradients, "step: gradients")
        result = new(_native.StepResult)
        lib.onebitOptimizerStep(
            self.handle,
            given.address,
            given.dtype,
            learning_rate,
            grad_scale,
            max_grad_norm,
            result,
            stream_handle(stream),
        )
        return result

    def synchronize(self) -> None:
        """Makes the ranks agree on parameters and momentum after local steps of 0/1 Adam, as for an
        evaluation. Collective."""
        lib.onebitOptimizerSync(self.handle)

    def get_moment(self, name: str, out: Array, segment: Optional[int] = None) -> None:
        """Copies a moment, without bias correction, into an array of float32.

        Args:
            name: "m", the momentum, or "v", the variance; of 1-bit LAMB also "w", of 0/1 Adam "s" and
                "x_sync": see onebitOptimizerGetMoment.
            out: as many elements as the segment has.
            segment: number of the segment; None: all of them, one behind the other.
        """
        lib.onebitOptimizerGetMoment(
            self.handle,
            _native.ONEBIT_ALL_SEGMENTS if segment is None else segment,
            name.encode(),
            self._floats(buffer_of(out, "out").written(), segment),
        )

    def set_moment(self, name: str, values: Array, segment: Optional[int] = None) -> None:
        """Replaces a moment, on all ranks between the same two steps; arguments as for get_moment."""
        lib.onebitOptimizerSetMoment(
            self.handle,
            _native.ONEBIT_ALL_SEGMENTS if segment is None else segment,
            name.encode(),
            self._floats(buffer_of(values, "values"), segment),
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
        ratio = new(_native.TrustRatio)
        lib.onebitOptimizerGetTrustRatio(self.handle, segment, ratio)
        return ratio

    def export_state(self, kind: Union[StateKind, str] = StateKind.RANK) -> bytes:
        """Parameters, moments, counters and residuals, for a checkpoint; `kind` as for a Compressor."""
        return exported(lib.onebitOptimizerExport, self.handle, kind)

    def import_state(self, state: Array) -> None:
        """Takes over a state of `export_state`, parameters included."""
        imported(lib.onebitOptimizerImport, self.handle, state)

    def _floats(self, buffer: Buffer, segment: Optional[int]) -> Any:
        """A pointer to float32 elements, as many as a segment has, or as all have."""
        if buffer.dtype != DataType.FLOAT32:
            raise InvalidArgument(f"{buffer.where} has elements of {buffer.dtype}, not float32")
        counts = self._counts if segment is None else self._counts[segment : segment + 1]
        if counts:  # otherwise there is no such segment, as the library is going to say
            buffer.sized(sum(counts), "as many as the parameters of its segments")
        return ctypes.cast(buffer.address, ctypes.POINTER(ctypes.c_float))

    def _sized(self, array: Array, where: str) -> Buffer:
        return (
            buffer_of(array, where).written().sized(self._parameters.count, "as many as parameters")
        )


def _segment_table(segments: Sequence[Segment]) -> Any:
    """The table of C, valid as long as `segments` is alive."""
    table = (_native.Segment * len(segments))()
    offset = 0
    for index, segment in enumerate(segments):
        options = {
            "offset": offset,
            "count": segment.count,
            "lr_scale": segment.lr_scale,
            "weight_decay": segment.weight_decay,
            "flags": _native.SegmentFlags.DENSE * segment.dense
            + _native.SegmentFlags.NO_TRUST_RATIO * segment.no_trust_ratio,
        }
        table[index] = configured(_native.Segment, options)
        table[index].mask = mask_of(segment.mask, segment.count)
        offset += segment.count
    return table
