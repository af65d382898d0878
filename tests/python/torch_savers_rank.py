# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A rank of torch_savers_test.py: saves with tools that use optimizers through PyTorch's contract, and
compares what they resume with a run that saved nothing.

    torch_savers_rank.py save|load FOLDER TOOL...
"""

import logging
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook

from onebit.torch.optim import OnebitAdam, OnebitLamb, ShardedOnebitAdam, ZeroOneAdam

STEPS = 14
CASES = [  # the last state of 0/1 Adam is between two syncs
    (OnebitAdam, {"freeze_step": 4}, 9),
    (OnebitLamb, {"freeze_step": 4}, 9),
    (ShardedOnebitAdam, {"freeze_step": 9}, 9),  # one state for all ranks is exact while nothing is owed
    (ZeroOneAdam, {"var_freeze_step": 4, "local_step_scaler": 2, "local_step_clipper": 2}, 8),
    (ZeroOneAdam, {"var_freeze_step": 4, "local_step_scaler": 2, "local_step_clipper": 2}, 9),
]


def make(case):
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 4))
    return model, case[0](model.parameters(), 0.01, **case[1])


def loss_of(model, step):
    generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
    return (model(torch.randn(8, 20, generator=generator)) - 1).pow(2).mean()


def train(model, optimizer, first, last):
    for step in range(first, last):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()


def weights(model):
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def undisturbed(case):
    """The weights of a run that saves nothing."""
    model, optimizer = make(case)
    train(model, optimizer, 0, STEPS)
    optimizer.close()
    return weights(model)


class Checkpoint:
    """torch.distributed.checkpoint."""

    def save(self, case, folder):
        model, optimizer = make(case)
        train(model, optimizer, 0, case[2])
        parts = self._parts(model, optimizer)
        self._dcp().save(parts, checkpoint_id=folder)
        return model, optimizer

    def load(self, case, folder):
        from torch.distributed.checkpoint.state_dict import set_state_dict

        model, optimizer = make(case)
        parts = self._parts(model, optimizer)
        self._dcp().load(parts, checkpoint_id=folder)
        set_state_dict(
            model,
            optimizer,
            model_state_dict=parts["model"],
            optim_state_dict=parts["optimizer"],
            options=self._options(),
        )
        return model, optimizer

    def _options(self):
        return None

    @staticmethod
    def _dcp():
        import torch.distributed.checkpoint

        return torch.distributed.checkpoint

    def _parts(self, model, optimizer):
        from torch.distributed.checkpoint.state_dict import get_state_dict

        steps, before = optimizer.stats().step, weights(model)
        of_model, of_optimizer = get_state_dict(model, optimizer, options=self._options())
        assert optimizer.stats().step == steps, "a save has taken a step"
        assert torch.equal(weights(model), before), "a save has changed the weights"
        return {"model": of_model, "optimizer": of_optimizer}


class Flattened(Checkpoint):
    """The same with a key for each value of the optimizer's state."""

    def _options(self):
        from torch.distributed.checkpoint.state_dict import StateDictOptions

        return StateDictOptions(flatten_optimizer_state_dict=True)


class FullState(Checkpoint):
    """One file of rank 0, from which the others get what they load."""

    def save(self, case, folder):
        from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

        model, optimizer = make(case)
        train(model, optimizer, 0, case[2])
        state = get_optimizer_state_dict(model, optimizer, options=self._full(cpu_offload=True))
        if dist.get_rank() == 0:
            Path(folder).mkdir()
            torch.save([model.state_dict(), state], Path(folder) / "state")
        dist.barrier()
        return model, optimizer

    def load(self, case, folder):
        from torch.distributed.checkpoint.state_dict import set_optimizer_state_dict

        model, optimizer = make(case)
        of_model, state = torch.load(Path(folder) / "state", weights_only=True)
        model.load_state_dict(of_model)
        if dist.get_rank() > 0:
            state = {}
        options = self._full(broadcast_from_rank0=True)
        set_optimizer_state_dict(model, optimizer, state, options=options)
        return model, optimizer

    @staticmethod
    def _full(**options):
        from torch.distributed.checkpoint.state_dict import StateDictOptions

        return StateDictOptions(full_state_dict=True, **options)


