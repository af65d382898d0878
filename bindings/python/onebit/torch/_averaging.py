# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What hooks have in common that average gradients: a communicator, residuals by name, steps and counters."""

from __future__ import annotations

import abc
import concurrent.futures
import contextlib
import warnings
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

import torch
import torch.distributed as dist

from .._communicator import Communicator
from .._compressor import Compressor
from .._errors import Error, InvalidUsage
from .._native import Collective, StateKind
from .._waits import exporting
from ._compression import Compression
from ._futures import Flags
from ._hook_report import Report, Trial
from ._host_link import HostLink
from ._membership import Membership

_Result = TypeVar("_Result")


class Averaging(abc.ABC):
    """The base of what hooks keep between calls: a communicator of the ranks of a process group, and a
    compressor for each tensor that a hook averages, by its name.

    The ranks join when the object is made, or at the first average if there is no process group yet.
    `_thread`, if there is one, makes all calls on host memory in the order of the hook's, which is the
    same on all ranks. What is not said to be the caller's belongs to that thread or, on a device and
    without a thread, to that of the backward pass.
    """

    _collective = Collective.ALL_REDUCE
    _module = "onebit.torch"  # where users find it

    def __init__(
        self,
        process_group: Optional[dist.ProcessGroup],
        compression: Optional[Compression],
        thread: Optional[concurrent.futures.Executor],
        grad_scaler: Optional[Any],
    ) -> None:
        self._process_group = process_group
        self._compression = compression
        self._thread = thread
        self._grad_scaler = grad_scaler
        self._membership: Optional[Membership] = None
        self._link: Optional[HostLink] = None
        self._stream: Optional[torch.cuda.Stream] = None
        self._compressors: Dict[str, Compressor] = {}
        self._link_bytes_of: Dict[str, int] = {}  # of a call
        self._loaded: Dict[str, bytes] = {}  # residuals of a state, which wait for their compressors
        self._step = Step()
        self._iterations = self._dense = self._skipped = 0
        self._dense_bytes = 0
        self._dense_link_bytes = self._saved_bytes = 0  # on the link of this rank's host
        self._seconds = 0.0
        self._failure: Optional[Error] = None
        self._is_closed = False
        self._last_report: Optional[Report] = None
        self._trial: Optional[Trial] = None
        if dist.is_initialized():
            self._join()

    def _join(self) -> None:
        """Joins the ranks of the process group. Collective."""
        self._membership = Membership(self, self._process_group, self._thread)
        self._link = HostLink.of(self._membership.communicator, self._process_group)

    @property
    def _communicator(self) -> Communicator:
        if self._membership is None:
            self._join()
        assert self._membership is not None
        return self._membership.communicator

    def close(self) -> None:
        """Waits until all ranks are done with the hook, and leaves the communicator. Collective, unless
        the communicator has failed: then it only leaves. A program that ends leaves by itself,
        without waiting."""
        if self._membership is None:
            self._end()
        else:
            self._membership.close(self._end)

    def revert(self) -> None:
        """Takes back the last iteration, whose averages the trainer discards: residuals are what they
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

    def report(self) -> Report:
        """This rank's counters so far (once closed: until then), and what it owes.
        Local."""
        return self._last_report or self._run(self._report)

    def _check_open(self) -> None:
        if self._is_closed:
            raise InvalidUsage(
                f"this {self._module}.{type(self).__name__} is closed: its close() was called, or the program is "
                "about to end. Train, save and load before, or construct another one on all ranks"
            )

    def _run(self, function: Callable[[], _Result]) -> _Result:
        """Runs a function after all calls so far, and returns its result."""
        self._check_open()
        if self._thread is None:
            return function()
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

    def __deepcopy__(self, memo: Dict[int, Any]) -> "Detached":
        """DDP keeps its hooks and is copied with them, though they do not work for the copy."""
        return Detached(type(self).__name__)

    def __reduce__(self) -> Tuple[Any, ...]:
        warnings.warn(
            f"a {self._module}.{type(self).__name__}, such as that of a pickled DDP model, is not saved with it: "
            "use state_dict() and load_state_dict()",
            stacklevel=2,
        )
        return Detached, (type(self).__name__,)

    # ------------------------------------------------------------------------------------- residuals

    def _exported(self, kind: StateKind) -> Dict[str, torch.Tensor]:
        """The residuals of all compressors, and those that wait for theirs. Collective if `kind` is
        global."""

        def export() -> Dict[str, torch.Tensor]:
            self._settle()
            names = sorted(self._compressors, key=self._tensor_id_of)
            states = {name: self._compressors[name].export_state(kind) for name in names}
            states.update(self._loaded)
            return {name: _tensor_of(state) for name, state in states.items()}

        if self._membership is None:
            return self._run(export)
        with exporting("state_dict()", self._communicator, kind):
            return self._run(export)

    def _take_over(self, blobs: Mapping[str, bytes], is_known: Callable[[str], bool]) -> None:
        """Makes residuals those of a state, or leaves all as they were if one is damaged. Those whose
        tensors are not known yet are taken over, and checked, by their first call."""

        def load() -> None:
            self._settle()
            self._step = Step()
            before = {name: each.export_state(StateKind.RANK) for name, each in self._compressors.items()}
            loaded = dict(self._loaded)
            try:
                for name, blob in blobs.items():
                    if is_known(name):
                        self._import(name, blob)
            except Error:
                for name in self._compressors.keys() - before.keys():
                    self._compressors.pop(name).close()
                for name, blob in before.items():
                    self._import(name, blob)
                self._loaded = loaded
                raise
            for name in before.keys() - blobs.keys():
                self._compressors[name].reset()
            self._loaded = {name: blob for name, blob in blobs.items() if not is_known(name)}

        self._run(load)

    def _import(self, name: str, blob: bytes) -> None:
        """Gives a tensor a new compressor, with the residual of a state: where the library decides about
        levels, only a new one can take the one level of a state."""
        former = self._compressors.pop(name, None)
        if former is not None:
            former.close()
        self._loaded[name] = blob
        self._compressor(name, *self._kind_of(name))

    @abc.abstractmethod
    def _kind_of(self, name: str) -> Tuple[int, torch.dtype, torch.device]:
        """Elements, type and device of a tensor that a state may have a residual of."""

    @abc.abstractmethod
    def _tensor_id_of(self, name: str) -> int:
        """The number of a tensor, which is the same on all ranks."""

    def _compressor(self, name: str, count: int, dtype: torch.dtype, device: torch.device) -> Compressor:
        """The compressor of a tensor, made by the first call."""
        compressor = self._compressors.get(name)
        if compressor is not None:
            return compressor
        assert self._compression is not None
        tensor_id = self._tensor_id_of(name)
        compressor = self._compression.compressor(
            self._communicator,
            count,
            dtype,
            device=device,
            tensor_id=tensor_id,
            collective=self._collective,
        )
        blob = self._loaded.pop(name, None)
        if blob is not None:
            try:
                compressor.import_state(blob)
            except Error as error:
                compressor.close()
                raise type(error)(f"the residual of {name}: {error}") from error
        self._keep_link_bytes(name, compressor)  # in the levels of a state, if any
        self._compressors[name] = compressor
        return compressor

    def _keep_link_bytes(self, name: str, compressor: Compressor) -> None:
        assert self._link is not None
        self._link_bytes_of[name] = self._link.bytes_of(compressor)

    # --------------------------------------------------------------------------------------- averages

    def _scale_on(self, device: torch.device) -> Optional[torch.Tensor]:
        """The factor that the scaler has multiplied gradients by; None without a scaler."""
        if self._grad_scaler is None:
            return None
        # Public, and without a wait for the device, unlike get_scale().
        scale: torch.Tensor = self._grad_scaler.scale(torch.ones((), device=device))
        return scale

    @contextlib.contextmanager
    def _failing(self) -> Any:
        """Around averages: keeps their error, and lets other ranks know of it."""
        try:
            yield
        except Exception as error:
            if isinstance(error, Error):
                if self._membership is not None:
                    self._membership.name_ranks(error)
                self._failure = self._failure or error
            # Other ranks may wait for the call that this one could not make.
            if self._membership is not None and self._communicator.failure is None:
                self._communicator.abort()
            raise

    def _count_dense(self, tensor_bytes: int) -> None:
        """Counts what the average of a tensor would send in full precision."""
        assert self._link is not None
        size = self._communicator.size
        self._dense_bytes += 2 * (size - 1) * tensor_bytes // size
        self._dense_link_bytes += self._link.dense_bytes(tensor_bytes)

    def _count_saved(self, name: str, tensor_bytes: int) -> None:
        """Counts what a compressed average saves on the link."""
        assert self._link is not None
        self._saved_bytes += self._link.dense_bytes(tensor_bytes) - self._link_bytes_of[name]

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
        if self._membership is None or self._communicator.failure is not None:
            return
        is_finite, unused = self._step.take_flags()
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

    # ---------------------------------------------------------------------------------------- reports

    def _report(self) -> Report:
        if self._membership is None or self._link is None:
            return Report.of_nothing()
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
            trial=self._trial,
        )


class Step:
    """The averages of an iteration: which compressors were called, which of them for gradients that no
    rank had, and which results are finite."""

    def __init__(self) -> None:
        self.called: List[Compressor] = []
        self._flags: List[Tuple[Flags, List[Compressor]]] = []

    def add(
        self,
        are_finite: torch.Tensor,
        called: Sequence[Compressor] = (),
        uses: Optional[torch.Tensor] = None,
    ) -> None:
        """Adds averages; uses[i]: whether any rank had a gradient for what called[i] averaged."""
        self.called.extend(called)
        if uses is None:
            self._flags.append((Flags(are_finite), []))
        else:
            self._flags.append((Flags(torch.cat([uses != 0, are_finite])), list(called)))

    def take_flags(self) -> Tuple[bool, List[Compressor]]:
        """Whether all results are finite, and the compressors of what no rank has used; once."""
        is_finite, unused = True, []
        for flags, compressors in self._flags:
            values = flags.values()
            is_finite = all(values[len(compressors) :]) and is_finite
            unused += [compressor for compressor, use in zip(compressors, values) if not use]
        self._flags.clear()
        return is_finite, unused


class Detached:
    """Stands for a hook's state in a copy of its model, for which the state does not work."""

    def __init__(self, name: str) -> None:
        self.__dict__["_name"] = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise InvalidUsage(
            f"this is not onebit.torch.{self.__dict__.get('_name', 'State')}, but stands for one in a copied or "
            "pickled model: construct one for this model, and load into it what state_dict() of the other gave"
        )


def _tensor_of(state: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(state), dtype=torch.uint8)
