# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What averages of sharded modules have in common: iterations, agreement of shards, and checkpoints."""

from __future__ import annotations

import math
import warnings
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple, Union

import torch
import torch.distributed as dist

from .._compressor import Compressor
from .._errors import InvalidArgument, InvalidUsage
from .._native import Mode, StateKind
from ._averaging import Averaging, Step
from ._compression import COMPRESSIBLE, Compression
from ._saved_state import SavedState
from ._sharded_modules import ShardedModule, part_groups


class ModuleAveraging(Averaging):
    """The base of what averages gradients of sharded modules, in the threads of backward passes."""

    _module = "onebit.torch.fsdp"

    def __init__(
        self,
        model: torch.nn.Module,
        shards: Sequence[ShardedModule],
        group: dist.ProcessGroup,
        compression: Optional[Compression],
        dense_iterations: int,
        grad_scaler: Optional[Any],
    ) -> None:
        self._shards = {shard.name: shard for shard in shards}
        # The dictionary has modules that were compressed.
        self._kinds: Dict[str, Tuple[int, torch.dtype, torch.device]] = {}
        self._dense_iterations = math.inf if compression is None else dense_iterations
        self._part_groups, self._place = part_groups(model)
        self._iteration = 0  # how many have begun
        self._is_dense = True  # the iteration that has begun
        self._pass: Optional[int] = None  # PyTorch's number of the backward pass; -1 outside of one
        self._is_in_pass = False  # it has not come to its end
        self._has_begun = False  # the iteration of this pass has
        self._in_pass: Set[str] = set()  # modules that it has come to
        # The flags say if this rank's averages are finite, which other ranks do not know yet.
        self._flags: List[torch.Tensor] = []
        self._said_dense: Set[str] = set()
        super().__init__(group, compression, None, grad_scaler)

    # ----------------------------------------------------------------------------------- checkpoints

    def state_dict(self, kind: Union[str, StateKind] = "global") -> Dict[str, Any]:
        """The residuals of this rank's shard by the names of modules, and how many iterations there were;
        between two iterations, so not while micro-steps are accumulated.

        Args:
            kind: "global": collective, and the same on all ranks that `shard` calls the same. It fits any
                number of replicas, and what is owed to later averages stays the same. "rank": local; a
                job of as many ranks continues bit for bit with the states of all.

        Returns:
            A dictionary with `iteration`, `kind`, `residuals` (tensors of bytes) and `shard`: the number of
            the shard, and how many there are.
        """
        kind = StateKind.of(kind)
        residuals = self._exported(kind)
        return {
            "iteration": self._iteration,
            "kind": str(kind),
            "shard": list(self._place),
            "residuals": residuals,
        }

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Loads a state from `state_dict` for the same shard. If it fails, all is as before.
        Residuals of modules that have not been averaged yet wait for their first average, which
        checks them.

        Raises:
            InvalidArgument: it is no such state, or that of another shard or model.
            onebit.Error: a residual is damaged or belongs to something else; the text names it.
        """
        saved = SavedState.parse(state)
        self._check_shard(state, StateKind.of(state["kind"]))
        names = saved.names_in(self._shards, lambda _: self._compression is not None, "module")
        blobs = {name: saved.residuals[each] for name, each in names.items()}
        self._take_over(blobs, lambda name: name in self._kinds)
        self._iteration = saved.iteration

    def _check_shard(self, state: Dict[str, Any], _kind: StateKind) -> None:
        self._compare_shard(state, self._place)

    def _compare_shard(self, state: Dict[str, Any], expected: Sequence[int]) -> None:
        shard = state.get("shard")
        if not isinstance(shard, (list, tuple)) or len(shard) != 2:
            raise InvalidArgument(
                f"the state's shard is {shard!r}, but that of onebit.torch.fsdp is the number of a "
                "shard and how many there are"
            )
        if shard[1] != expected[1]:
            raise InvalidArgument(
                f"the state is of one of {shard[1]} shards, but the model has {expected[1]} here, whose "
                "elements lie elsewhere: continue with as many ranks in a replica as before, or "
                "without this state, which loses what was owed to the next averages"
            )
        if shard[0] != expected[0]:
            raise InvalidArgument(
                f"the state is of shard {shard[0]} of {shard[1]}, but this rank has shard "
                f"{expected[0]}: load the file that a rank with the same shard has saved"
            )

    def _kind_of(self, name: str) -> Tuple[int, torch.dtype, torch.device]:
        return self._kinds[name]

    def _tensor_id_of(self, name: str) -> int:
        return self._shards[name].number

    # ------------------------------------------------------------------------------- backward passes

    def _enter(self, shard: ShardedModule) -> None:
        """Notices where a backward pass begins, and whether the one before has come to its end."""
        # Neither is public. PyTorch's own wrappers use them.
        # pylint: disable=protected-access
        number = torch._C._current_graph_task_id()
        if number != self._pass or (number < 0 and shard.name in self._in_pass):
            if self._is_in_pass:
                self._drop_pass()
            self._pass, self._has_begun = number, False
            self._in_pass.clear()
            if number >= 0:  # a pipeline's schedule reduces gradients outside of any
                self._is_in_pass = True
                torch.autograd.Variable._execution_engine.queue_callback(self._leave)  # type: ignore[attr-defined]
        self._in_pass.add(shard.name)

    def _leave(self) -> None:
        """The backward pass ends."""
        self._is_in_pass = False
        self._check_held()
        with self._failing():
            self._agree()

    def _check_held(self) -> None:
        """Refuses sums of micro-steps whose module the last one has not used, and so not averaged."""
        if self._has_begun:
            late = [
                each.title
                for each in self._shards.values()
                if each.held is not None and each.is_all_reducing
            ]
            if late:  # on all ranks, which use the same modules
                self._flags.clear()
                raise InvalidUsage(
                    f"{', '.join(late)}: there are gradients of earlier micro-steps, but none of the last "
                    "one, so they are not averaged: call "
                    "model.set_reduce_scatter_unused_params(True)"
                )

    def _drop_pass(self) -> None:
        """Forgets a backward pass that has failed: nobody takes its gradients."""
        self._flags.clear()
        for shard in self._shards.values():
            shard.held = None
        if self._has_begun and self._communicator.failure is None:
            self._take_back()

    def _begin_iteration(self) -> None:
        """Begins an iteration with the first average of a backward pass."""
        if self._has_begun:
            return
        self._has_begun = True
        self._take_back_skipped()
        self._step = Step()
        self._iteration += 1
        self._iterations += 1
        self._is_dense = self._iteration <= self._dense_iterations
        self._dense += int(self._is_dense)

    def _agree(self) -> None:
        """Makes known on all ranks of the replica if the averages of all its parts are finite: if one is
        not, the trainer throws the step away on all of them, though a rank sees its own part only."""
        flags, self._flags = self._flags, []
        if not flags:
            return
        if self._stream is not None:
            torch.cuda.current_stream(flags[0].device).wait_stream(self._stream)
        are_finite = torch.stack(flags).all().to(torch.float32).view(1)
        for group in self._part_groups:
            dist.all_reduce(are_finite, op=dist.ReduceOp.MIN, group=group)
        self._step.add(are_finite != 0)

    # --------------------------------------------------------------------------------------- averages

    def _is_compressible(self, shard: ShardedModule, tensor: torch.Tensor) -> bool:
        """Tells if a tensor can be compressed, and says once if it cannot."""
        if tensor.dtype in COMPRESSIBLE:
            return True
        if shard.name not in self._said_dense:
            self._said_dense.add(shard.name)
            warnings.warn(
                f"{shard.title}: sent in full precision, because no codec compresses {tensor.dtype}"
            )
        return False

    def _compress(
        self,
        shard: ShardedModule,
        tensor: torch.Tensor,
        out: torch.Tensor,
        call: Callable[[torch.Tensor, torch.Tensor, Compressor], None],
    ) -> None:
        """Makes a compressed call from a tensor of gradients to `out`, which may be the same one."""
        values, result = tensor, out
        scale = self._scale_on(tensor.device)
        if scale is not None:
            # Unscaled numbers can be too small for 16 bits.
            values = tensor.to(torch.float32) * scale.reciprocal()
            result = values if out is tensor else torch.empty_like(out, dtype=torch.float32)
        name, count = shard.name, out.numel()
        kind = self._kinds.setdefault(name, (count, values.dtype, values.device))
        if kind[0] != count:
            refuse_count(shard, count, kind[0])
        compressor = self._compressor(name, *kind)
        call(values, result, compressor)
        if scale is not None:
            out.copy_(result.mul_(scale))
        if self._compression is not None and self._compression.mode == Mode.EF:
            self._step.called.append(compressor)
            # With error feedback one element that is not finite makes all of them NaN.
            looked_at = out[:1] if scale is None else out
            self._flags.append(torch.isfinite(looked_at).all())
            if self._pass is None or self._pass < 0:  # nothing tells where the iteration ends
                self._agree()

    def _stream_of(self, tensor: torch.Tensor) -> Optional[torch.cuda.Stream]:
        """The stream of a call, which fully_shard has made the current one."""
        if not tensor.is_cuda:
            return None
        self._stream = torch.cuda.current_stream(tensor.device)
        return self._stream


def refuse_count(shard: ShardedModule, count: int, before: int) -> None:
    """Refuses gradients of a module that are fewer or more than before."""
    raise InvalidUsage(
        f"{shard.title} has gradients of {count} elements on this rank now, and had {before} before: some of "
        "its parameters have no gradient in one of these backward passes. Call "
        "model.set_reduce_scatter_unused_params(True), or freeze or train layers from the first "
        "iteration on"
    )
