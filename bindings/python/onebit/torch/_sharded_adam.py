# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Adam whose state is divided among the ranks, with compressed gradients and parameters."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

import torch
import torch.distributed as dist

from .. import _native
from .._communicator import Communicator
from .._errors import InvalidArgument
from .._native import Codec, RedOp, Stage, StateKind
from .._structures import new
from .._waits import exporting
from ._adam_part import AdamPart
from ._averaging_optimizer import AveragingOptimizer, state_kind, stream_of
from ._compression import Compression
from ._matched_state import Entry, MatchedState
from ._optimizer_state import Packed, Part, compare_over_ranks, copied_to
from ._parameter import Place
from ._shard import Vector
from ._shard_exchange import Codecs, Exchange
from ._sharded_state import ShardedState, bytes_of_tensor, copy_bytes

_CODECS = (Codec.SIGN, Codec.INT2, Codec.FP4, Codec.INT8, Codec.BF16)
# The variance needs at least this part of the steps over which it averages, as in the other optimizers.
_LEAST_SHARE = 0.25
# Tensors that a saved state has of a parameter: of the first three each rank has a part.
_MOMENTS = ("exp_avg", "exp_avg_sq", "master", "residual")


@dataclass(frozen=True)
class ShardedStats:
    """Counters and facts of a ShardedOnebitAdam on this rank.

    Attributes:
        step: steps that were not skipped.
        dense_steps, compressed_steps: those with averages in full precision only, and the others.
        skipped: steps that were skipped.
        frozen_at: the last step that changed the variance; 0 until then.
        bytes_sent: by this rank in all steps, with what their beginning of the compressed stage takes.
        elements: of all parameters that train.
        own_elements: those that this rank updates.
        state_bytes: memory held: moments and parameters of the own part, what all ranks hold, gradients,
            and residuals.
        lag: the largest difference of a parameter in full precision from what all ranks hold of it, over
            the own part.
    """

    step: int
    dense_steps: int
    compressed_steps: int
    skipped: int
    frozen_at: int
    bytes_sent: int
    elements: int
    own_elements: int
    state_bytes: int
    lag: float


