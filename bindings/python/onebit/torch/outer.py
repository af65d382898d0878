# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""DiLoCo, Streaming DiLoCo and SparseLoCo: ranks train by themselves, and average what they have done.

    inner = torch.optim.AdamW(model.parameters(), lr=1e-3)
    outer = onebit.torch.outer.DiLoCo(model, inner, every=30)
    while outer.steps < 3000:
        inner.zero_grad()
        loss_of(model, batch()).backward()  # that of this rank
        outer.step()
    outer.flush()
    outer.adopt_global_parameters()
"""

from __future__ import annotations

import contextlib
import time
import warnings
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Union

import torch
import torch.distributed as dist

from .._communicator import Communicator
from .._compressor import Compressor
from .._errors import Error, InvalidArgument, InvalidUsage
from .._native import Codec, Mode, StateKind
from .._waits import collective, exporting
from ._calls import Calls
from ._fragment import STATISTICS, Flight, Fragment, OuterRule, divided
from ._membership import join
from ._memory_order import flat
from ._optimizer_state import compare_over_ranks
from ._outer_alignment import align
from ._outer_arguments import (
    COARSE,
    Optimizers,
    check_trained,
    codec_of,
    integer,
    optimizers_of,
    options_of,
    refuse_replica,
    rule_of,
    tensors_of,
)
from ._outer_report import OuterReport
from ._replica import ranks_of

__all__ = ["DiLoCo", "OuterReport"]

# Below this share of own parameters coarse codecs under momentum end at worse losses than without feedback.
_LEAST_MERGE = 0.25


class DiLoCo:
    """An outer optimizer: DiLoCo (Douillard et al. 2023), Streaming DiLoCo (Douillard et al. 2025) and
    SparseLoCo (Sarfi et al. 2025).

    Each rank makes inner steps with an optimizer and batches of its own. Every `every` steps the ranks
    average how far they have come from the global parameters, the pseudo-gradient, and Nesterov's
    momentum moves the global parameters by it; each rank then moves to them, and keeps the share `merge`
    of its own. Bytes are those of one compressed average in `every` steps.

    The model is not wrapped in DistributedDataParallel over the same ranks. All ranks construct this at
    the same point of the program with the same arguments, and take over parameters and buffers of rank 0.
    They make equally many steps: loop while `steps` is below the number wanted, because a rank that was
    behind when another one was lost counts those of the others.

    Parameters are those that require a gradient, in float32 or 16 bits; global parameters, momentum and
    averages are float32. Memory per element: 4 bytes of global parameters, 4 of momentum, 8 while an average
    is on its way, and with error feedback 8 + 8/n of residuals on n ranks. Buffers of these types, such as
    running statistics of BatchNorm, become their average over ranks at the end of each round, in full
    precision; those of other types, such as counters, are each rank's own.

        DiLoCo                every=30, merge=0
        Streaming DiLoCo      every=30, fragments=4, overlap=3
        SparseLoCo            every=30, codec="topk", compressor={"ef_decay": 0.95}, outer_lr=1,
                              outer_momentum=0, merge=0

    A lost rank raises onebit.PeerLost or another onebit.Error in step() on all others: call shrink() and
    go on. An average that is not finite, because a rank's parameters are not, is skipped on all ranks and
    counted; that rank warns.

    Attributes:
        steps: inner steps that were made.
    """

    def __init__(
        self,
        model: Union[torch.nn.Module, Iterable[Any]],
        inner_optimizer: Optimizers,
        *,
        every: int,
        codec: Union[str, Codec, None] = "fp4",
        mode: Union[str, Mode, None] = None,
        compressor: Optional[Mapping[str, Any]] = None,
        merge: Union[float, str] = 0.5,
        fragments: int = 1,
        overlap: int = 0,
        outer_lr: float = 0.7,
        outer_momentum: float = 0.9,
        nesterov: bool = True,
        process_group: Optional[dist.ProcessGroup] = None,
        communicator: Optional[Communicator] = None,
    ) -> None:
        """Joins the ranks. Collective.

        Args:
            model: a module, or its parameters, with or without names; a module's buffers are averaged, too.
            inner_optimizer: makes the inner steps; or several, one after the other.
            every: inner steps of a round.
            codec: "fp4", or another name of onebit.Codec; None: full precision.
            mode: "ef" (error feedback) or "plain". None: "ef" with "sign", "int2", "topk" and "randk",
                otherwise "plain", because 4 bits lose nothing in outer averages.
            compressor: options of onebit.Compressor, such as {"k": 64, "ef_decay": 0.95}.
            merge: share of its own parameters that a rank keeps when an average arrives, in [0, 1); 0 is
                the published DiLoCo. "rebase": a rank moves to the global parameters, and repeats what
                it has done since the average was submitted.
            fragments: parts of the model, of whole parameters, that are averaged at different steps.
            overlap: inner steps that are made while an average is on its way; below `every`.
            outer_lr, outer_momentum, nesterov: those of the outer step.
            process_group: its ranks average; None: the default group.
            communicator: a Communicator of one's own, instead of a process group. Nothing else uses it
                between constructor and close().

        Raises:
            InvalidArgument: an argument is wrong, or ranks have different ones; the text says which.
            onebit.Error: the ranks could not join; the text says who was missing and where.
        """
        self._optimizers = optimizers_of(inner_optimizer)
        parameters, buffers, rest = tensors_of(model)
        self._trained = {id(tensor) for _, tensor in parameters}
        check_trained(self._optimizers, self._trained)
        rule = rule_of(outer_lr, outer_momentum, nesterov, merge)
        self._every = integer("every", every, 1)
        self._overlap = integer("overlap", overlap, 0, self._every - 1, "every - 1")
        most = min(self._every, len(parameters))
        parts = integer("fragments", fragments, 1, most, "every, and the number of parameters")
        self._compressor_options = options_of(compressor)
        self._codec, self._mode = codec_of(codec, mode, self._compressor_options)
        refuse_replica(model, process_group)
        self._rest = rest
        self.steps = 0
        self._seconds = self._exposed_seconds = 0.0
        self._call_seconds = [0.0]  # calls add to it, and must not hold this object
        self._is_closed = False
        self._has_global_parameters = False  # the model, in a block `with`
        self._options = [
            f"every={every}",
            f"codec={self._codec}",
            f"mode={self._mode if self._codec is not None else None}",
            f"compressor={sorted(self._compressor_options.items())}",
            f"merge={merge}",
            f"fragments={fragments}",
            f"overlap={overlap}",
            f"outer_lr={outer_lr}",
            f"outer_momentum={outer_momentum}",
            f"nesterov={nesterov}",
        ]
        with torch.no_grad():
            sizes = [tensor.numel() for _, tensor in parameters]
            self._fragments = [
                Fragment([parameters[k] for k in part], rule) for part in divided(sizes, parts)
            ]
            self._offsets = [self._every * (part + 1) // parts for part in range(parts)]
            if buffers:
                self._fragments.append(Fragment(buffers, STATISTICS))
                self._offsets.append(self._every)
            self._of_parameters = self._fragments[:parts]
            ranks = ranks_of(process_group) if communicator is None else range(communicator.size)
            is_lent = communicator is not None
            communicator = join(process_group) if communicator is None else communicator
            self._numbers = list(ranks) or list(range(communicator.size))
            self._calls = Calls(communicator, self._numbers, is_lent)
            try:
                self._meet(communicator)
                self._make_compressors(communicator)
            except BaseException:
                self.close()
                raise
        if communicator.rank == 0:
            self._warn_of_coarse(rule)

    @property
    def communicator(self) -> Communicator:
        """The communicator of the averages, whose rank and size are the ranks' numbers."""
        return self._calls.communicator

    def __getstate__(self) -> Dict[str, Any]:
        raise InvalidUsage("a DiLoCo cannot be copied or pickled: make another, and use state_dict()")

    def close(self) -> None:
        """Waits until all ranks are done and leaves them. Collective. What is in flight is dropped: call
        flush() before. A program that ends leaves by itself, without waiting. A `communicator` that was
        given stays open."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._calls.close()
        finally:
            for fragment in self._fragments:
                if fragment.compressor is not None:
                    fragment.compressor.close()

    def __enter__(self) -> DiLoCo:
        return self

    def __exit__(self, exception_type: Any, *_: Any) -> None:
        self.close()

    # ----------------------------------------------------------------------------------------- steps

    def step(self, closure: Optional[Callable[[], Any]] = None, *, scaler: Any = None) -> Any:
        """Makes an inner step, and what is due after it: collective calls in some steps.

        Args:
            closure: computes the loss and gradients anew, for one inner optimizer; its result is returned.
            scaler: a GradScaler, whose step() makes the inner step; call its update() afterwards. A step
                that it skips counts, because other ranks may not skip theirs.

        Raises:
            PeerLost, Timeout and others: the communicator is out of use, and the text names the rank; the
                inner step was made. shrink() makes what is due, so the next call is that of the next step.
        """
        self._check_own_parameters()
        if closure is not None and len(self._optimizers) > 1:
            raise InvalidUsage("a closure is for one inner optimizer: compute gradients before step()")
        check_trained(self._optimizers, self._trained)
        begin = time.perf_counter()
        result = None
        for optimizer in self._optimizers:
            arguments = () if closure is None else (closure,)
            if scaler is None:
                result = optimizer.step(*arguments)
            else:
                scaler.step(optimizer, *arguments)
        self.steps += 1
        inner_end = time.perf_counter()
        try:
            self._advance()
        finally:
            end = time.perf_counter()
            self._exposed_seconds += end - inner_end
            self._seconds += end - begin
        return result

    @torch.no_grad()
    def _advance(self) -> None:
        """Does what is due at this step, and was not done before an error."""
        self._apply_due()
        for fragment, offset in zip(self._fragments, self._offsets):
            is_due = self.steps >= offset and (self.steps - offset) % self._every == 0
            if is_due and fragment.submitted < self.steps:
                self._submit(fragment, fragment.begin(self.steps))
        self._apply_due()

    def _apply_due(self) -> None:
        for number, fragment in enumerate(self._fragments):
            flight = fragment.flight
            if flight is not None and self.steps >= flight.step + self._overlap:
                self._apply(number, flight)

    def _submit(self, fragment: Fragment, flight: Flight, is_exact: bool = False) -> None:
        """Queues the average of a flight; if exact, in full precision and with what is owed."""
        compressor, average, seconds = fragment.compressor, flight.average, self._call_seconds
        is_prime = is_exact and compressor is not None and self._mode == Mode.EF
        flight.has_arrived = False

        def call(communicator: Communicator, stream: Any) -> None:
            begin = time.perf_counter()
            if is_prime:
                assert compressor is not None
                compressor.prime(average, op="avg", stream=stream)
            else:
                sent_by = None if is_exact else compressor
                communicator.all_reduce(average, op="avg", compressor=sent_by, stream=stream)
            seconds[0] += time.perf_counter() - begin
            flight.has_arrived = stream is None

        flight.work = self._calls.add("an outer average", [average], call, average)

    def _apply(self, number: int, flight: Flight) -> None:
        fragment = self._fragments[number]
        if self._is_finite(flight):  # the same bytes on all ranks, and so the same answer
            fragment.apply(flight)
            return
        fragment.skip()  # such a call has changed no residual
        if not bool(flight.snapshot.isfinite().all()):
            warnings.warn(
                f"{', '.join(fragment.names[:3])}{', ...' if len(fragment.names) > 3 else ''}: not finite on rank "
                f"{self.communicator.rank} after step {flight.step}, so no rank applies this average, nor those that "
                "follow while it stays so: call adopt_global_parameters() on this rank, and make its inner "
                "optimizer anew",
                stacklevel=2,
            )

    def _is_finite(self, flight: Flight) -> bool:
        """Waits for an average, and looks at it."""
        if not flight.has_arrived:
            assert flight.work is not None
            flight.work.wait()
        is_finite = bool(flight.average.isfinite().all())
        if not flight.has_arrived:  # on a device the call has ended by now, well or not
            assert flight.work is not None
            flight.work.wait()
            flight.has_arrived = True
        return is_finite

    @torch.no_grad()
    def flush(self) -> None:
        """Applies what is in flight, then averages all fragments at once in full precision, with what is
        owed, so that nothing is in flight or owed afterwards. Collective; at the end of training, before
        join(), and part of a portable state_dict()."""
        self._check_own_parameters()
        with collective("flush()", self.communicator):
            for is_exact in (False, True):
                if is_exact:
                    for fragment in self._fragments:
                        self._submit(fragment, fragment.begin(self.steps), is_exact=True)
                for number, fragment in enumerate(self._fragments):
                    if fragment.flight is not None:
                        self._apply(number, fragment.flight)

    # ------------------------------------------------------------------------------ global parameters

    @torch.no_grad()
    def adopt_global_parameters(self) -> None:
        """Makes this rank's parameters, and the buffers that are averaged, the global ones. Local."""
        self._check_open()
        for fragment in self._fragments:
            fragment.write(fragment.values)

    @contextlib.contextmanager
    def global_parameters(self) -> Iterator[None]:
        """In a block `with` the model has the global parameters and buffers, to evaluate or save it. They
        are the same on all ranks, and as of the last average. Steps, and what needs the rank's own
        parameters, wait for the end of the block. Local.

            with outer.global_parameters():
                evaluate(model)
        """
        self._check_own_parameters()
        with torch.no_grad():
            own = [fragment.current() for fragment in self._fragments]
        self.adopt_global_parameters()
        self._has_global_parameters = True
        try:
            yield
        finally:
            self._has_global_parameters = False
            with torch.no_grad():
                for fragment, values in zip(self._fragments, own):
                    fragment.write(values)

    # ----------------------------------------------------------------------------------------- ranks

    @torch.no_grad()
    def shrink(self, exclude: Sequence[int] = ()) -> None:
        """Goes on without ranks that were lost. Collective over those that remain.

            try:
                outer.step()
            except onebit.Error:
                outer.shrink()

        Each fragment is brought to the state of the ranks that were furthest. An average that some of them
        have received is applied by all; one that none has is submitted again, from the same parameters.
        If another rank is lost meanwhile, this raises as step() does, and can be called again.

        Args:
            exclude: as for Communicator.shrink.
        """
        self._check_own_parameters()
        former = self._calls
        numbers = self._numbers
        own = numbers[former.communicator.rank]
        smaller = former.communicator.shrink(exclude, abort=True)
        self._numbers = _gathered(smaller, own)
        self._calls = Calls(smaller, self._numbers)
        former.close()
        for fragment in self._fragments:
            if fragment.compressor is not None:
                fragment.compressor.rebind(smaller)
        self._meet(smaller)
        for fragment in self._fragments:
            if fragment.flight is not None and not fragment.flight.has_arrived:
                self._submit(fragment, fragment.flight)
        self._advance()

    @torch.no_grad()
    def join(self, communicator: Communicator) -> None:
        """Goes on with the ranks of another communicator, which new ones join by constructing a DiLoCo with
        it. These get step, global parameters, momentum and buffers from the others. Collective; right
        after flush(), so that nothing is in flight or owed. The program closes the communicator after
        close()."""
        self._check_own_parameters()
        self._refuse_unflushed()
        former, numbers = self._calls, self._numbers
        self._numbers = list(range(communicator.size))
        self._calls = Calls(communicator, self._numbers, is_lent=True)
        try:
            self._meet(communicator)
        except BaseException:
            failed, self._calls, self._numbers = self._calls, former, numbers
            failed.close()
            raise
        self._make_compressors(communicator)
        former.close()

    def _refuse_unflushed(self) -> None:
        is_flying = any(fragment.flight is not None for fragment in self._fragments)
        compressors = [each.compressor for each in self._fragments if each.compressor is not None]
        if is_flying or any(each.residual_norm() > 0 for each in compressors):
            raise InvalidUsage(
                "join: averages are in flight, or residuals are owed to the former communicator: call flush() on "
                "all its ranks before"
            )

    def _meet(self, communicator: Communicator) -> None:
        """Compares what ranks were given, and brings them to one state. Collective."""
        compare_over_ranks(communicator, self._options, what="option")
        compare_over_ranks(communicator, [each for part in self._fragments for each in part.described])
        is_new = self._fragments[0].rounds < 0
        ages = _gathered(communicator, -1 if is_new else self.steps)
        for tensor in self._rest if -1 in ages else []:
            received = flat(tensor) if is_new else flat(tensor).clone()
            stream = torch.cuda.current_stream(tensor.device) if tensor.is_cuda else None
            communicator.broadcast(received.view(torch.uint8), ages.index(max(ages)), stream=stream)
        self.steps = align(communicator, self._fragments, self.steps)

    def _make_compressors(self, communicator: Communicator) -> None:
        if self._codec is None:
            return
        for number, fragment in enumerate(self._of_parameters):
            if fragment.compressor is not None:
                fragment.compressor.close()
            fragment.compressor = self._compressor_for(communicator, number)

    def _compressor_for(self, communicator: Communicator, number: int) -> Compressor:
        fragment = self._fragments[number]
        device = fragment.values.device
        options = dict(self._compressor_options)
        if self._codec == Codec.SIGN and options.get("block") not in (0, "tensor"):
            options["cuts"] = fragment.cuts
        return Compressor(
            communicator,
            len(fragment.values),
            codec=self._codec,
            mode=self._mode,
            tensor_id=number,
            memory="device" if device.type == "cuda" else "host",
            device=device.index,
            **options,
        )

    # ------------------------------------------------------------------------------------ checkpoints

    def state_dict(self, kind: Union[str, StateKind] = "global") -> Dict[str, Any]:
        """Steps, and for each fragment global parameters, momentum and counters.

        Args:
            kind: "global": collective, the same on all ranks, and fits any number of them. It makes a
                flush() before. "rank": local, and changes nothing: it waits for what is in flight, and has
                it and the residuals. Save it on each rank with the states of model and inner optimizer: a
                job of as many ranks continues from it bit for bit.
        """
        self._check_open()
        kind = StateKind.of(kind)
        with exporting("state_dict()", self.communicator, kind):
            if kind == StateKind.GLOBAL:
                self.flush()
            for fragment in self._fragments:
                if fragment.flight is not None:
                    self._is_finite(fragment.flight)
            return {
                "kind": str(kind),
                "steps": self.steps,
                "rank": self.communicator.rank if kind == StateKind.RANK else None,
                "ranks": self.communicator.size,
                "fragments": [fragment.state(kind) for fragment in self._fragments],
            }

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state of `state_dict`, on all ranks between the same two steps. One of all ranks also
        makes the rank's parameters the global ones; with that of a rank the program loads its model.

        Raises:
            InvalidArgument: it is no such state, or that of another model, rank or number of ranks; the
                text names the difference. Nothing was loaded.
            Corrupt, Mismatch: a residual is damaged or belongs to something else; nothing was loaded.
        """
        self._check_own_parameters()
        kind = self._checked_kind(state)
        saved = state["fragments"]
        for fragment in self._fragments:  # their calls must not go on
            if fragment.flight is not None:
                self._is_finite(fragment.flight)
        if kind == StateKind.RANK:
            self._import([each.get("residual") for each in saved])
        else:
            for fragment in self._fragments:
                if fragment.compressor is not None:
                    fragment.compressor.reset()
        for fragment, each in zip(self._fragments, saved):
            fragment.load(each)
            if kind == StateKind.GLOBAL:
                fragment.write(fragment.values)
        self.steps = state["steps"]

    def _checked_kind(self, state: Any) -> StateKind:
        """The kind of a state that this DiLoCo can take over."""
        if not isinstance(state, Mapping) or not {"kind", "steps", "rank", "ranks", "fragments"} <= state.keys():
            raise InvalidArgument("the state is not what state_dict() of a DiLoCo returns")
        kind = StateKind.of(state["kind"])
        here = (self.communicator.rank, self.communicator.size)
        if kind == StateKind.RANK and (state["rank"], state["ranks"]) != here:
            raise InvalidArgument(
                f"the state is of rank {state['rank']} of {state['ranks']}, but this is rank {here[0]} of {here[1]}: "
                "load that of the same rank of as many, or one of kind 'global'"
            )
        integer("steps of the state", state["steps"], 0)
        saved = state["fragments"]
        if not isinstance(saved, Sequence) or len(saved) != len(self._fragments):
            raise InvalidArgument(
                "the state has other fragments than this DiLoCo, buffers included: construct it with as many "
                "fragments as when it was saved, of the same model"
            )
        for number, (fragment, each) in enumerate(zip(self._fragments, saved)):
            fragment.check(each, f"fragment {number} of the state")
            if kind == StateKind.RANK and (each.get("residual") is None) != (fragment.compressor is None):
                raise InvalidArgument(f"fragment {number} of the state has another codec than this DiLoCo")
        return kind

    def _import(self, residuals: Sequence[Optional[torch.Tensor]]) -> None:
        """Takes over residuals, or leaves all as they were."""
        before = [
            None if each.compressor is None else each.compressor.export_state(StateKind.RANK)
            for each in self._fragments
        ]
        try:
            self._replace(residuals)
        except Error:
            self._replace(before)
            raise

    def _replace(self, residuals: Sequence[Any]) -> None:
        """Gives fragments new compressors: where the library decides about levels, only a new one can
        take those of a state."""
        for number, (fragment, residual) in enumerate(zip(self._fragments, residuals)):
            if fragment.compressor is None:
                continue
            fragment.compressor.close()
            fragment.compressor = self._compressor_for(self.communicator, number)
            try:
                fragment.compressor.import_state(residual)
            except Error as error:
                raise type(error)(f"the residual of fragment {number}: {error}") from error

    # ---------------------------------------------------------------------------------------- reports

    def report(self) -> OuterReport:
        """Returns what this rank has sent and done so far, and what it owes. Local; waits for what is in flight."""
        self._check_open()
        for fragment in self._fragments:
            if fragment.flight is not None:
                self._is_finite(fragment.flight)
        size = self.communicator.size
        compressors = [each.compressor for each in self._of_parameters if each.compressor is not None]
        dense = [2 * (size - 1) * 4 * len(each.values) // size for each in self._fragments]
        return OuterReport(
            steps=self.steps,
            rounds=sum(each.rounds for each in self._of_parameters),
            skipped_rounds=sum(each.skipped for each in self._of_parameters),
            bytes_sent=self.communicator.stats().bytes_sent,
            round_bytes=sum(
                each_dense if each.compressor is None else each.compressor.stats().wire_bytes
                for each, each_dense in zip(self._fragments, dense)
            ),
            dense_round_bytes=sum(dense),
            residual_norms=[each.residual_norm() for each in compressors] if self._mode == Mode.EF else [],
            call_seconds=self._call_seconds[0],
            exposed_seconds=self._exposed_seconds,
            seconds=self._seconds,
        )

    def _check_open(self) -> None:
        if self._is_closed:
            raise InvalidUsage("this DiLoCo is closed: make another")

    def _check_own_parameters(self) -> None:
        self._check_open()
        if self._has_global_parameters:
            raise InvalidUsage(
                "the model has the global parameters inside a block of global_parameters(), and gets its own back "
                "at the end: call this after the block"
            )

    def _warn_of_coarse(self, rule: OuterRule) -> None:
        merge = 0.0 if isinstance(rule.merge, str) else rule.merge
        if self._mode == Mode.EF and self._codec in COARSE and rule.momentum > 0 and merge < _LEAST_MERGE:
            warnings.warn(
                f'codec="{self._codec}" with error feedback, outer_momentum={rule.momentum:g} and merge={rule.merge}: '
                "momentum amplifies what error feedback repays late, and losses end 5 to 11 % higher. Either "
                "give merge=0.5, or outer_momentum=0 with outer_lr=1",
                stacklevel=3,
            )


def _gathered(communicator: Communicator, own: int) -> List[int]:
    """The numbers of all ranks."""
    numbers = torch.zeros(communicator.size, dtype=torch.int64)
    numbers[communicator.rank] = own
    communicator.all_gather(numbers)
    gathered: List[int] = numbers.tolist()
    return gathered