class Accelerate:
    """accelerate.Accelerator.save_state and load_state."""

    def save(self, case, folder):
        accelerator, model, optimizer = self._prepared(case)
        train(model, optimizer, 0, case[2])
        accelerator.save_state(folder)
        dist.barrier()
        return model, optimizer.optimizer

    def load(self, case, folder):
        accelerator, model, optimizer = self._prepared(case)
        accelerator.load_state(folder)
        return model, optimizer.optimizer

    @staticmethod
    def _prepared(case):
        import accelerate

        accelerator = accelerate.Accelerator(cpu=True)
        model, optimizer = make(case)
        model = torch.nn.parallel.DistributedDataParallel(model)
        model.register_comm_hook(None, noop_hook)
        return (accelerator, model, accelerator.prepare(optimizer))


class Lightning:
    """lightning.pytorch's ModelCheckpoint."""

    def save(self, case, folder):
        from lightning.pytorch.callbacks import ModelCheckpoint

        saver = ModelCheckpoint(folder, filename="state", every_n_train_steps=case[2])
        return self._trained(case, case[2], callbacks=[saver])

    def load(self, case, folder):
        return self._trained(case, STEPS, path=str(Path(folder) / "state.ckpt"))

    @staticmethod
    def _trained(case, steps, path=None, callbacks=()):
        import lightning.pytorch as lightning

        class Module(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.model, self.optimizer = make(case)

            def training_step(self, _batch, _index):
                return loss_of(self.model, self.global_step)

            def on_train_start(self):  # Lightning registers hooks on CUDA devices only
                self.trainer.strategy.model.register_comm_hook(None, noop_hook)

            def configure_optimizers(self):
                return self.optimizer

        module = Module()
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=dist.get_world_size(),
            strategy="ddp",
            max_steps=steps,
            callbacks=list(callbacks),
            enable_checkpointing=bool(callbacks),
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
        )
        trainer.fit(module, torch.utils.data.DataLoader(torch.zeros(100, 1)), ckpt_path=path)
        return module.model, module.optimizer


TOOLS = {tool.__name__: tool for tool in (Checkpoint, Flattened, FullState, Accelerate, Lightning)}


def save_and_resume(tool, case, folder):
    expected = undisturbed(case)
    model, optimizer = tool.save(case, folder)
    if not isinstance(tool, Lightning):
        train(model, optimizer, case[2], STEPS)  # a save changes nothing
        assert torch.equal(weights(model), expected), "the run that has saved differs"
    optimizer.close()
    model, optimizer = tool.load(case, folder)
    if not isinstance(tool, Lightning):
        train(model, optimizer, case[2], STEPS)
    assert torch.equal(weights(model), expected), "the run that has resumed differs"
    optimizer.close()


def resume_at_another_size(tool, case, folder):
    model, optimizer = tool.load(case, folder)
    if not isinstance(tool, Lightning):
        assert optimizer.stats().step == case[2]
        train(model, optimizer, case[2], STEPS)
    assert optimizer.stats().step == STEPS
    if isinstance(optimizer, ZeroOneAdam):
        optimizer.synchronize()
    mine = weights(model)
    theirs = mine.clone()
    dist.broadcast(theirs, 0)
    assert torch.equal(mine, theirs), "ranks differ"
    optimizer.close()


def main():
    act = {"save": save_and_resume, "load": resume_at_another_size}[sys.argv[1]]
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for name in sys.argv[3:]:
        for number, case in enumerate(CASES):
            act(TOOLS[name](), case, f"{sys.argv[2]}/{name}{number}")
            if dist.get_rank() == 0:
                print(f"{name} {case[0].__name__} {case[2]}: equal", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