class ShardedOnebitAdam(AveragingOptimizer):
    """1-bit Adam with the division of ZeRO (Rajbhandari et al. 2020): each rank keeps the moments and the
    parameters in full precision of its part, and averages are reduce-scatters.

    It is AdamW up to step `freeze_step`, with exact averages. Then the variance is frozen, as in 1-bit Adam
    (Tang et al. 2021). From there on a rank sends 1 bit for each gradient of the others' parts, where 1-bit
    Adam sends momentum, because it has no momentum of those; and of its own part, to each other rank, how
    it differs from what they hold, by default in 4 bits. Both have error feedback. Sent are 5.1 (n - 1) / n
    bits per element and step, 6.2 times less than by ZeRO with 16 bits. The variance never stays live with
    compressed gradients, because it would see what signs add to them.

    Parameters of the model are what all ranks hold, the same bytes on each, and gradients are taken there.
    They follow those of full precision closely (`stats().lag`).

    Memory of a rank for each element, with n ranks: 16 / n bytes for the moments, the parameters and the
    divisors. Not divided are 8 bytes for residuals of the reduce-scatter (4 with residual_type="bfloat16"), 8
    for what all ranks hold, 4 for a copy of gradients, and 2 for units. Where ranks share a host, and the
    library passes calls inside of hosts and between them, they share the residuals out.

    All ranks construct it at the same point of the program with the same arguments, and take over the
    parameters of rank 0. Parameters are float32 or 16 bits. What is written to them between steps, on all
    ranks alike, is taken over; in the compressed stage it takes an all-gather in full precision. A
    parameter that does not require a gradient stays as it is, and a `grad` that is None counts as zero.
    A gradient that is not finite on one rank skips the step on all. Join and GradScaler work as with
    OnebitAdam, and so do options of groups: `lr`, `weight_decay`, `betas`, `eps`, `non_freeze` and
    `exp_avg_mask`.

    All elements of a block have the same scale, also those of several parameters, because the library
    restarts blocks at parameters in all-reduces only. So from the freeze on each element's gradient travels
    in a unit of its own: divided by what the step divides by, rounded to a power of two.

    After the loss of a rank its part is gone, with the moments of its elements: make an optimizer on the
    ranks that remain, and load the last state of kind "global".

    Attributes:
        state: for each parameter that trains, `step`, and `exp_avg`, `exp_avg_sq` and `master` of the
            elements that this rank updates, in the order in which they lie in memory. Empty are those of
            other ranks, and what only state_dict() has.
        last_step: what the last step did, with the members of onebitStepResult_t: `skipped`, `stage`,
            `step`, `grad_norm`, `bytes_sent`; None before the first.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: Tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        freeze_step: Union[int, str],
        codec: Union[str, Codec, None] = "sign",
        gather: Union[str, Codec, None] = "fp4",
        block: Optional[int] = None,
        levels: Optional[int] = None,
        residual_type: Any = None,
        scales: str = "element",
        variance_floor: float = 0.01,
        bias_correction: bool = True,
        max_grad_norm: float = 0.0,
        process_group: Optional[dist.ProcessGroup] = None,
        communicator: Optional[Communicator] = None,
        checkpoint: str = "global",
    ) -> None:
        """Joins the ranks. Collective.

        Args:
            params, lr, betas, eps, weight_decay: as for torch.optim.AdamW. `params` may have names,
                also with PyTorch before 2.6: `model.named_parameters()`, or groups of such pairs.
            freeze_step: the number of steps in full precision, after which the variance is frozen; or
                "never". After a quarter of the steps and 3/(1 - beta2) it has settled.
            codec: of the reduce-scatters of gradients: "sign" (1 bit), "int2", "fp4", "int8" or "bf16";
                None: full precision.
            gather: of the all-gathers of parameters: "fp4" (4 bits) or another of these; None: full
                precision.
            block, levels: of both, as for onebit.torch.State; `block` belongs to `codec`.
            residual_type: of the reduce-scatter: float32 (default) or bfloat16.
            scales: "element": gradients travel in units of their own; "fused": as they are, for comparisons.
            variance_floor: as in onebitOptimizerConfig_t (onebit/optim.h), over whole parameters.
            bias_correction: corrects the biases of the moments, as AdamW does.
            max_grad_norm: clips gradients to this norm: in full precision by the norm of the average,
                and in the compressed stage each rank by that of its own.
            process_group: its ranks average gradients; None: the default group.
            communicator: a Communicator of your own, instead of a process group.
            checkpoint: the kind of state_dict() for callers that name none, such as PyTorch's savers.

        Raises:
            onebit.Error: an option is out of range, or the ranks could not join; the text says what is
                allowed, or who was missing and where.
        """
        self._freeze_step = _freeze_step_of(freeze_step)
        for name, value in (("block", block), ("residual_type", residual_type)):
            if codec is None and value is not None:
                raise InvalidArgument(f"{name}={value!r} belongs to codec, which is None: leave it out")
        if codec is None and gather is None and levels is not None:
            raise InvalidArgument(f"levels={levels!r} belongs to codec and gather, which are None: leave it out")
        self._codecs = Codecs(
            _compression(codec, "codec", block, levels),
            _compression(gather, "gather", None, levels),
            residual_type,
        )
        if scales not in ("element", "fused"):
            raise InvalidArgument(f"scales is {scales!r}, but must be 'element' or 'fused'")
        self._has_units = scales == "element"
        self._variance_floor = _number(variance_floor, "variance_floor")
        self._max_grad_norm = _number(max_grad_norm, "max_grad_norm")
        self._has_correction = bias_correction
        self._checkpoint = _kind_of(checkpoint)
        self._shards: List[_Shard] = []
        self._skipped = self._dense_steps = self._compressed_steps = self._bytes_sent = 0
        self._step_number = 0  # of steps that were not skipped
        self._frozen_at = 0
        self._has_compared = False  # options over ranks
        options = dict(
            freeze_step=freeze_step, codec=codec, gather=gather, block=block, levels=levels, scales=scales,
            residual_type=residual_type, variance_floor=variance_floor, bias_correction=bias_correction,
            max_grad_norm=max_grad_norm,
        )  # fmt: skip
        self._options = [f"{name}={value}" for name, value in options.items()]
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "non_freeze": False,
            "exp_avg_mask": None,
        }
        super().__init__(params, defaults, process_group, communicator)
        self._codecs.check(self._communicator, self.param_groups[0]["params"][0].device)
        window = 1 / (1 - betas[1])
        if self._communicator.rank == 0 and self._freeze_step < window * _LEAST_SHARE:
            warnings.warn(
                f"the variance will be frozen after {freeze_step} steps, but with beta2 = {betas[1]} it averages "
                f"over {window:.0f}: raise freeze_step, or lower beta2",
                stacklevel=2,
            )

    @property
    def _is_in_use(self) -> bool:
        return len(self._parameters) > 0

    def _begin_state(self, tensor: torch.Tensor) -> None:
        self.state[tensor] = {}

    def _end(self) -> None:
        for shard in self._shards:
            shard.exchange.close()

    # ------------------------------------------------------------------------------------------ steps

    def _step(self) -> None:
        self._make()
        self._check_unchanged()
        compressed = [each for each in self._shards if self._frozen_at > 0 and not each.is_live]
        begins = [each for each in compressed if not each.exchange.is_compressed]
        if begins or not self._has_compared:
            self._compare_options()
        self._take_over_writes()
        self._own_gradients.compare(member.tensor.grad for member in self._parameters)
        before = self._communicator.stats().bytes_sent
        for shard in begins:
            self._freeze(shard)
        dense = [each for each in self._shards if each not in compressed]
        norm = self._fill(is_clipped=len(compressed) > 0)
        # Calls that may still be taken back come first.
        is_done = all(self._averages_compressed(shard) for shard in compressed)
        factor = 1.0
        if is_done and dense:
            square = self._average_dense(dense)
            is_done = math.isfinite(square)
            if self._max_grad_norm > 0 and not compressed:
                norm = math.sqrt(square) if is_done else square
                factor = _clipping(self._max_grad_norm, norm)
        is_done = is_done and all(self._advances(shard, factor) for shard in [*compressed, *dense])
        if not is_done:
            for shard in compressed:
                shard.exchange.revert()
        self._count(is_done, len(compressed) > 0, norm, self._communicator.stats().bytes_sent - before)

    def _compare_options(self) -> None:
        """Refuses options that differ between ranks, whose parts would be updated in different ways.
        Collective, in the first step and in that of the freeze."""
        options = list(self._options)
        for index, group in enumerate(self.param_groups):
            betas = [float(beta) for beta in group["betas"]]
            options.append(
                f"param_groups[{index}] with lr {float(group['lr']):.9g}, weight_decay "
                f"{float(group['weight_decay']):.9g}, betas {betas}, eps {float(group['eps']):.9g}"
                f"{', non_freeze' if group['non_freeze'] else ''}"
            )
        compare_over_ranks(self._communicator, options, what="option")
        self._has_compared = True

    def _fill(self, is_clipped: bool) -> Optional[float]:
        """Copies the gradients to where they are averaged, and clips this rank's own by their norm, which it
        returns if there is a limit."""
        scale = getattr(self, "grad_scale", None)  # of a GradScaler
        for shard in self._shards:
            shard.vector.fill(None if scale is None else scale.reciprocal())
        if self._max_grad_norm == 0 or not is_clipped:
            return None
        norms = [torch.linalg.vector_norm(each.vector.scratch, dtype=torch.float64) for each in self._shards]
        norm = float(torch.linalg.vector_norm(torch.stack(norms)))
        for shard in self._shards:
            shard.vector.scratch.mul_(_clipping(self._max_grad_norm, norm))
        return norm

    @staticmethod
    def _averages_compressed(shard: _Shard) -> bool:
        """Averages the gradients of a vector, and tells if they are finite, which all ranks know."""
        shard.gradient = shard.exchange.reduce()
        return bool(shard.gradient.isfinite().all())

    def _average_dense(self, shards: Sequence[_Shard]) -> float:
        """Averages gradients in full precision. Returns the square of their norm, the same on all ranks,
        which is not finite if one of them, or its square, is not."""
        square = 0.0
        for shard in shards:
            shard.gradient = shard.exchange.reduce()
            square += float(shard.gradient.square().sum(dtype=torch.float64))
        total = torch.tensor([square], dtype=torch.float64)
        self._communicator.all_reduce(total)
        return float(total)

    def _advances(self, shard: _Shard, factor: float) -> bool:
        """Steps the own part of a vector, and has all ranks follow. Tells if they have."""
        gradient = shard.gradient if factor == 1 else shard.gradient * factor
        update = shard.part.updated(gradient, self._step_number + 1, self.param_groups)
        if not shard.exchange.gather(update.x):
            return False
        shard.part.commit(update)
        shard.exchange.settle()
        shard.vector.store()
        return True

    def _freeze(self, shard: _Shard) -> None:
        """Begins the compressed stage of a vector. Collective."""
        members = shard.vector.members
        own = shard.part.variance_sums()
        sums = torch.tensor([own.get(each.begin, 0.0) for each in members], dtype=torch.float64)
        self._communicator.all_reduce(sums, op=RedOp.SUM)
        means = {
            each.begin: total / max(each.end - each.begin, 1) for each, total in zip(members, sums.tolist())
        }
        shard.part.freeze(means, self._variance_floor, self._frozen_at)
        shard.exchange.open(self._codecs)
        shard.exchange.compress(shard.part.units(self._has_units))

    def _take_over_writes(self) -> None:
        for shard in self._shards:
            if shard.vector.take_over_writes(shard.part.x) and shard.exchange.is_compressed:
                shard.exchange.prime()

    def _count(self, is_done: bool, is_compressed: bool, norm: Optional[float], bytes_sent: int) -> None:
        self._bytes_sent += bytes_sent
        self._skipped += int(not is_done)
        if is_done:
            self._step_number += 1
            self._compressed_steps += int(is_compressed)
            self._dense_steps += int(not is_compressed)
            if self._frozen_at == 0 and self._step_number >= self._freeze_step:
                self._frozen_at = self._step_number
            for member in self._parameters:
                self.state[member.tensor]["step"].fill_(self._step_number)
        result = new(_native.StepResult)
        result.skipped = int(not is_done)
        result.stage = int(Stage.COMPRESSED if is_compressed else Stage.DENSE)
        result.step = self._step_number
        result.grad_norm = -1.0 if norm is None else norm
        result.bytes_sent = bytes_sent
        self.last_step = result

    def stats(self) -> ShardedStats:
        """Counters and facts of this rank. Local."""
        self._make()
        tensors = [tensor for each in self._shards for tensor in each.tensors]
        compressors = [each for shard in self._shards for each in shard.exchange.compressors]
        held_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        return ShardedStats(
            step=self._step_number,
            dense_steps=self._dense_steps,
            compressed_steps=self._compressed_steps,
            skipped=self._skipped,
            frozen_at=self._frozen_at,
            bytes_sent=self._bytes_sent,
            elements=sum(shard.vector.count for shard in self._shards),
            own_elements=sum(shard.vector.own_count for shard in self._shards),
            state_bytes=held_bytes + sum(each.stats().residual_bytes for each in compressors),
            lag=max((shard.lag for shard in self._shards), default=0.0),
        )

    # ----------------------------------------------------------------------------------- checkpoints

    def state_dict(  # type: ignore[override]
        self, kind: Union[str, StateKind, None] = None
    ) -> Dict[str, Any]:
        """Groups, and for each parameter "onebit", which says how far the optimizer has come.

        Args:
            kind: "global": collective, so all ranks call it; the same on all, so that one copy is enough.
                It has for each parameter `step`, and in its shape and float32 `exp_avg`, `exp_avg_sq`,
                `master` (itself in full precision) and `residual`, what ranks owe of its gradients on
                average. A job of any number of ranks continues from it, with nothing lost of what is
                owed: 16 bytes for each element. "rank": local; with the state of each rank a job of as
                many ranks continues bit for bit: 8 bytes for each element, and 12 for those of the own
                part. None: `checkpoint` of the constructor, "global" if it was not given.
        """
        for hook in self._hooks("state_dict_pre"):
            hook(self)
        self._make()
        self._take_over_writes()
        chosen = self._checkpoint if kind is None else _kind_of(kind)
        with exporting("state_dict()", self._communicator, chosen):
            is_rank = chosen == "rank"
            tensors = {} if is_rank else self._gathered_tensors()
        arrays = [shard.exported() for shard in self._shards] if is_rank else []
        state = ShardedState(
            chosen,
            self._communicator.rank if is_rank else 0,
            self._communicator.size,
            self._step_number,
            self._skipped,
            self._frozen_at,
            arrays,
        )
        entries: Dict[torch.Tensor, Dict[str, Any]] = {}
        for member, part in zip(self._parameters, Part.divided(state.packed(), self._parameters)):
            tensor = member.tensor
            added = {k: v for k, v in self.state[tensor].items() if k not in _MOMENTS}
            entries[tensor] = {**added, **tensors.get(tensor, {}), "onebit": part}
        return self._written_state(entries)

    def _gathered_tensors(self) -> Dict[torch.Tensor, Dict[str, torch.Tensor]]:
        """The tensors of each parameter's state, from all ranks. Collective."""
        found: Dict[torch.Tensor, Dict[str, torch.Tensor]] = {
            member.tensor: {} for member in self._parameters
        }
        for shard in self._shards:
            for name, part in zip(_MOMENTS, shard.part.moments):
                whole = shard.exchange.gathered(part)
                for member in shard.vector.members:
                    found[member.tensor][name] = member.shaped(whole)
            owed = shard.exchange.owed()
            for member in shard.vector.members:
                found[member.tensor]["residual"] = member.shaped(owed)
        return found

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Takes over a state of `state_dict`, parameters included: that of this rank, or the same on all.
        Local. What the program has changed in tensors of a state of kind "global" is taken over. Where
        parameters have names, also in the state, it may have them and groups in another order.

        Raises:
            onebit.Error: it is damaged, or of other parameters or ranks, or without names in another
                order; the text names the difference, and nothing was loaded.
        """
        state_dict = self._given_state(state_dict)
        own = [member.place for member in self._parameters] or self._trained()
        matched = MatchedState(state_dict, self.param_groups, [place.tensor for place in own])
        former_groups, self.param_groups = self.param_groups, matched.groups
        made: List[_Shard] = []
        try:
            self._common_betas_and_eps()
            if matched.entries:
                saved = ShardedState.unpacked(b"".join(each.part.data for each in matched.entries))
                saved.check_rank(self._communicator.rank, self._communicator.size)
                made = self._new_shards([entry.place for entry in matched.entries])
                self._fill_shards(made, saved, matched.entries)
        except BaseException:
            self.param_groups = former_groups
            for shard in made:
                shard.exchange.close()
            raise
        self._end()
        self._has_compared = False
        if matched.entries:
            self._step_number, self._skipped = saved.step, saved.skipped
            self._frozen_at = saved.frozen_at
            added = {entry.place.tensor: entry.values for entry in matched.entries}
            self._use(made, [entry.place for entry in matched.entries], added)
            for shard in made:
                shard.vector.store()
        self._take_over_added(matched, state_dict)

    def _fill_shards(
        self, shards: Sequence[_Shard], saved: ShardedState, entries: Sequence[Entry]
    ) -> None:
        """Writes a state to new shards. What is collective in it waits for the next step."""
        if saved.kind == "rank":
            if len(saved.arrays) != len(shards):
                raise InvalidArgument(
                    "groups of the state have other options (non_freeze) than those of the optimizer; nothing "
                    "was loaded"
                )
            for shard, arrays in zip(shards, saved.arrays):
                if arrays["residual"]:
                    shard.exchange.open(self._codecs)
                shard.take_over(arrays)
            return
        values = {entry.place.tensor: entry for entry in entries}
        for shard in shards:
            whole = torch.zeros_like(shard.vector.held)
            for name, part in zip(_MOMENTS, (*shard.part.moments, None)):
                for member in shard.vector.members:
                    entry = values[member.tensor]
                    entry.place.check_moment(name, entry.values.get(name))
                    member.put(whole, entry.values[name])
                if part is not None:
                    part.copy_(shard.vector.own(whole))
                if name == "master":
                    shard.vector.held.copy_(whole)
            shard.exchange.owe(whole)  # the last of them, which is no rank's alone

    # ---------------------------------------------------------------------------------------- parts

    def _make(self) -> None:
        """Makes what steps need when it is first needed, so that a program may load a checkpoint into the
        model after it has made its optimizer."""
        self._check_open()
        if not self._is_in_use:
            places = self._trained()
            self._use(self._new_shards(places), places, {})

    def _new_shards(self, places: Sequence[Place]) -> List[_Shard]:
        shards: List[_Shard] = []
        for is_live in (False, True):
            chosen = [
                place
                for place in places
                if bool(self.param_groups[place.group_index]["non_freeze"]) == is_live
            ]
            if chosen:
                shards.append(self._new_shard(chosen, is_live))
        return shards

    def _new_shard(self, places: Sequence[Place], is_live: bool) -> _Shard:
        rank, ranks = self._communicator.rank, self._communicator.size
        vector = Vector(places, self.param_groups, rank, ranks)
        betas, eps = self._betas_and_eps
        part = AdamPart(
            vector.own(vector.held).clone(), vector.slices, betas, eps, self._has_correction
        )
        exchange = Exchange(self._communicator, vector, stream_of(places[0].tensor))
        return _Shard(vector, part, exchange, is_live)

    def _use(
        self, shards: List[_Shard], places: Sequence[Place], added: Mapping[torch.Tensor, Any]
    ) -> None:
        self._shards = shards
        member_of = {each.tensor: each for shard in shards for each in shard.vector.members}
        self._parameters = [member_of[place.tensor] for place in places]
        self._left_alone = [
            place for place in Place.all_of(self.param_groups) if place.tensor not in member_of
        ]
        for member in self._parameters:
            given = added.get(member.tensor, self.state.get(member.tensor, {}))
            given = {key: value for key, value in given.items() if key not in _MOMENTS}
            # PyTorch's tools look for the keys of a saved state.
            self.state[member.tensor] = {
                **copied_to(given, member.tensor.device),
                "step": torch.tensor(float(self._step_number)),
                **{name: torch.empty(0, device=member.tensor.device) for name in _MOMENTS},
                "onebit": Packed(),
            }
        for shard in shards:
            for each in shard.vector.slices:
                for name, part in zip(_MOMENTS, shard.part.moments):
                    self.state[each.member.tensor][name] = each.of(part)


class _Shard:
    """A vector of parameters, this rank's part of it, and how both travel.

    Attributes:
        is_live: its variance is never frozen, and its averages are in full precision.
        gradient: the average of the step that is being made, of the own part.
    """

    def __init__(self, vector: Vector, part: AdamPart, exchange: Exchange, is_live: bool) -> None:
        self.vector, self.part, self.exchange = vector, part, exchange
        self.is_live = is_live
        self.gradient = vector.own(vector.scratch)

    @property
    def lag(self) -> float:
        """The largest difference of what all ranks hold of the own part from the part itself."""
        return float((self.vector.own(self.vector.held) - self.part.x).abs().max())

    @property
    def tensors(self) -> List[torch.Tensor]:
        return [self.vector.held, self.vector.scratch, *self.part.tensors, *self.exchange.tensors]

    def exported(self) -> Dict[str, bytes]:
        """All that this rank needs to continue bit for bit. Local."""
        carry = self.exchange.carry
        return {
            "m": bytes_of_tensor(self.part.m),
            "v": bytes_of_tensor(self.part.v),
            "x": bytes_of_tensor(self.part.x),
            "held": bytes_of_tensor(self.vector.held),
            "carry": b"" if carry is None else bytes_of_tensor(carry),
            "residual": self.exchange.export_residual(),
        }

    def take_over(self, arrays: Mapping[str, bytes]) -> None:
        """Takes what `exported` gave."""
        copy_bytes(arrays["m"], self.part.m)
        copy_bytes(arrays["v"], self.part.v)
        copy_bytes(arrays["x"], self.part.x)
        copy_bytes(arrays["held"], self.vector.held)
        if arrays["carry"]:
            carry = torch.empty_like(self.vector.held)
            copy_bytes(arrays["carry"], carry)
            self.exchange.owe(carry)
        self.exchange.import_residual(arrays["residual"])


def _clipping(limit: float, norm: float) -> float:
    """As clip_grad_norm_ has it; NaN for a norm that is not finite, so that the step is skipped."""
    return min(1.0, limit / (norm + 1e-6)) if math.isfinite(norm) else math.nan


def _compression(
    codec: Union[str, Codec, None], option: str, block: Optional[int], levels: Optional[int]
) -> Optional[Compression]:
    if codec is None:
        return None
    compression = Compression(codec, "ef", block, None, levels)
    if compression.codec not in _CODECS:
        raise InvalidArgument(
            f'{option}="{compression.codec}" is not offered: pass one of '
            f"{', '.join(str(each) for each in _CODECS)}, or None for full precision"
        )
    return compression


def _freeze_step_of(value: Union[int, str]) -> float:
    if value == "never":
        return math.inf
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidArgument(
            f"freeze_step is {value!r}, but must be a number of steps, at least 1, or 'never'"
        )
    return value


def _number(value: float, name: str) -> float:
    if not math.isfinite(value) or value < 0:
        raise InvalidArgument(f"{name} is {value:g}, but must be finite and >= 0")
    return value


def _kind_of(kind: Union[str, StateKind]) -> str:
    chosen = state_kind(kind)
    if chosen == "exact":
        raise InvalidArgument(
            "a ShardedOnebitAdam has states of kind 'global' and 'rank': 'rank' of every rank is exact"
        )
    return chosen
