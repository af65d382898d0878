# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The hook in the Trainer of transformers, which wraps its model by itself, and late."""

from __future__ import annotations

import functools
import os
import sys
import warnings
from pathlib import Path
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist

from .._errors import InvalidArgument, InvalidUsage
from ._replica import unwrapped
from .ddp import Report, State, ddp_hook

_FILE = "onebit_residuals.pt"


def attach(trainer: Any, **options: Any) -> Attached:
    """Compresses the gradients of a Trainer of transformers, on all ranks before its train():

        trainer = transformers.Trainer(model, arguments, train_dataset=dataset)
        attached = onebit.torch.attach(trainer, codec="fp4")
        trainer.train()
        print(attached.report())

    When training begins, the model that DistributedDataParallel wraps gets ddp_hook, with a State that
    knows the Trainer's GradScaler. Each checkpoint of the Trainer gets a file onebit_residuals.pt, which
    holds `state_dict("global")`; training that resumes from it continues with what was owed, also with
    another number of ranks, and with other noise. Checkpoints with `save_only_model` and those of a
    search for hyperparameters have no residuals.

    With one rank nothing is averaged: a warning says so, and training goes on.

    Args:
        options: those of State, such as `codec`.

    Returns:
        What holds the State from the beginning of training on.

    Raises:
        InvalidArgument: `trainer` is no Trainer of transformers.
        InvalidUsage: it has been attached before. And from train(): FSDP or DeepSpeed average
            gradients, or the model has another communication hook.
    """
    if not is_trainer(trainer):
        raise InvalidArgument(
            f"attach takes a Trainer of transformers, not a {type(trainer).__name__}; any model that "
            "DistributedDataParallel wraps, such as Accelerate's, takes "
            "model.register_comm_hook(onebit.torch.State(model), onebit.torch.ddp_hook)"
        )
    return Attached(trainer, options)


class Attached:
    """What attach() has added to a Trainer.

    Attributes:
        state: the State of the hook; None before training begins, and with one rank. It stays open
            after train(), because a second call trains the same wrapped model.
    """

    state: Optional[State]

    def __init__(self, trainer: Any, options: Any) -> None:
        if isinstance(getattr(trainer.train, "attached", None), Attached):
            raise InvalidUsage("attach: this Trainer was attached before: once is enough")
        self.state = None
        self._trainer = trainer
        self._options = options
        self._replica: Optional[torch.nn.Module] = None
        self._resumed: Any = None  # the checkpoint, as train() was told
        self._begin_with_checkpoint(trainer)
        _add_callback(trainer, on_train_begin=self._begin, on_save=self._save)

    def report(self) -> Optional[Report]:
        """What this rank has sent and computed so far: see State.report; None without a State. Local."""
        return None if self.state is None else self.state.report()

    def _begin_with_checkpoint(self, trainer: Any) -> None:
        """Notes the checkpoint from which train() resumes, which callbacks are not told."""
        train = trainer.train

        @functools.wraps(train)
        def noting(resume_from_checkpoint: Any = None, *args: Any, **options: Any) -> Any:
            self._resumed = resume_from_checkpoint
            return train(resume_from_checkpoint, *args, **options)

        noting.attached = self  # type: ignore[attr-defined]
        trainer.train = noting

    def _begin(self, args: Any, _state: Any) -> None:
        model = self._trainer.model_wrapped
        _, replica = unwrapped(model)
        if replica is None:
            self._refuse(model, args.world_size)
        if replica is None or args.world_size == 1:
            warnings.warn(
                "attach: this training has one rank, so it averages nothing: start it with torchrun, "
                "with a rank on each device",
                stacklevel=2,
            )
            return
        if replica is not self._replica:
            if self.state is not None:
                self.state.close()
                self.state = None
            if getattr(replica, "_comm_hooks", None):
                raise InvalidUsage(
                    "attach: the model has another communication hook, such as that of ONEBIT_TORCH_DDP or "
                    "of DistributedDataParallelKwargs: use only one of the two"
                )
            scaler = {"grad_scaler": self._trainer.accelerator.scaler}
            self.state = State(model, **{**scaler, **self._options})
            replica.register_comm_hook(self.state, ddp_hook)
            self._replica = replica
        if self._resumed:
            self._load(args)

    def _refuse(self, model: Any, ranks: int) -> None:
        """Says why a model cannot have the hook. With one rank it needs none."""
        if self._trainer.is_deepspeed_enabled:
            raise InvalidUsage(
                "attach: DeepSpeed averages gradients without hooks: use DistributedDataParallel, or an "
                "optimizer of onebit.torch.optim with own_averaging(trainer)"
            )
        if self._trainer.is_fsdp_enabled:
            raise InvalidUsage(
                "attach: FSDP has no hook of DistributedDataParallel: use compress_replicas or "
                "compress_shards of onebit.torch.fsdp"
            )
        if ranks > 1:
            raise InvalidUsage(
                f"attach: DistributedDataParallel does not wrap the Trainer's {type(model).__name__}, so "
                "no hook averages its gradients"
            )

    def _save(self, args: Any, state: Any) -> None:
        if self.state is None or args.save_only_model:
            return
        if state.is_hyper_param_search:  # whose folders the Trainer does not tell
            return
        dist.barrier()  # the Trainer writes on one rank, for longer than the state waits for it
        residuals = self.state.state_dict("global")
        if args.should_save:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            unfinished = folder / f"{_FILE}.new"
            torch.save(residuals, unfinished)
            os.replace(unfinished, folder / _FILE)

    def _load(self, args: Any) -> None:
        assert self.state is not None
        checkpoint = self._resumed
        if checkpoint is True:
            from transformers.trainer_utils import get_last_checkpoint

            checkpoint = get_last_checkpoint(args.output_dir)
        path = Path(checkpoint) / _FILE
        have = [False] * dist.get_world_size()
        dist.all_gather_object(have, path.is_file())
        if all(have):
            self.state.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        elif any(have):
            raise InvalidUsage(
                f"attach: {path} is missing on ranks {[rank for rank, has in enumerate(have) if not has]}, "
                "but others have it: copy the checkpoint to all hosts"
            )
        elif dist.get_rank() == 0:
            warnings.warn(
                f"attach: there is no {path}, so residuals start at zero, after iterations in full "
                "precision",
                stacklevel=2,
            )


def is_trainer(given: Any) -> bool:
    """Tells if it is a Trainer of transformers, without importing that."""
    module = sys.modules.get("transformers.trainer")
    return module is not None and isinstance(given, module.Trainer)


def call_at_begin(trainer: Any, function: Callable[[], None]) -> None:
    """Has a Trainer call a function when it has wrapped its model, before the first step."""
    _add_callback(trainer, on_train_begin=lambda _args, _state: function())


def _add_callback(trainer: Any, **events: Callable[[Any, Any], None]) -> None:
    """Adds functions of a Trainer's arguments and state, which it calls at these events."""
    from transformers import TrainerCallback  # which the one who made a Trainer has imported

    class Callback(TrainerCallback):  # type: ignore[misc]
        """A class of its own for each Trainer, because a Trainer warns of two callbacks of one."""

    def method(function: Callable[[Any, Any], None]) -> Callable[..., None]:
        return lambda _self, args, state, _control, **_options: function(args, state)

    for name, function in events.items():
        setattr(Callback, name, method(function))
    trainer.add_callback(Callback())
