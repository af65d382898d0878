# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Sync: ranks accumulate locally, and average the sums on a schedule."""

from __future__ import annotations

import ctypes
from typing import Optional, Union

from . import _native
from ._buffers import Array, buffer_of
from ._compressor import Compressor, exported, imported
from ._errors import InvalidArgument
from ._handles import Handle
from ._library import lib
from ._native import DataType, StateKind
from ._streams import StreamLike, host_stream_refused, stream_handle
from ._structures import configured
from ._waits import exporting


class Sync(Handle):
    """Sums the arrays of a rank, and averages the sums over the ranks at the steps of a schedule. The
    steps in between send nothing.

        sync = onebit.Sync(compressor, warmup_steps=100, max_interval=16, double_every=1000)
        for ...:
            weight_sum = sync.step(learning_rate * momentum, learning_rate, out=mean)
            if weight_sum is not None:                    # the same on every rank
                parameters -= mean

    The compressor is for an all-reduce of float32, and cannot be used otherwise as long as it has a
    sync.
    """

    _destroy = "onebitSyncDestroy"

    def __init__(
        self,
        compressor: Compressor,
        *,
        warmup_steps: Optional[int] = None,
        base_interval: Optional[int] = None,
        double_every: Optional[int] = None,
        max_interval: Optional[int] = None,
    ) -> None:
        """Equal on all ranks; None takes the default of onebitSyncSchedule_t.

        Args:
            warmup_steps: each of them is a sync; 0.
            base_interval: steps between syncs after that; 1.
            double_every: steps after which the interval doubles; 0: never.
            max_interval: the longest interval; 16.
        """
        schedule = configured(
            _native.SyncSchedule,
            {
                "warmup_steps": warmup_steps,
                "base_interval": base_interval,
                "double_every": double_every,
                "max_interval": max_interval,
            },
        )
        handle = _native.Sync()
        lib.onebitSyncCreate(handle, compressor.handle, schedule)
        self.compressor = compressor
        super().__init__(handle, compressor)

    def step(
        self, array: Array, weight: float, *, out: Optional[Array] = None, stream: StreamLike = None
    ) -> Optional[float]:
        """Adds `array` to the sum. If a sync is due, `out` becomes the mean of the sums over the ranks,
        which begin anew. Every rank makes every step, with the same weights.

        Args:
            array: float32, as many elements as the compressor has, already weighted.
            weight: the weight of the step, not negative.
            out: as many elements, written by a sync only; None: `array` itself.

        Returns:
            The sum of weights after a sync; None after a local step.
        """
        host_stream_refused(stream, "Sync.step")
        given = buffer_of(array, "step: array")
        target = given if out is None else buffer_of(out, "step: out")
        for buffer in (given, target.written()):
            buffer.sized(self.compressor.count, "as many as the compressor has")
            if buffer.dtype != DataType.FLOAT32:
                raise InvalidArgument(f"{buffer.where} has elements of {buffer.dtype}, not float32")
        floats = ctypes.POINTER(ctypes.c_float)
        did_sync, weight_sum = ctypes.c_int(), ctypes.c_float()
        lib.onebitSyncStep(
            self.handle,
            ctypes.cast(given.address, floats),
            weight,
            ctypes.cast(target.address, floats),
            did_sync,
            weight_sum,
            stream_handle(stream),
        )
        return weight_sum.value if did_sync.value else None

    def upcoming(self, steps: int) -> str:
        """Tells the kind of the next steps: "1" for a sync, "." for a local step."""
        text = ctypes.create_string_buffer(steps + 1)
        lib.onebitSyncNext(self.handle, steps, text)
        return text.value.decode()

    def export_state(self, kind: Union[StateKind, str] = StateKind.RANK) -> bytes:
        """Sum, weights, step and the compressor's state, for a checkpoint; `kind` as for a Compressor."""
        with exporting("export_state()", self.compressor.communicator, kind):
            return exported(lib.onebitSyncExport, self.handle, kind)

    def import_state(self, state: Array) -> None:
        """Loads a state from `export_state`."""
        imported(lib.onebitSyncImport, self.handle, state)
